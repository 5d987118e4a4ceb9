"""One layer's call in evaluation, looked up once: what a short sequence costs is then the sequence, not Python."""

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_int32, c_void_p

import torch
from torch import Tensor

from glstm.ops import cpu

WATCHED = 4  # gate values a table can depend on


class _Prepared(ctypes.Structure):
    _fields_ = [
        ("layer", cpu.Layer),
        *((name, c_void_p) for name in ("schedule", "b_ih", "b_hh")),
        ("now", c_void_p * WATCHED),
        ("then", c_void_p * WATCHED),
    ]


class Prepared:
    """`run` does what `gated_lstm` would do with the same table k, or says that it cannot tell.

    tensors: w_ih, w_hh, where there are biases b_ih and b_hh, and the gate values that k was made from; `gate_then`
    is a copy of these. Weights may change. A gate value that changes is seen, and so is a tensor that moves.
    """

    def __init__(
        self, shape: Sequence[int], tensors: Sequence[Tensor], gate_then: Sequence[Tensor], k: Tensor, candidate
    ):
        library = cpu.engine()
        assert library is not None
        steps, batch, inputs = shape
        hidden = k.shape[1]
        self.shape = torch.Size(shape)
        self.output_shape = (steps, batch, hidden)
        self.zeros = torch.zeros(1, batch, hidden, dtype=torch.float32, device="cpu")
        self.no_h, self.zeros_at = self.zeros[0], self.zeros.data_ptr()
        self.places = [_place(tensor) for tensor in tensors]
        pointers = [tensor.data_ptr() for tensor in tensors]
        weights, gate = pointers[: len(tensors) - len(gate_then)], pointers[len(tensors) - len(gate_then) :]
        w_ih, w_hh, *biases = weights
        plan = cpu.sparse_plan(shape, k, everything=False, taped=False, threads=torch.get_num_threads())
        self.structure = _Prepared(
            cpu.Layer(steps, batch, inputs, hidden, candidate == "sigmoid", w_ih=w_ih, w_hh=w_hh, k=k.data_ptr()),
            None if plan is None else plan.pointer,
            *(biases or (None, None)),
            (c_void_p * WATCHED)(*gate),
            (c_void_p * WATCHED)(*(tensor.data_ptr() for tensor in gate_then)),
        )
        self.alive = k, plan, list(gate_then)  # the structure only points to them
        self.reference = byref(self.structure)
        self.call = library.glstm_run_prepared
        self.call.argtypes = [c_void_p, c_int32, *[c_void_p] * 6]

    @staticmethod
    def possible(x: Tensor, tensors: Sequence[Tensor], gate_values: int) -> bool:
        return cpu.usable(x, None) and 0 not in x.shape and gate_values <= WATCHED and all(map(_plain, tensors))

    def run(self, x: Tensor, hx: tuple[Tensor, Tensor] | None, tensors: Sequence[Tensor], sequence: bool):
        """All h or None, final h, final c (1, B, H); None where something is not as it was when this was prepared."""
        if x.shape != self.shape or not _plain(x) or [_place(tensor) for tensor in tensors] != self.places:
            return None
        h0 = c0 = self.zeros
        if hx is not None:
            if not (isinstance(hx, tuple) and len(hx) == 2 and all(isinstance(state, Tensor) for state in hx)):
                return None  # whoever looks everything up says what is wrong with it
            h0, c0 = hx
            if not (h0.shape == c0.shape == self.zeros.shape and _plain(h0) and _plain(c0)):
                return None
        h = cpu.everything(*self.output_shape) if sequence else None
        h_n, c_n = torch.empty_like(self.zeros), torch.empty_like(self.zeros)
        failed = self.call(
            self.reference,
            torch.get_num_threads(),
            x.data_ptr(),
            h0.data_ptr(),
            c0.data_ptr(),
            None if h is None else h.data_ptr(),
            h_n.data_ptr(),
            c_n.data_ptr(),
        )
        if failed == 2:
            return None
        cpu.require_memory(failed)
        return h, h_n, c_n

    def final_h(self, x: Tensor) -> Tensor:
        """From the zero state, h (B, H) after the last step. For a network whose values never change: nothing is looked
        at, not even x, which must be plain and of the shape prepared for."""
        h_n, zeros = torch.empty_like(self.no_h), self.zeros_at
        threads = torch.get_num_threads()
        cpu.require_memory(self.call(self.reference, threads, x.data_ptr(), zeros, zeros, None, h_n.data_ptr(), None))
        return h_n


def _plain(tensor: Tensor) -> bool:
    return tensor.dtype is torch.float32 and tensor.is_cpu and tensor.is_contiguous()


def _place(tensor: Tensor) -> tuple:
    """Where its numbers are, and that they lie there one after the other: a view of the same memory need not."""
    return tensor.data_ptr(), tensor.is_contiguous()
