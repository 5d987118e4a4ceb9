"""One layer's call in a deployed network, prepared once, so that a short sequence does not spend its time in Python."""

from collections.abc import Sequence
from ctypes import byref, c_int32, c_void_p

import torch
from torch import Tensor

from glstm.ops import cpu


class Prepared:
    """For weights and a table k that never change, from the zero state, for x of one shape (T, B, D)."""

    def __init__(self, shape: Sequence[int], w_ih: Tensor, w_hh: Tensor, b: Tensor, k: Tensor, candidate: str):
        library = cpu.engine()
        assert library is not None
        steps, batch, inputs = shape
        zeros = torch.zeros(batch, k.shape[1], dtype=torch.float32, device="cpu")
        path = cpu.sparse_path(shape, k, everything=False, taped=False, threads=torch.get_num_threads())
        layer = cpu.Layer(
            steps, batch, inputs, k.shape[1], candidate == "sigmoid", one_by_one=path is not None and path.one_by_one,
            w_ih=w_ih.data_ptr(), w_hh=w_hh.data_ptr(), b=b.data_ptr(), k=k.data_ptr(),
            h0=zeros.data_ptr(), c0=zeros.data_ptr(),
        )  # fmt: skip
        self.alive = layer, zeros, path, w_ih, w_hh, b, k  # the engine has only their addresses
        self.layer, self.schedule = byref(layer), None if path is None else path.schedule.pointer
        self.zeros = zeros
        self.call = library.glstm_run_prepared
        self.call.argtypes = [c_void_p, c_void_p, c_int32, c_void_p, c_void_p]

    @staticmethod
    def possible(x: Tensor) -> bool:
        return cpu.usable(x, None) and 0 not in x.shape and x.is_contiguous()

    def final_h(self, x: Tensor) -> Tensor:
        """h (B, H) after the last step. x is not checked: it must be contiguous float32 of the prepared shape."""
        h_n = torch.empty_like(self.zeros)
        threads = torch.get_num_threads()
        cpu.require_memory(self.call(self.layer, self.schedule, threads, x.data_ptr(), h_n.data_ptr()))
        return h_n
