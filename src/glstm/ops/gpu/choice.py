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
from glstm.ops.gpu.scan import Shape, tiles_of
from glstm.ops.gpu.sparse import Kind, Room, Schedule

Counts = Sequence[Sequence[int]]  # of the schedule of each model

SCHEDULERS = 4  # of a multiprocessor: each runs one warp at a time
BLOCK_THREADS = 256  # a block of the dense path with so many has the registers of a multiprocessor
WORTH_COUNTING = 1056  # samples of all models: with fewer, nobody waits for the device
MANY_SAMPLES = 2 * WORTH_COUNTING  # of one model: with fewer, the dense path is faster however few units are open
GROWTH = 1.3  # of room for pairs, from one size to the next
SPARE = 1.03  # of the pairs of one call, what the next one may need
MOST_ROOMS = 64

_forced: list[str] = []


class Call(NamedTuple):
    """What is known of a call without its numbers."""

    shape: Shape
    inputs: int
    candidate: str
    taped: bool
    multiprocessors: int

    def kind(self, room: Room) -> Kind:
        shape = self.shape
        warps = sparse.warps_for(room.blocks, -(-shape.models * shape.tiles // self.multiprocessors))
        return Kind(shape.hidden, self.inputs, room.blocks, self.candidate, shape.exact, warps)


class Guess(NamedTuple):
    """The room that a call like the last one needs: the host does not wait for what is counted before it starts. The
    counts come into the host's memory in the meantime."""

    call: Call
    counts: Tensor
    counted: torch.cuda.Event | None


class Chosen(NamedTuple):
    kind: Kind
    room: Room
    schedule: Schedule
    guess: Guess | None = None


_rooms: dict[tuple[Call, torch.device], Room | None] = {}  # that the last calls of each kind needed; None: dense


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
    call = Call(shape, x.shape[-1], candidate, taped, multiprocessors)
    if _plans:
        return _as_planned(_plans[-1], call, k)
    if not _forced and not (shape.models * shape.batch >= WORTH_COUNTING and may_wait(k)):
        return None
    schedule = sparse.schedule_of(k)
    room = None if _forced else _rooms.get((call, k.device))
    if room is not None:
        counts = schedule.counts.new_empty(schedule.counts.shape, device="cpu", pin_memory=k.is_cuda)
        counts.copy_(schedule.counts, non_blocking=True)
        counted = torch.cuda.Event() if k.is_cuda else None
        if counted is not None:
            counted.record(torch.cuda.current_stream(k.device))
        return Chosen(call.kind(room), room, schedule, Guess(call, counts, counted))
    return _fitting(call, schedule, schedule.counts.tolist())


def confirmed(chosen: Chosen) -> Chosen | None:
    """To be asked when the forward pass is on its way. If it has less room than it needs, another choice."""
    if chosen.guess is None:
        return chosen
    call, counts, counted = chosen.guess
    if counted is not None:
        counted.synchronize()
    found = counts.tolist()
    fitting, needed, room = _fitting(call, chosen.schedule, found), room_for(found), chosen.room
    enough = needed is not None and needed.blocks <= room.blocks and needed.pairs <= room.pairs
    return chosen if enough else fitting


def _fitting(call: Call, schedule: Schedule, counts: Counts) -> Chosen | None:
    """What suffices for these counts; it is remembered, with a little more for next time."""
    room = room_for(counts)
    if room is None or not call.kind(room).fits:
        return None
    if not _forced:
        shape = call.shape
        worth = worthwhile(shape, call.taped, call.multiprocessors, counts)
        while len(_rooms) >= MOST_ROOMS:
            del _rooms[next(iter(_rooms))]
        key = call, schedule.counts.device
        _rooms[key] = Room(room.blocks, ceil(SPARE * room.pairs)) if worth else None
        if not worth:
            return None
    return Chosen(call.kind(room), room, schedule)


def _as_planned(plan: Plan, call: Call, k: Tensor) -> Chosen | None:
    if plan.room is None or not (kind := call.kind(plan.room)).fits:
        return None
    plan.used = True
    return Chosen(kind, plan.room, sparse.schedule_of(k))


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
