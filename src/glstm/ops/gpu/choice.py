"""Whether a call takes the sparse path, which computes open units only: by estimated time.

To know how many units are open, the host has to wait for the device. It does so only where the sparse path may gain, and
where waiting is allowed: not while a CUDA graph is captured. There the sparse path is taken if the caller has said how
much room it may need (`planned`).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from glstm.ops.gpu import sparse
from glstm.ops.gpu.scan import Shape
from glstm.ops.gpu.sparse import Kind, Room, Schedule

Chosen = tuple[Kind, Room, Schedule]

SCHEDULERS = 4  # of a multiprocessor: each runs one warp at a time
BLOCK_THREADS = 256  # a block of the dense path with so many has the registers of a multiprocessor

_forced: list[str] = []
_planned: list[Room | None] = []


@contextmanager
def forcing(path: str) -> Iterator[None]:
    """Take the path 'dense' always or, wherever possible, 'sparse': for tests, to measure both, and where the size of a
    tape must not depend on k."""
    _forced.append(path)
    try:
        yield
    finally:
        _forced.pop()


@contextmanager
def planned(room: Room | None) -> Iterator[None]:
    """Never wait for the device: take the sparse path with this room, or the dense path if it is None.

    The caller knows that all tables k fit, now and whenever a graph that was captured here is replayed. Where one does
    not fit, outputs are NaN.
    """
    _planned.append(room)
    try:
        yield
    finally:
        _planned.pop()


def choose(
    shape: Shape | None, x: Tensor, k: Tensor, candidate: str, sequence: bool, cells: bool, taped: bool,
    multiprocessors: int,
) -> Chosen | None:  # fmt: skip
    """How the sparse path computes a call; None: the dense path does. `shape` is the dense path's."""
    if shape is None or not sparse.possible(x, k, sequence, cells) or _forced[-1:] == ["dense"]:
        return None

    def made(room: Room, schedule: Schedule) -> Chosen | None:
        kind = Kind(shape.hidden, x.shape[-1], room.blocks, candidate, shape.exact)
        return (kind, room, schedule) if kind.fits else None

    if _planned:
        room = _planned[-1]
        return None if room is None else made(room, sparse.schedule_of(k))
    if not _forced and (least(shape, taped, multiprocessors) >= dense(shape, taped, multiprocessors) or not may_wait(k)):
        return None
    schedule = sparse.schedule_of(k)
    counts = schedule.counts.tolist()
    room = room_for(counts)
    if room is None or (
        not _forced and sparse_time(shape, taped, multiprocessors, counts) >= dense(shape, taped, multiprocessors)
    ):
        return None
    return made(room, schedule)


def may_wait(k: Tensor) -> bool:
    """Whether the host may wait for the device: a capture does not allow it, and whoever makes one ready says so."""
    return not k.is_cuda or not (torch.cuda.is_current_stream_capturing() or torch.cuda.get_sync_debug_mode())


def room_for(counts: list[list[int]]) -> Room | None:
    """What schedules with these counts need, a row a model; None: more slots than there are."""
    blocks = -(-max(count[sparse.SLOTS] for count in counts) // 8)
    return Room(max(blocks, 1), sum(count[sparse.PAIRS] for count in counts)) if blocks <= sparse.MOST_BLOCKS else None


# Estimates in microseconds on an H200. Only their ratio matters.


def dense(shape: Shape, taped: bool, multiprocessors: int) -> float:
    (blocks, models), threads = shape.grid
    together = max(1, BLOCK_THREADS // threads) * multiprocessors
    rounds = -(-blocks * models // together)
    step = (6.0 if shape.exact else 2.0) if taped else (1.2 if shape.exact else 0.4)
    return rounds * shape.steps * step


def sparse_time(shape: Shape, taped: bool, multiprocessors: int, counts: list[list[int]]) -> float:
    """From what was counted of each model, on average."""
    blocks, openings, spans = (
        sum(count[at] for count in counts) / len(counts)
        for at in (sparse.BLOCK_STEPS, sparse.OPENINGS, sparse.SPANS)
    )
    each = (0.24 if taped else 0.09) * blocks + (1.2 if taped else 0.4) * openings * shape.hidden / 110 + 0.3 * spans
    return least(shape, taped, multiprocessors) + each * (1.5 if shape.exact else 1.0) * waiting(shape, multiprocessors)


def least(shape: Shape, taped: bool, multiprocessors: int) -> float:
    """Where no unit ever opens: launches, the schedule, and sums over the warps' gradients."""
    parts = shape.models * shape.tiles * shape.hidden**2 * 16e-6  # megabytes
    return 150.0 + 0.05 * shape.steps + (parts if taped else 0)


def waiting(shape: Shape, multiprocessors: int) -> float:
    """Warps that share a scheduler; with less than one, a step takes as long as with one."""
    return max(1.0, shape.models * shape.tiles / (SCHEDULERS * multiprocessors))
