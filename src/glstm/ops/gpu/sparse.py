"""Many sequences with few open units: a warp takes 8 samples through all steps, and computes open units only.

Tensors are float32, contiguous, and have a leading model axis M (x may be without it: then all models read the same).
Only the final state goes out. A schedule is made on the device, from k alone.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from glstm.ops.gpu.runtime import Kernels, Long, read_sources
from glstm.ops.gpu.scan import INLINE, TILE, tiles_of

LANES = 32
RECORD, COUNTS = 40, 8  # 32-bit words of a span's record, and of what is counted of a model: see slots.cuh
SPANS, PAIRS, SLOTS, BLOCK_STEPS, AFRESH = range(5)  # among the counts
MOST_BLOCKS = 4  # of 8 slots each: as many as a set of 32 bits has
LARGEST = 32 * LANES  # units that a warp keeps a bit of
STATIC = 48 * 1024  # bytes of shared memory that a kernel may declare
WARPS = {1: 16, 2: 12, 3: 10, 4: 8}  # that the registers of a multiprocessor shall suffice for, by blocks of slots
CHUNK = 8  # pairs of the tape that backward copies at once: see sparse_sums.cuh
SOURCES = {
    "schedule": ("schedule.cu",),
    "forward": ("sparse.cuh", "sparse.cu"),
    "backward": ("sparse.cuh", "sparse_sums.cuh", "sparse_backward.cu", "sparse_finish.cu"),
}
THREADS = 256  # of kernels whose threads have nothing to do with each other
STEPS = 4  # that a warp of finish_k takes


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

    def kernels(self, part: str, **more: int) -> Kernels:
        return _kernels(
            part, H=self.hidden, D=self.inputs, NB=self.blocks, LOGISTIC=self.candidate == "sigmoid", EXACT=self.exact,
            WARPS=WARPS[self.blocks], **more,
        )  # fmt: skip

    @property
    def row(self) -> int:
        """Floats that the tape has of a pair, for the 8 samples of a warp."""
        return 16 * (2 + self.exact)

    @property
    def fits(self) -> bool:
        """Whether the states of closed units, the weights between slots and a piece of the tape fit into shared
        memory."""
        weights = 16 * self.blocks**2 * (1 + self.exact) * LANES
        chunks = (4 if self.blocks == 1 else 8) * CHUNK * 4 * self.row
        return self.blocks <= MOST_BLOCKS and 2 * 4 * TILE * self.hidden + weights + chunks + 4 * LANES <= STATIC


@cache
def _kernels(part: str, **constants: int) -> Kernels:
    return Kernels(read_sources("slots.cuh", *SOURCES[part]), constants)


def schedule_of(k: Tensor) -> Schedule:
    models, steps, hidden = k.shape
    run = _kernels("schedule", H=hidden, D=0, LOGISTIC=False, EXACT=False)
    masks = k.new_empty(models, steps, -(-hidden // LANES), dtype=torch.int32)
    of_steps, moments = masks.new_empty(models, steps), masks.new_empty(models, 2, hidden)
    records, counts = masks.new_empty(models, steps, RECORD), masks.new_empty(models, COUNTS)
    run.launch("find_open", (-(-steps * LANES // THREADS), models), THREADS, k, masks, of_steps, steps)
    run.launch("make_schedule", (1, models), LANES, masks, of_steps, records, counts, moments, steps)
    return Schedule(of_steps, records, counts, moments)


def _tape_parts(kind: Kind, models: int, batch: int, pairs: int) -> list[int]:
    """How many floats the tape has of pairs, and of the final h; and how many more, which say what kind of tape it is.

    The remainder of its size by 16 is odd: tapes of `scan.py` have even sizes.
    """
    final = models * tiles_of(batch) * kind.hidden * TILE
    return [kind.row * pairs * tiles_of(batch), final, -final % 16 + 4 * kind.blocks - 3 + 2 * kind.exact]


def kind_of_tape(tape: Tensor, x: Tensor, w_hh: Tensor, candidate: str) -> tuple[Kind, Room]:
    """How a tape of this path was written."""
    code = (tape.numel() % 16 - 1) // 2
    models, batch, hidden = len(w_hh), x.shape[-2], w_hh.shape[-1]
    kind = Kind(hidden, x.shape[-1], code // 2 + 1, candidate, bool(code % 2))
    _, *others = _tape_parts(kind, models, batch, 0)
    return kind, Room(kind.blocks, (tape.numel() - sum(others)) // (kind.row * tiles_of(batch)))


def possible(x: Tensor, k: Tensor, sequence: bool, cells: bool) -> bool:
    """Whether this path computes such a call; whether the schedule fits is another question."""
    return k.dim() == 3 and not sequence and not cells and x.shape[-1] <= INLINE and k.shape[-1] <= LARGEST


def _by_pair(w_hh: Tensor) -> Tensor:
    """(M, H, H, 4): the four gates' weights between two units side by side."""
    models, _, hidden = w_hh.shape
    return w_hh.view(models, 4, hidden, hidden).permute(0, 2, 3, 1).contiguous()


def _own_numbers(x: Tensor) -> Long:
    return Long(x[0].numel() if x.dim() == 4 else 0)


def forward(kind: Kind, room: Room, schedule: Schedule, x, w_ih, w_hh, b, k, h0, c0, taped: bool):
    """Final h, final c, tape or None."""
    models, steps, _ = k.shape
    batch = x.shape[-2]
    h_n, c_n = torch.empty_like(h0), torch.empty_like(c0)
    sizes = _tape_parts(kind, models, batch, room.pairs)
    tape = x.new_empty(sum(sizes)) if taped else None
    rows, final, _ = [None] * 3 if tape is None else tape.split(sizes)
    schedule.weights = _by_pair(w_hh)
    kind.kernels("forward", TAPED=taped).launch(
        "sparse_forward", (tiles_of(batch), models), LANES,
        x, w_ih, b, schedule.weights, k, h0, c0, h_n, c_n, rows, final, schedule.records, schedule.counts,
        _own_numbers(x), Long(room.pairs), steps, batch,
    )  # fmt: skip
    return h_n, c_n, tape


def backward(kind: Kind, room: Room, schedule: Schedule, dh_n, dc_n, x, w_ih, w_hh, k, h0, tape, need_x, need_h0):
    """Gradients of x or None, w_ih, w_hh, b, k, h0 (which means nothing unless it is needed), c0."""
    models, steps, hidden = k.shape
    batch, inputs, tiles = x.shape[-2], kind.inputs, tiles_of(x.shape[-2])
    rows, final, _ = tape.split(_tape_parts(kind, models, batch, room.pairs))
    weights = _by_pair(w_hh) if schedule.weights is None else schedule.weights
    parts = x.new_empty(models, tiles, hidden, hidden + inputs + 1, 4)
    whole, firsts = x.new_empty(models, tiles, dtype=torch.int32), x.new_empty(models, dtype=torch.int64)
    of_pairs = x.new_empty(room.pairs * tiles)
    dx = x.new_zeros(models, steps, batch, inputs) if need_x else None
    dh0, dc0 = torch.empty_like(h0), torch.empty_like(h0)
    run = kind.kernels("backward", NEED_X=need_x)
    run.launch(
        "sparse_backward", (tiles, models), LANES,
        dh_n, dc_n, x, w_ih, weights, k, h0, rows, final, schedule.records, schedule.counts,
        parts, whole, firsts, of_pairs, dx, dh0, dc0, _own_numbers(x), Long(room.pairs), steps, batch, int(need_h0),
    )  # fmt: skip
    dw_ih, dw_hh, db = torch.empty_like(w_ih), torch.empty_like(w_hh), w_hh.new_empty(w_hh.shape[:2])
    dk = torch.empty_like(k)
    numbers = models * hidden * (hidden + inputs + 1)
    run.launch(
        "finish_weights", (-(-numbers // THREADS), 1), THREADS,
        parts, whole, schedule.moments, dw_ih, dw_hh, db, models, tiles,
    )  # fmt: skip
    run.launch(
        "finish_k", (-(-steps * LANES // (STEPS * THREADS)), models), THREADS,
        of_pairs, schedule.records, schedule.steps, schedule.counts, firsts, dk, steps, tiles,
    )  # fmt: skip
    return dx.sum(0) if dx is not None and x.dim() == 3 else dx, dw_ih, dw_hh, db, dk, dh0, dc0
