"""Many sequences with few open units: a warp takes 8 samples through all steps, and computes open units only.

Tensors are float32, contiguous, and have a leading model axis M (x may be without it: then all models read the same).
Only the final state goes out. A schedule is made on the device, from k alone.
"""

from dataclasses import dataclass
from functools import cache, lru_cache

import torch
from torch import Tensor

from glstm.ops.gpu.runtime import Kernels, Prepared, read_sources
from glstm.ops.gpu.scan import INLINE, TILE, tiles_of

LANES = 32
RECORD, COUNTS = 40, 8  # 32-bit words of a span's record, and of what is counted of a model: see slots.cuh
SPANS, PAIRS, SLOTS, BLOCK_STEPS, AFRESH = range(5)  # among the counts
MOST_BLOCKS = 4  # of 8 slots each: as many as a set of 32 bits has
LARGEST = 32 * LANES  # units that a warp keeps a bit of
STATIC = 48 * 1024  # bytes of shared memory that a kernel may declare
# Warps that the registers of a multiprocessor shall suffice for, by blocks of slots: the fewest that run all at once.
WARPS = {1: (8, 12, 16), 2: (8, 12), 3: (8, 12), 4: (8,)}
CHUNK = 8  # pairs of the tape that backward copies at once: see sparse_sums.cuh
SOURCES = {
    "schedule": ("schedule.cu",),
    "forward": ("sparse.cuh", "sparse.cu"),
    "backward": ("sparse.cuh", "sparse_sums.cuh", "sparse_changes.cuh", "sparse_backward.cu", "sparse_finish.cu"),
}
THREADS = 256  # of kernels whose threads have nothing to do with each other
STEPS = 4  # that a warp of finish_k takes
GROUPS, MANY_TILES = 8, 64  # threads that share the tiles of a sum, if there are so many
MOST_PLANS = 512


@dataclass
class Schedule:
    """When each unit is open, and in which slot, for tables k (M, T, H); on the device."""

    steps: Tensor  # (M, T): the number of each step's span
    records: Tensor  # (M, T, RECORD): of spans; there are at most as many as steps
    counts: Tensor  # (M, COUNTS)
    moments: Tensor  # (M, 2, H): when each unit opened first, and closed last
    weights: Tensor | None = None  # w_hh as the forward pass read it: the backward pass reads the same


@dataclass(frozen=True)
class Room:
    """What a launch allows for: blocks of 8 slots, and pairs of a step and an open unit, of all models together. If a
    schedule needs more, outputs are NaN."""

    blocks: int
    pairs: int


@dataclass(frozen=True)
class Kind:
    """What decides which kernels run."""

    hidden: int
    inputs: int
    blocks: int
    candidate: str
    exact: bool
    warps: int = 8

    def kernels(self, part: str, **more: int) -> Kernels:
        return _kernels(
            part, H=self.hidden, D=self.inputs, NB=self.blocks, LOGISTIC=self.candidate == "sigmoid", EXACT=self.exact,
            WARPS=self.warps, **more,
        )  # fmt: skip

    @property
    def row(self) -> int:
        """Floats that the tape has of a pair, for the 8 samples of a warp."""
        return 16 * (2 + self.exact)

    @property
    def fits(self) -> bool:
        """Whether the states of closed units, the weights between slots and what comes ahead fit into shared memory."""
        weights = 16 * 2 * -(-self.blocks // 2) * self.blocks * (1 + self.exact) * LANES
        both = 2 * 4 * TILE * self.hidden + weights
        inputs = 4 * 4 * (TILE * self.inputs + -(-self.hidden // 4) * 4)
        chunks = (4 if self.blocks == 1 or (self.exact and self.blocks < 4) else 8) * CHUNK * 4 * self.row
        forward, backward = both + inputs + 8 * 4 * RECORD, both + chunks + 4 * LANES + 4 * 4 * RECORD
        return self.blocks <= MOST_BLOCKS and max(forward, backward) <= STATIC


def warps_for(blocks: int, needed: int) -> int:
    """Registers are shared by so many warps of a multiprocessor, if `needed` shall run at the same time."""
    return next((warps for warps in WARPS[blocks] if warps >= needed), WARPS[blocks][-1])


@cache
def _kernels(part: str, **constants: int) -> Kernels:
    return Kernels(read_sources("slots.cuh", *SOURCES[part]), constants, crowded=part != "schedule")


@lru_cache(MOST_PLANS)
def _launch(
    kernels: Kernels, name: str, device: torch.device, grid: tuple[int, int], threads: int, pointers: int, *numbers: int
) -> Prepared:
    """Prepared once for each shape. What is 64 bits wide, a pointer or not, is given at each call."""
    return Prepared(kernels.starter(name, device, grid, threads, 0), pointers, *numbers)


def _addresses(*tensors: Tensor | None) -> list[int]:
    return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]


def schedule_of(k: Tensor) -> Schedule:
    models, steps, hidden = k.shape
    sizes = [RECORD * models * steps, models * steps, COUNTS * models, 2 * hidden * models]
    memory = k.new_empty(sum(sizes) + models * steps * -(-hidden // LANES), dtype=torch.int32)
    records, of_steps, counts, moments, masks = memory.split([*sizes, memory.numel() - sum(sizes)])
    run, many = _schedule_kernels(hidden), (-(-steps * LANES // THREADS), models)
    _launch(run, "find_open", k.device, many, THREADS, 3, steps)(*_addresses(k, masks, of_steps))
    make = _launch(run, "make_schedule", k.device, (1, models), LANES, 5, steps)
    make(*_addresses(masks, of_steps, records, counts, moments))
    return Schedule(
        of_steps.view(models, steps), records.view(models, steps, RECORD), counts.view(models, COUNTS), moments
    )


def _schedule_kernels(hidden: int) -> Kernels:
    return _kernels("schedule", H=hidden, D=0, LOGISTIC=False, EXACT=False)


def _ordered(w_hh: Tensor) -> Tensor:
    """(M, H, H, 4): the four gates' weights between two units side by side."""
    models, _, hidden = w_hh.shape
    ordered = torch.empty_like(w_hh)
    grid = (-(-models * hidden * hidden // THREADS), 1)
    order = _launch(_schedule_kernels(hidden), "order_weights", w_hh.device, grid, THREADS, 2, models)
    order(*_addresses(w_hh, ordered))
    return ordered


def _tape_parts(kind: Kind, models: int, batch: int, pairs: int) -> list[int]:
    """How many floats the tape has of pairs, and of the final h; and how many more, which say what kind of tape it is.

    The remainder of its size by 16 is odd: tapes of `scan.py` have even sizes.
    """
    final = models * tiles_of(batch) * kind.hidden * TILE
    return [kind.row * pairs * tiles_of(batch), final, -final % 16 + 4 * kind.blocks - 3 + 2 * kind.exact]


def kind_of_tape(tape: Tensor, x: Tensor, w_hh: Tensor, candidate: str, multiprocessors: int) -> tuple[Kind, Room]:
    """How a tape of this path was written."""
    code = (tape.numel() % 16 - 1) // 2
    models, batch, hidden = len(w_hh), x.shape[-2], w_hh.shape[-1]
    blocks = code // 2 + 1
    warps = warps_for(blocks, -(-models * tiles_of(batch) // multiprocessors))
    kind = Kind(hidden, x.shape[-1], blocks, candidate, bool(code % 2), warps)
    _, *others = _tape_parts(kind, models, batch, 0)
    return kind, Room(kind.blocks, (tape.numel() - sum(others)) // (kind.row * tiles_of(batch)))


def possible(x: Tensor, k: Tensor, sequence: bool, cells: bool) -> bool:
    """Whether this path computes such a call; whether the schedule fits is another question."""
    return k.dim() == 3 and not sequence and not cells and x.shape[-1] <= INLINE and k.shape[-1] <= LARGEST


def _own_numbers(x: Tensor) -> int:
    return x.numel() // len(x) if x.dim() == 4 else 0


def _in_place(tensor: Tensor) -> Tensor:
    """Where rows can be copied 16 bytes at a time."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def forward(kind: Kind, room: Room, schedule: Schedule, x, w_ih, w_hh, b, k, h0, c0, taped: bool):
    """Final h, final c, tape or None."""
    k = _in_place(k)
    models, steps, _ = k.shape
    batch = x.shape[-2]
    h_n, c_n = torch.empty_like(h0), torch.empty_like(c0)
    sizes = _tape_parts(kind, models, batch, room.pairs)
    tape = x.new_empty(sum(sizes)) if taped else None
    schedule.weights = _ordered(w_hh)
    run, grid = kind.kernels("forward", TAPED=taped), (tiles_of(batch), models)
    _launch(run, "sparse_forward", x.device, grid, LANES, 15, steps, batch)(
        *_addresses(x, w_ih, b, schedule.weights, k, h0, c0, h_n, c_n), *_places(tape, sizes),
        *_addresses(schedule.records, schedule.counts), _own_numbers(x), room.pairs,
    )  # fmt: skip
    return h_n, c_n, tape


def _places(tape: Tensor | None, sizes: list[int]) -> tuple[int, int]:
    """Of a tape's rows, and of the final h."""
    return (0, 0) if tape is None else (tape.data_ptr(), tape.data_ptr() + 4 * sizes[0])


def backward(kind: Kind, room: Room, schedule: Schedule, dh_n, dc_n, x, w_ih, w_hh, k, h0, tape, need_x, need_h0):
    """Gradients of x or None, w_ih, w_hh, b, k, h0 (which means nothing unless it is needed), c0."""
    models, steps, hidden = k.shape
    batch, inputs, tiles = x.shape[-2], kind.inputs, tiles_of(x.shape[-2])
    weights = _ordered(w_hh) if schedule.weights is None else schedule.weights
    numbers = models * hidden * (hidden + inputs + 1)
    # Of every warp its part of the weights' gradient, and of dk; where models begin, and whether parts are whole.
    sizes = [4 * tiles * numbers, room.pairs * tiles, 2 * models + 2]
    scratch = x.new_empty(sum(sizes) + tiles * models)
    parts = scratch.data_ptr()
    of_pairs, firsts = parts + 4 * sizes[0], parts + 4 * (-(-sum(sizes[:2]) // 2) * 2)
    whole = firsts + 8 * models
    dx = x.new_zeros(models, steps, batch, inputs) if need_x else None
    dh0, dc0 = torch.empty_like(h0), torch.empty_like(h0)
    dw_ih, dw_hh, db, dk = (w_hh.new_empty(size) for size in (w_ih.shape, w_hh.shape, w_hh.shape[:2], k.shape))
    run, on = kind.kernels("backward", NEED_X=need_x), x.device
    _launch(run, "sparse_backward", on, (tiles, models), LANES, 20, steps, batch, int(need_h0))(
        *_addresses(dh_n, dc_n, x, w_ih, weights, k, h0), *_places(tape, _tape_parts(kind, models, batch, room.pairs)),
        *_addresses(schedule.records, schedule.counts), parts, whole, firsts, of_pairs, *_addresses(dx, dh0, dc0),
        _own_numbers(x), room.pairs,
    )  # fmt: skip
    groups = GROUPS if tiles >= MANY_TILES else 1
    grid = (-(-numbers * groups // THREADS), 1)
    _launch(run, "finish_weights", on, grid, THREADS, 6, models, tiles, groups)(
        parts, whole, *_addresses(schedule.moments, dw_ih, dw_hh, db)
    )
    grid = (-(-steps * LANES * groups // (STEPS * THREADS)), models)
    _launch(run, "finish_k", on, grid, THREADS, 6, steps, tiles, groups)(
        of_pairs, *_addresses(schedule.records, schedule.steps, schedule.counts), firsts, dk.data_ptr()
    )
    return dx.sum(0) if dx is not None and x.dim() == 3 else dx, dw_ih, dw_hh, db, dk, dh0, dc0
