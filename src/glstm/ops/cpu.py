"""The C engine of `glstm/native`, called with ctypes on raw pointers: float32 on the CPU.

Where k has enough zeros, only the open units are computed. That choice is made here, once for each table k.
"""

import ctypes
import os
import sysconfig
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import addressof, byref, c_double, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glstm.ops import cost, memory
from glstm.ops.contract import Inputs, Made
from glstm.ops.reference import GRU, RULES

SIDE_BY_SIDE = False
HOW = 2  # two numbers about a tape: how many threads wrote it, and on which path
DENSE, TOGETHER, ONE_BY_ONE = range(3)  # the paths: all units; open units only, of all samples or of one at a time
WIDEST = 16  # floats in the widest vector
FEW_MORE = 3  # samples: a single one may then be sparse up to an openness of a quarter
MOST_CHOICES = 16  # shapes of x for which the choice between dense and sparse is remembered, for each table


class Layer(ctypes.Structure):
    """One call of the engine: a layer, its inputs, and where its outputs go. `Layer` in native/engine.h."""

    _fields_ = [
        *((name, c_int32) for name in ("steps", "batch", "inputs", "hidden", "rule", "k_per_sample", "threads")),
        ("one_by_one", c_int32),
        *((name, c_void_p) for name in ("x", "w_ih", "w_hh", "b", "k", "h0", "c0", "h", "h_n", "c_n", "c", "tape")),
    ]


class Gaussian(ctypes.Structure):
    """A Gaussian gate, and where the gradients of its values go. `Gaussian` in native/engine.h."""

    _fields_ = [
        *((name, c_void_p) for name in ("times", "mu", "sigma", "d_mu", "d_sigma")),
        *((name, c_int32) for name in ("wide", "unused")),
    ]


class _Gradients(ctypes.Structure):
    _fields_ = [
        (name, c_void_p)
        for name in ("dh", "dh_n", "dc_n", "dc", "dx", "dw_ih", "dw_hh", "db", "dk", "dh0", "dc0", "gate")
    ]  # fmt: skip


@cache
def engine() -> ctypes.CDLL | None:
    """The engine, or None if it was not built. GLSTM_ENGINE is the path of another build, for work on the engine."""
    folders = (Path(__file__).parents[1], Path(sysconfig.get_path("platlib")) / "glstm")
    chosen = os.environ.get("GLSTM_ENGINE")
    for path in [Path(chosen)] if chosen else [folder / "native" / "engine.so" for folder in folders]:
        if path.exists():
            library = ctypes.CDLL(str(path))
            library.glstm_schedule.restype = c_void_p
            library.glstm_schedule.argtypes = [c_void_p, c_int32, c_int32]
            library.glstm_open_cells.restype = c_int64
            library.glstm_open_cells.argtypes = [c_void_p, c_int64]
            library.glstm_gaussian_exponents.restype = c_int64
            library.glstm_gaussian_exponents.argtypes = [c_void_p, *[c_double] * 2, *[c_int32] * 2, *[c_void_p] * 2]
            library.glstm_gaussian_table.argtypes = [*[c_void_p] * 3, c_double, c_int32, c_int32, c_void_p]
            library.glstm_gaussian_slopes.argtypes = [c_void_p, c_void_p, c_void_p, c_int32, c_int32]
            library.glstm_schedule_free.argtypes = [c_void_p]
            library.glstm_sparse_tape_size.restype = c_size_t
            library.glstm_schedule_counts.argtypes = [c_void_p, c_int32, c_void_p]
            return library
    return None


def status() -> str:
    """One sentence about the engine."""
    library = engine()
    if library is None:
        return (
            "glstm runs on its reference operator, exact but slow: no C compiler that can build its engine was there "
            "when it was installed; with GCC or clang there, install it again."
        )
    return f"glstm runs on its C engine, {library.glstm_lanes(-1)} floats at a time."


def usable(x: Tensor, k_h: Tensor | None) -> bool:
    return x.dtype is torch.float32 and x.is_cpu and k_h is None and engine() is not None


def has_rule(rule: str, x: Tensor, hidden: int) -> bool:
    return True


def limits() -> str:
    return f"computes float32 on the CPU with one table k ({status()})"


def empty_tape(x: Tensor, w_hh: Tensor) -> Tensor:
    steps, batch, _ = x.shape
    return x.new_empty(tape_size(steps, batch, w_hh.shape[1]))


def tape_size(steps, batch, hidden):
    """The size of the dense tape, and a little more for few samples: a sparse tape has whole vectors of them. The size
    must not depend on the path, which torch.compile does not know, and must be one formula for every batch. A sparse
    tape fills only its beginning; memory not written to is never allocated."""
    return steps * (batch + FEW_MORE) * 6 * ((hidden + WIDEST - 1) // WIDEST * WIDEST)


class Schedule:
    """Which unit is open when, for one table k (T, H)."""

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


class Sparse(NamedTuple):
    """How only open units are computed: each sample by itself with units in the lanes of a vector, or all together with
    samples in the lanes."""

    schedule: Schedule
    one_by_one: bool


_choices: dict[int, dict[tuple, Sparse | None]] = {}  # by the identity of a table k that never changes


def never_changes(k: Tensor) -> None:
    """The caller promises that this table never changes, so the choice made for it is used as long as it exists."""
    if id(k) not in _choices:
        _choices[id(k)] = {}
        weakref.finalize(k, _choices.pop, id(k), None).atexit = False


_forced: list[str] = []


@contextmanager
def forcing(path: str) -> Iterator[None]:
    """Take the path 'dense' always or, wherever possible, 'sparse', which may be said exactly, 'together' or 'one by
    one': for tests, and to measure them."""
    _forced.append(path)
    try:
        yield
    finally:
        _forced.pop()


def sparse_path(x_shape: Sequence[int], k: Tensor, everything: bool, taped: bool, threads: int) -> Sparse | None:
    """How the sparse path, which skips closed units, would compute this; or None if the dense path is faster.

    `everything`: c of every step is requested, which only the dense path writes.
    """
    steps, batch, inputs = x_shape
    forced = _forced[-1] if _forced else None
    if k.dim() == 3 or everything or 0 in x_shape or forced == "dense":
        return None
    library = engine()
    assert library is not None
    layer = Layer(steps, batch, inputs, k.shape[1], threads=max(1, threads))
    team = 1 if taped else library.glstm_team_size(byref(layer))
    shape = cost.Shape(steps, batch, inputs, k.shape[1], library.glstm_lanes(-1), max(1, threads), team)
    dense = cost.dense(shape, taped)
    if forced is None:
        open_cells = library.glstm_open_cells(k.data_ptr(), k.numel())
        if cost.sparse_at_least(shape, taped, open_cells) >= dense:
            return None  # without building a schedule that would not be used
    schedule = Schedule(k)
    time, one_by_one = cost.best_sparse(shape, taped, schedule.counts)
    if forced is None and time >= dense:
        return None
    return Sparse(schedule, one_by_one if forced in (None, "sparse") else forced == "one by one")


def _path_for(x: Tensor, k: Tensor, everything: bool, taped: bool, threads: int) -> Sparse | None:
    choices = _choices.get(id(k))
    if choices is None:
        return sparse_path(x.shape, k, everything, taped, threads)
    key = (x.shape, everything, taped, threads, *_forced)
    if key not in choices:
        if len(choices) >= MOST_CHOICES:
            choices.clear()
        choices[key] = sparse_path(x.shape, k, everything, taped, threads)
    return choices[key]


_NOTHING = torch.zeros(1)


def _pointer(tensor: Tensor | None) -> int | None:
    """An empty tensor has no address, and C may not even copy no bytes from there."""
    return None if tensor is None else tensor.data_ptr() or _NOTHING.data_ptr()


def everything(steps: int, batch: int, hidden: int) -> Tensor:
    """An empty array with one number for each step, sample and unit."""
    floats = steps * batch * hidden
    if floats < memory.LARGE:
        return torch.empty(steps, batch, hidden, dtype=torch.float32, device="cpu")
    return memory.borrow(floats).view(steps, batch, hidden)


def forward(inputs: Inputs, rule: str, sequence: bool, cells: bool, taped: bool) -> Made:
    library = engine()
    assert library is not None
    x, w_ih, w_hh, b, k, _, h0, c0 = map(plain, inputs)
    steps, batch, width = x.shape
    hidden, threads = w_hh.shape[1], torch.get_num_threads()
    path = None if rule == GRU else _path_for(x, k, cells, taped, threads)
    h = everything(steps, batch, hidden) if sequence else None
    c = everything(steps, batch, hidden) if cells else None
    h_n, c_n = torch.empty_like(h0), torch.empty_like(c0)
    tape = memory.borrow(tape_size(steps, batch, hidden)) if taped else None
    layer = Layer(
        steps, batch, width, hidden, RULES.index(rule), k.dim() == 3, threads,
        path is not None and path.one_by_one,
        *map(_pointer, (x, w_ih, w_hh, b, k, h0, c0, h, h_n, c_n, c, tape)),
    )  # fmt: skip
    if path is not None and tape is not None and not _fits(library, layer, path.schedule, tape):
        path = None
    failed = (
        library.glstm_dense_forward(byref(layer))
        if path is None
        else library.glstm_sparse_forward(byref(layer), path.schedule.pointer)
    )
    require_memory(failed)
    if path is None:
        return Made(h, h_n, c_n, c, tape, (threads, DENSE))
    return Made(h, h_n, c_n, c, tape, (threads, ONE_BY_ONE if path.one_by_one else TOGETHER), path.schedule)


def backward(
    gradients, inputs: Inputs, tape: Tensor, how, schedule, rule: str, need_x: bool, need_h0: bool,
    gate: Gaussian | None = None,
):  # fmt: skip
    """With a gate that made k, the gradients of its values are written where it says, and dk is None."""
    library = engine()
    assert library is not None
    threads, path = how
    x, w_ih, w_hh, _, k, _, h0, _ = map(plain, inputs)
    dh, dh_n, dc_n, dc = map(plain, gradients)
    dh_n, dc_n = (torch.zeros_like(h0) if part is None else part for part in (dh_n, dc_n))
    tape = plain(tape)
    layer = Layer(
        *x.shape, w_hh.shape[1], RULES.index(rule), k.dim() == 3, threads, path == ONE_BY_ONE,
        **dict(zip(("x", "w_ih", "w_hh", "k", "h0", "tape"), map(_pointer, (x, w_ih, w_hh, k, h0, tape)))),
    )  # fmt: skip
    dx, dh0 = torch.empty_like(x) if need_x else None, torch.empty_like(h0) if need_h0 else None
    dw_ih, dw_hh, dc0 = map(torch.empty_like, (w_ih, w_hh, h0))
    db = x.new_empty(w_hh.shape[0])
    inside = gate is not None and path == ONE_BY_ONE  # then no table is made
    dk = None if inside else torch.empty_like(k)
    found = _Gradients(*map(_pointer, (dh, dh_n, dc_n, dc, dx, dw_ih, dw_hh, db, dk, dh0, dc0)))
    if gate is not None and inside:
        found.gate = addressof(gate)
    if path != DENSE:
        schedule = Schedule(k) if schedule is None else schedule
        failed = library.glstm_sparse_backward(byref(layer), byref(found), schedule.pointer)
    else:
        failed = library.glstm_dense_backward(byref(layer), byref(found))
    require_memory(failed)
    if gate is not None and dk is not None:
        add_slopes(gate, k, dk)
        dk = None
    return dx, dw_ih, dw_hh, None if inputs.b is None else db, dk, None, dh0, dc0


def add_slopes(gate: Gaussian, k: Tensor, dk: Tensor) -> None:
    """The gradients of mu and sigma from that of the table (T, H), added where the gate says."""
    library = engine()
    assert library is not None
    require_memory(library.glstm_gaussian_slopes(byref(gate), k.data_ptr(), dk.data_ptr(), *k.shape))


def plain(tensor: Any) -> Any:
    """A contiguous tensor without torch's lazy negation; or None."""
    if tensor is None or (tensor.is_contiguous() and not tensor.is_neg()):
        return tensor
    if tensor.dtype is torch.float32 and tensor.numel() >= memory.LARGE:
        return memory.borrow(tensor.numel()).view(tensor.shape).copy_(tensor)
    return tensor.resolve_neg().contiguous()


def _fits(library, layer: Layer, schedule: Schedule, tape: Tensor) -> bool:
    """A sparse tape, in whole vectors of samples, may need more memory than the dense one: then the path is dense."""
    return library.glstm_sparse_tape_size(byref(layer), schedule.pointer) <= tape.numel()


def require_memory(failed: int) -> None:
    if failed:
        raise MemoryError("the C engine of glstm could not get the memory it needs")
