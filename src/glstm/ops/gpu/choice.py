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
from glstm.ops.gpu.scan import BLOCK_THREADS, SCHEDULERS, Shape, tiles_of
from glstm.ops.gpu.sparse import Kind, Room, Schedule

Counts = Sequence[Sequence[int]]  # of the schedule of each model

WORTH_COUNTING = 1056  # samples of all models: with fewer, nobody waits for the device
MANY_SAMPLES = 2 * WORTH_COUNTING  # of one model: with fewer, the dense path is faster however few units are open
GROWTH = 1.3  # of room for pairs, from one size to the next
SPARE = 1.03  # of the pairs of one call, what the next one may need
MOST_CALLS = 64  # that are remembered

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


class Last(NamedTuple):
    """What the last call of a kind needed, and a little more. The next one takes that, and does not wait for what is
    counted before it starts: counts come into the host's memory in the meantime."""

    room: Room
    counts: Tensor
    counted: torch.cuda.Event | None

    @classmethod
    def of(cls, room: Room, schedule: Schedule) -> "Last":
        counts = schedule.counts
        host = torch.empty(counts.shape, dtype=counts.dtype, pin_memory=counts.is_cuda)
        return cls(room, host, torch.cuda.Event() if counts.is_cuda else None)


class Chosen(NamedTuple):
    kind: Kind
    room: Room
    schedule: Schedule
    call: Call | None = None
    guess: Last | None = None


_last_calls: dict[tuple[Call, torch.device], Last] = {}


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
    last = None if _forced else _last_calls.pop((call, k.device), None)  # nobody else writes to its memory meanwhile
    if last is not None:
        last.counts.copy_(schedule.counts, non_blocking=True)
        if last.counted is not None:
            last.counted.record(torch.cuda.current_stream(k.device))
        return Chosen(call.kind(last.room), last.room, schedule, call, last)
    return _fitting(call, schedule, schedule.counts.tolist(), None)


def confirmed(chosen: Chosen) -> Chosen | None:
    """To be asked when the forward pass is on its way. If it has less room than it needs, another choice."""
    last, room = chosen.guess, chosen.room
    if last is None or chosen.call is None:
        return chosen
    if last.counted is not None:
        last.counted.synchronize()
    found = last.counts.tolist()
    fitting, needed = _fitting(chosen.call, chosen.schedule, found, last), room_for(found)
    enough = needed is not None and needed.blocks <= room.blocks and needed.pairs <= room.pairs
    return chosen if enough else fitting


def _fitting(call: Call, schedule: Schedule, counts: Counts, last: Last | None) -> Chosen | None:
    """What suffices for these counts. It is remembered, with a little more for the next call."""
    room = room_for(counts)
    if room is None or not call.kind(room).fits:
        return None
    if not _forced:
        if not worthwhile(call.shape, call.taped, call.multiprocessors, counts):
            return None
        while len(_last_calls) >= MOST_CALLS:
            del _last_calls[next(iter(_last_calls))]
        spare = Room(room.blocks, ceil(SPARE * room.pairs))
        _last_calls[call, schedule.counts.device] = (
            Last.of(spare, schedule) if last is None else last._replace(room=spare)
        )
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
SPILLING = 4  # blocks of slots from which on the way back has more numbers than registers: 1.5 times as long


class Cost(NamedTuple):
    """What a warp takes: it waits for itself more than for others."""

    launches: float
    step: float
    block: float  # a step of a block of 8 slots
    afresh: float  # a sum over closed units, for each of these
    span: float  # between two of which units open or close
    shared: float  # of a scheduler that a warp has alone, what each of several takes


COSTS = {  # without a tape; with one, for both passes
    False: Cost(100, 0.1, 0.05, 0.008, 0.7, 0.65),
    True: Cost(100, 0.45, 0.43, 0.0125, 3.4, 0.47),
}


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
    each *= (1.5 if taped and slots > 8 * (SPILLING - 1) else 1.0) * (1.6 if shape.exact else 1.0)
    # Warps that share a scheduler: two of them hardly disturb each other.
    sharing = shape.models * tiles_of(shape.batch) / (SCHEDULERS * multiprocessors)
    return cost.launches + each * max(1.0, cost.shared * sharing)
