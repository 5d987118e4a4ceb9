"""The C engine of `glstm/native`, called with ctypes on raw pointers: float32 on the CPU.

Where k has zeros enough, only the open units are computed; the choice is made here, once a table.
"""

import ctypes
import os
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_int32, c_size_t, c_void_p
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from glstm.ops import cost, memory

WIDEST = 16  # floats in the widest vector


class Layer(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("steps", "batch", "inputs", "hidden", "logistic", "k_per_sample", "threads")),
        ("unused", c_int32),
        *((name, c_void_p) for name in ("x", "w_ih", "w_hh", "b", "k", "h0", "c0", "h", "h_n", "c_n", "c", "tape")),
    ]


class _Gradients(ctypes.Structure):
    _fields_ = [
        (name, c_void_p)
        for name in ("dh", "dh_n", "dc_n", "dc", "dx", "dw_ih", "dw_hh", "db", "dk", "dh0", "dc0")
    ]  # fmt: skip


@cache
def engine() -> ctypes.CDLL | None:
    """The engine, or None where it was not built. GLSTM_ENGINE names another build of it, for those who work on it."""
    folders = (Path(__file__).parents[1], Path(sysconfig.get_path("platlib")) / "glstm")
    chosen = os.environ.get("GLSTM_ENGINE")
    for path in [Path(chosen)] if chosen else [folder / "native" / "engine.so" for folder in folders]:
        if path.exists():
            library = ctypes.CDLL(str(path))
            library.glstm_schedule.restype = c_void_p
            library.glstm_schedule.argtypes = [c_void_p, c_int32, c_int32]
            library.glstm_schedule_free.argtypes = [c_void_p]
            library.glstm_sparse_tape_size.restype = c_size_t
            library.glstm_schedule_counts.argtypes = [c_void_p, c_int32, c_void_p]
            return library
    return None


def status() -> str:
    """One sentence about the engine."""
    library = engine()
    if library is None:
        return "glstm runs on its reference operator, exact but slow: no C compiler was there when it was installed."
    return f"glstm runs on its C engine, {library.glstm_lanes(-1)} floats at a time."


def usable(x: Tensor, k_h: Tensor | None) -> bool:
    return x.dtype == torch.float32 and x.device.type == "cpu" and k_h is None and engine() is not None


def tape_size(steps, batch, hidden):
    """Room for the dense tape, and for how it was written: by how many threads, and whether sparse. A sparse tape fills
    only the front, and what is not touched costs no memory."""
    return steps * batch * 6 * ((hidden + WIDEST - 1) // WIDEST * WIDEST) + 2


class Plan:
    """Which unit works when, under one table k (T, H)."""

    def __init__(self, k: Tensor):
        library = engine()
        assert library is not None
        steps, hidden = k.shape
        self.free = library.glstm_schedule_free
        self.pointer = c_void_p(library.glstm_schedule(k.data_ptr(), steps, hidden))
        if not self.pointer:
            raise MemoryError("the schedule of a gated LSTM does not fit into memory")
        self.counts = cost.Counts()
        library.glstm_schedule_counts(self.pointer, library.glstm_lanes(-1), byref(self.counts))

    def __del__(self):
        self.free(self.pointer)


_forced: list[str] = []  # 'dense' or 'sparse'


@contextmanager
def forcing(path: str) -> Iterator[None]:
    """Everything runs 'dense' or, wherever it can, 'sparse': for tests, and to measure what is chosen between."""
    _forced.append(path)
    try:
        yield
    finally:
        _forced.pop()


def sparse_plan(x_shape: Sequence[int], k: Tensor, everything: bool, taped: bool, threads: int) -> Plan | None:
    """The plan by which to skip closed work, or None where doing everything is quicker.

    `everything`: c of every step is asked for, which only the dense path writes.
    """
    steps, batch, inputs = x_shape
    if k.dim() == 3 or everything or steps == 0 or batch == 0 or _forced[-1:] == ["dense"]:
        return None
    if _forced:
        return Plan(k)
    library = engine()
    assert library is not None
    layer = Layer(steps, batch, inputs, k.shape[1], threads=max(1, threads))
    team = 1 if taped else library.glstm_team_size(byref(layer))
    one_by_one = not taped and bool(library.glstm_one_by_one(byref(layer)))
    shape = cost.Shape(steps, batch, inputs, k.shape[1], library.glstm_lanes(-1), max(1, threads), team, one_by_one)
    dense = cost.dense(shape, taped)
    if cost.sparse_at_least(shape, taped, int(k.count_nonzero())) >= dense:
        return None  # without making a schedule that would not be used
    plan = Plan(k)
    return plan if cost.sparse(shape, taped, plan.counts) < dense else None


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _layer(x, w_ih, w_hh, b, k, h0, c0, outputs, tape, candidate, threads: int) -> Layer:
    steps, batch, inputs = x.shape
    return Layer(
        steps, batch, inputs, w_hh.shape[1], candidate == "sigmoid", k.dim() == 3, threads, 0,
        *map(_pointer, (x, w_ih, w_hh, b, k, h0, c0)), *map(_pointer, outputs), _pointer(tape),
    )  # fmt: skip


def everything(steps: int, batch: int, hidden: int) -> Tensor:
    """Room for what every unit has at every step."""
    floats = steps * batch * hidden
    if floats < memory.LARGE:
        return torch.empty(steps, batch, hidden, dtype=torch.float32, device="cpu")
    return memory.borrow(floats).view(steps, batch, hidden)


def forward(x, w_ih, w_hh, b, k, h0, c0, candidate, sequence: bool, cells: bool, taped: bool):
    """All h or None, final h, final c, all c or None, tape or None."""
    library = engine()
    assert library is not None
    steps, batch, _ = x.shape
    hidden = w_hh.shape[1]
    x, w_ih, w_hh, k, h0, c0 = (tensor.contiguous() for tensor in (x, w_ih, w_hh, k, h0, c0))
    b = None if b is None else b.contiguous()
    h = everything(steps, batch, hidden) if sequence else None
    c = everything(steps, batch, hidden) if cells else None
    h_n, c_n = torch.empty_like(h0), torch.empty_like(c0)
    tape = memory.borrow(tape_size(steps, batch, hidden)) if taped else None
    threads = torch.get_num_threads()
    layer = _layer(x, w_ih, w_hh, b, k, h0, c0, (h, h_n, c_n, c), tape, candidate, threads)
    plan = _taped_plan(library, layer, sparse_plan(x.shape, k, cells, taped, threads), tape)
    if tape is not None:
        tape[-2:] = torch.tensor((threads, plan is not None))
    failed = (
        library.glstm_dense_forward(byref(layer))
        if plan is None
        else library.glstm_sparse_forward(byref(layer), plan.pointer)
    )
    require_memory(failed)
    return h, h_n, c_n, c, tape


def backward(dh, dh_n, dc_n, dc, x, w_ih, w_hh, k, h0, tape, candidate, need_x: bool, need_h0: bool):
    """Gradients of x, w_ih, w_hh, b, k, h0, c0; those of x and h0 are None where nobody needs them."""
    library = engine()
    assert library is not None
    dh_n, dc_n = (torch.zeros_like(h0) if tensor is None else tensor for tensor in (dh_n, dc_n))
    x, w_ih, w_hh, k, h0, dh_n, dc_n = (tensor.contiguous() for tensor in (x, w_ih, w_hh, k, h0, dh_n, dc_n))
    dh, dc = (None if tensor is None else tensor.contiguous() for tensor in (dh, dc))
    layer = _layer(x, w_ih, w_hh, None, k, h0, None, (None,) * 4, tape, candidate, int(tape[-2]))
    found = {
        "dx": torch.empty_like(x) if need_x else None,
        "dw_ih": torch.empty_like(w_ih),
        "dw_hh": torch.empty_like(w_hh),
        "db": x.new_empty(w_hh.shape[0]),
        "dk": torch.empty_like(k),
        "dh0": torch.empty_like(h0) if need_h0 else None,
        "dc0": torch.empty_like(h0),
    }
    gradients = _Gradients(*map(_pointer, (dh, dh_n, dc_n, dc, *found.values())))
    plan = Plan(k) if tape[-1] else None
    failed = (
        library.glstm_dense_backward(byref(layer), byref(gradients))
        if plan is None
        else library.glstm_sparse_backward(byref(layer), byref(gradients), plan.pointer)
    )
    require_memory(failed)
    return tuple(found.values())


def _taped_plan(library, layer: Layer, plan: Plan | None, tape: Tensor | None) -> Plan | None:
    """A sparse tape, in whole vectors of samples, may need more room than the dense one: then everything is done."""
    if plan is None or tape is None or library.glstm_sparse_tape_size(byref(layer), plan.pointer) < tape.numel():
        return plan
    return None


def require_memory(failed: int) -> None:
    if failed:
        raise MemoryError("the C engine of glstm could not get the memory it needs")
