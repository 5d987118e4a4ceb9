"""Whether a call takes the sparse path, which computes open units only: by estimated time.

To know how many units are open, the host has to wait for the device. It does so only where the sparse path may gain,
and where waiting is allowed: not while a CUDA graph is captured. There the sparse path is taken if the caller has said
how much room it may need (`planned`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, log
from typing import NamedTuple

import torch
from torch import Tensor

from glstm.ops.gpu import sparse
from glstm.ops.gpu.scan import SCHEDULERS, Shape, tiles_of
from glstm.ops.gpu.sparse import Kind, Room, Schedule

Chosen = tuple[Kind, Room, Schedule]
Counts = Sequence[Sequence[int]]  # of the schedule of each model

BLOCK_THREADS = 256  # a block of the dense path with so many has the registers of a multiprocessor
WORTH_COUNTING = 1056  # samples of all models: with fewer, nobody waits for the device
MANY_SAMPLES = 2 * WORTH_COUNTING  # of one model: with fewer, the dense path is faster however few units are open
GROWTH = 1.3  # of room for pairs, from one size to the next

_forced: list[str] = []


@dataclass
class Plan:
    room: Room | None
    used: bool = False  # whether a call has taken the sparse path


_plans: list[Plan] = []


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
def planned(room: Room | None) -> Iterator[Plan]:
    """Never wait for the device: take the sparse path with this room, or the dense path if it is None.

    The caller knows that all tables k fit, now and whenever a graph that was captured here is replayed. Where one does
    not fit, outputs are NaN.
    """
    _plans.append(plan := Plan(room))
    try:
        yield plan
    finally:
        _plans.pop()


def choose(
    shape: Shape | None, x: Tensor, k: Tensor, candidate: str, sequence: bool, cells: bool, taped: bool,
    multiprocessors: int,
) -> Chosen | None:  # fmt: skip
    """How the sparse path computes a call; None: the dense path does. `shape` is the dense path's."""
    if shape is None or not sparse.possible(x, k, sequence, cells) or _forced[-1:] == ["dense"]:
        return None
    if _plans:
        return _as_planned(_plans[-1], shape, x, k, candidate)
    if not _forced and not (shape.models * shape.batch >= WORTH_COUNTING and may_wait(k)):
        return None
    schedule = sparse.schedule_of(k)
    counts = schedule.counts.tolist()
    room = room_for(counts)
    if not _forced and not worthwhile(shape, taped, multiprocessors, counts):
        room = None
    kind = None if room is None else _kind(shape, x, room, candidate)
    return (kind, room, schedule) if kind is not None and room is not None and kind.fits else None


def _kind(shape: Shape, x: Tensor, room: Room, candidate: str) -> Kind:
    return Kind(shape.hidden, x.shape[-1], room.blocks, candidate, shape.exact)


def _as_planned(plan: Plan, shape: Shape, x: Tensor, k: Tensor, candidate: str) -> Chosen | None:
    if plan.room is None or not (kind := _kind(shape, x, plan.room, candidate)).fits:
        return None
    plan.used = True
    return kind, plan.room, sparse.schedule_of(k)


def may_wait(k: Tensor) -> bool:
    """Whether the host may wait for the device: a capture does not allow it, and whoever makes one ready says so."""
    return not k.is_cuda or not (torch.cuda.is_current_stream_capturing() or torch.cuda.get_sync_debug_mode())


def room_for(counts: Counts) -> Room | None:
    """What schedules with these counts need; None: more slots than there are."""
    blocks = -(-max(count[sparse.SLOTS] for count in counts) // 8)
    return Room(max(blocks, 1), sum(count[sparse.PAIRS] for count in counts)) if blocks <= sparse.MOST_BLOCKS else None


def room_to_grow(counts: Counts, before: Room | None) -> Room | None:
    """The same, with a slot to spare and room for more pairs; the one before, as long as it suffices and is not much
    too large. So a graph that was captured for it can be replayed again."""
    blocks = -(-(1 + max(count[sparse.SLOTS] for count in counts)) // 8)
    pairs = 1 + sum(count[sparse.PAIRS] for count in counts)
    if blocks > sparse.MOST_BLOCKS:
        return None
    if before and before.blocks == blocks and pairs <= before.pairs <= GROWTH**2 * pairs:
        return before
    return Room(blocks, ceil(GROWTH ** ceil(log(pairs, GROWTH) + 0.25)))


# Estimates in microseconds, from calls of ten shapes on an H200. Only their ratio matters.
SPILLING = 3  # blocks of slots from which on the way back has more numbers than registers: 1.9 times as long


class Cost(NamedTuple):
    """What a warp takes: it waits for itself more than for others."""

    launches: float
    step: float
    block: float  # a step of a block of 8 slots
    afresh: float  # a sum over closed units, for each of these
    span: float  # between two of which units open or close


COSTS = {False: Cost(150, 0.2, 0.12, 0.011, 1.2), True: Cost(400, 0.6, 0.38, 0.032, 5.8)}  # with a tape: both passes


def worthwhile(shape: Shape, taped: bool, multiprocessors: int, counts: Counts) -> bool:
    return sparse_time(shape, taped, multiprocessors, counts) < dense(shape, taped, multiprocessors)


def dense(shape: Shape, taped: bool, multiprocessors: int) -> float:
    (blocks, models), threads = shape.grid
    together = max(1, BLOCK_THREADS // threads) * multiprocessors
    rounds = -(-blocks * models // together)
    step = (2.0 if shape.ranks == 1 or rounds > 1 else 1.2) if taped else 0.4
    return (350 if taped else 70) + rounds * shape.steps * step * (3.0 if shape.exact else 1.0)


def sparse_time(shape: Shape, taped: bool, multiprocessors: int, counts: Counts) -> float:
    """From what was counted of each model, on average."""
    blocks, afresh, spans = (
        sum(count[at] for count in counts) / len(counts) for at in (sparse.BLOCK_STEPS, sparse.AFRESH, sparse.SPANS)
    )
    cost, slots = COSTS[taped], max(count[sparse.SLOTS] for count in counts)
    each = cost.block * blocks + cost.afresh * afresh * shape.hidden + cost.span * spans + cost.step * shape.steps
    each *= (1.9 if taped and slots > 8 * (SPILLING - 1) else 1.0) * (1.5 if shape.exact else 1.0)
    # Warps that share a scheduler: two of them hardly disturb each other.
    sharing = shape.models * tiles_of(shape.batch) / (SCHEDULERS * multiprocessors)
    return cost.launches + each * max(1.0, 0.55 * sharing)
