"""A whole sequence in one kernel, forward and backward: 8 or 4 samples on one multiprocessor, or on a cluster of them.

Tensors are float32, contiguous, and have a leading model axis M (x may be without it: then all models read the same).
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from glstm.ops.gpu.products import finite, multiply, rows_of, share_of
from glstm.ops.gpu.runtime import Kernels, Long, read_sources
from glstm.ops.reference import GRU

INLINE = 4  # up to so many inputs, the kernel multiplies them itself
SCHEDULERS = 4  # of a multiprocessor: each runs one warp at a time
TILE = 8  # samples that a matrix instruction takes
AHEAD = {"forward": 4, "backward": 4}  # steps before which memory is asked for what a step reads, where there is room
BLOCK_THREADS = 256  # a block with so many has the registers of a multiprocessor
END = 16  # numbers after h in a row of the weights' gradient's right side: x, 1, zeros
FEW_ROWS = 16384  # up to so many steps x samples, rows are in float32: rounding averages out less, and it costs little
THREADS = 256  # of the kernel that takes the gradients apart

# Units whose recurrent weights fit into the registers of so many blocks together.
ROOM = {1: 128, 4: 256, 8: 384}
LARGEST = max(ROOM.values())
WORTH_SHARING = 64  # with more units than this, four blocks are faster than one, if all of them can run at once


@dataclass(frozen=True)
class Shape:
    """How a layer is laid out on the device."""

    models: int
    steps: int
    batch: int
    hidden: int
    exact: bool
    ranks: int  # blocks that share the units
    samples: int = 2  # of a thread: 2, or 1 in tiles of half the size
    room: int = 0  # bytes of shared memory that a block may have

    @property
    def units(self) -> int:
        """Units of a thread; their numbers differ by 8."""
        return 2 if self.ranks == 1 else 1

    @property
    def padded(self) -> int:
        whole = 8 * self.units * self.ranks
        return (self.hidden + whole - 1) // whole * whole

    @property
    def tiles(self):
        return tiles_of(self.batch, self.samples)

    @property
    def grid(self) -> tuple[tuple[int, int], int]:
        """Blocks and threads of a launch."""
        return (self.tiles * self.ranks, self.models), 4 * self.padded // (self.units * self.ranks)

    @property
    def full_rows(self) -> bool:
        """The two sides of the weights' gradient are in float32, not in bfloat16."""
        return self.exact or self.steps * self.batch <= FEW_ROWS

    @property
    def row_type(self) -> torch.dtype:
        return torch.float32 if self.full_rows else torch.bfloat16

    @property
    def tape_parts(self) -> list:
        """How many 32-bit words the tape has of gates, previous c, previous h and rows for the weights' gradient."""
        threads = self.models * self.steps * self.tiles * self.grid[1] * self.ranks
        rows = self.models * self.steps * self.batch * (self.padded + END)
        return [*(threads * words for words in self.tape_words), rows if self.full_rows else rows // 2]

    @property
    def tape_words(self) -> tuple[int, int, int]:
        """Of a thread and a step: gates, c and h. The kernels have the same, in tape.cuh."""
        cells = self.units * self.samples
        return (4 if self.exact else 2) * cells, cells, cells if self.exact or cells == 1 else cells // 2

    @property
    def rest_bytes(self) -> int:
        """Bytes of a block's shared memory for the rounding errors of its 16-bit weights: too many for registers."""
        return 8 * self.padded**2 // self.ranks if self.exact else 0

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that a block needs at least: also counts the backward kernel's tables."""
        slopes = 4 * (1 + self.exact) * TILE * (4 * self.padded // self.ranks + 8)
        return self.rest_bytes + slopes + (64 * self.padded if self.ranks > 1 else 0) + 256

    def step_words(self, part: str, inputs: int, k_per_sample: bool, sequence: int, k_h: bool = False) -> int:
        """What a thread reads at every step, in words."""
        cells = self.units * self.samples
        k = cells * (1 + k_h) if k_per_sample else self.units
        if part == "forward":
            return k + (self.samples * inputs if inputs <= INLINE else 4 * cells)
        return k + sum(self.tape_words) + sequence * cells

    def dynamic_bytes(self, constants: dict) -> int:
        """Of a block's shared memory: rounding errors, and what was read ahead."""
        ahead, words = constants["AHEAD"], constants["STEP_WORDS"]
        return self.rest_bytes + (4 * words * self.grid[1] * ahead if ahead > 1 else 0)

    def constants(
        self, part: str, inputs: int, rule: str, k_per_sample, sequence: int, taped, k_h: bool = False
    ) -> dict:
        """`k_h`: the output has a table of its own; then both are per sample."""
        words = self.step_words(part, inputs, k_per_sample, sequence, k_h)
        room = (self.room - self.shared_bytes) // (4 * words * self.grid[1])
        return {
            "AHEAD": max(1, min(AHEAD[part], room)),
            "STEP_WORDS": words,
            "H": self.hidden,
            "RANKS": self.ranks,
            "SAMPLES": self.samples,
            "D": inputs if inputs <= INLINE else 0,
            "LOGISTIC": rule == "sigmoid",
            "GRU": rule == GRU,
            "K_PER_SAMPLE": k_per_sample,
            "K_H": k_h,
            "SEQUENCE": sequence,
            "TAPED": taped,
            "EXACT": self.exact,
            "FULL_ROWS": self.full_rows,
        }


def tiles_of(batch, samples: int = 2):
    """Tiles of a batch, where a thread has so many samples."""
    tile = TILE // 2 * samples
    return (batch + tile - 1) // tile


def ranks_for(hidden: int, tiles, clusters: bool, multiprocessors: int) -> int | None:
    """The number of blocks that share the units; None if they do not fit. `tiles` are those of all models."""
    if hidden > (LARGEST if clusters else ROOM[1]):
        return None
    least = next(ranks for ranks, room in ROOM.items() if hidden <= room)
    if least == 1 and hidden > WORTH_SHARING and clusters:
        return 4 if 4 * tiles <= at_once(4, multiprocessors) else 1
    return least


def samples_for(hidden: int, batch, models: int, ranks: int, multiprocessors: int) -> int:
    """Samples of a thread: one, which is faster, if as many blocks as this takes can run at once."""
    warps = (hidden + 2 * TILE - 1) // (2 * TILE)
    together = max(1, SCHEDULERS // warps) if ranks == 1 else 1  # blocks with a scheduler for each warp
    return 1 if models * tiles_of(batch, 1) * ranks <= together * at_once(ranks, multiprocessors) else 2


def blocks_together(hidden: int) -> int:
    """Blocks of one tile whose registers a multiprocessor has room for, but no more than it has schedulers."""
    _, threads = Shape(models=1, steps=1, batch=TILE, hidden=hidden, exact=False, ranks=1).grid
    return max(1, min(SCHEDULERS, BLOCK_THREADS // threads))


def at_once(ranks: int, multiprocessors: int) -> int:
    """Multiprocessors that can be used. A cluster lies within a group of up to 18, and those left over cannot form one.

    Of an H200's 132, 28 clusters of four have a multiprocessor for each block; of 31, some share one.
    """
    return multiprocessors if ranks == 1 else multiprocessors // 18 * 16


def source(part: str, ranks: int) -> str:
    """Of 'forward' or 'backward'."""
    exchange = "block.cuh" if ranks == 1 else "cluster.cuh"
    return read_sources("layout.cuh", "tape.cuh", "ahead.cuh", exchange, f"{part}.cu")


@cache
def kernels(part: str, **constants: int) -> Kernels:
    return Kernels(source(part, constants["RANKS"]), constants)


def by_gate(product: Tensor, shape: Shape) -> Tensor:
    """(M, slopes, columns) as (M, 4H, columns): slopes are in the order (block, warp, gate, unit)."""
    side, columns = 8 * shape.units, product.shape[2]
    product = product.view(shape.models, -1, 4, side, columns).transpose(1, 2)
    product = product.reshape(shape.models, 4, shape.padded, columns)[:, :, : shape.hidden]
    return product.reshape(shape.models, 4 * shape.hidden, columns)


def by_slope(weights: Tensor, shape: Shape) -> Tensor:
    """The inverse, with zeros for padding units."""
    side, columns = 8 * shape.units, weights.shape[2]
    missing = shape.padded - shape.hidden
    filled = torch.nn.functional.pad(weights.view(shape.models, 4, shape.hidden, columns), (0, 0, 0, missing))
    filled = filled.view(shape.models, 4, -1, side, columns).transpose(1, 2)
    return filled.reshape(shape.models, 4 * shape.padded, columns)


def forward(shape: Shape, x, w_ih, w_hh, b, k, h0, c0, rule: str, sequence: bool, cells: bool, taped: bool):
    """All h or None, final h, final c, all c or None, tape or None. k may be `two_tables`."""
    inputs = x.shape[-1]
    read = x if inputs <= INLINE else share_of(x, w_ih)
    everything = (shape.models, shape.steps, shape.batch, shape.hidden)
    h = x.new_empty(everything) if sequence or cells else None  # the kernel writes all of both, or of neither
    c = x.new_empty(everything) if cells else None
    h_n, c_n = torch.empty_like(h0), torch.empty_like(c0)
    tape = x.new_empty(sum(shape.tape_parts)) if taped else None
    parts = [None] * 4 if tape is None else tape.split(shape.tape_parts)
    tables = k.dim() >= 4, (h is not None) + cells, taped, k.dim() == 5
    constants = shape.constants("forward", inputs, rule, *tables)
    kernels("forward", **constants).launch(
        "forward", *shape.grid,
        read, Long(read[0].numel() if read.dim() == 4 else 0), w_ih, b, w_hh, k, h0, c0,
        h, c, h_n, c_n, *parts, shape.steps, shape.batch,
        shared_bytes=shape.dynamic_bytes(constants),
    )  # fmt: skip
    return h if sequence else None, h_n, c_n, c, tape


def backward(shape: Shape, dh, dh_n, dc_n, dc, x, w_ih, w_hh, k, tape, rule: str, need_x: bool):
    """Gradients of x or None, w_ih, w_hh, b, k, h0, c0. dh, dh_n, dc_n and dc may be None: zeros. k as in `forward`."""
    models, hidden, inputs = shape.models, shape.hidden, x.shape[-1]
    gates, c_before, h_before, rows = tape.split(shape.tape_parts)
    da = x.new_empty(models, shape.steps * shape.batch, 4 * shape.padded, dtype=shape.row_type)
    dk = torch.empty_like(k)
    dk_parts = dk if k.dim() >= 4 else x.new_empty(models, shape.tiles, shape.steps, hidden)
    dh0, dc0 = (x.new_empty(models, shape.batch, hidden) for _ in range(2))
    if dc is not None:
        dh, dc = torch.zeros_like(dc).contiguous() if dh is None else dh.contiguous(), dc.contiguous()
    dh = dh if dh is None else readable(dh)
    tables = k.dim() >= 4, (dh is not None) + (dc is not None), True, k.dim() == 5
    constants = shape.constants("backward", inputs, rule, *tables)
    run = kernels("backward", **constants)
    run.launch(
        "backward", *shape.grid,
        *map(Long, (at(dh), at(dc), *((0, 0, 0, 0) if dh is None else dh.stride()))), dh_n, dc_n,
        w_hh, k, gates, c_before, h_before, da, dk_parts, dh0, dc0, shape.steps, shape.batch,
        shared_bytes=shape.dynamic_bytes(constants),
    )  # fmt: skip
    rows, across = rows.view(shape.row_type).view(models, -1, shape.padded + END), da.transpose(1, 2)
    inline = inputs <= INLINE
    dw_hh, db = torch.empty_like(w_hh), w_hh.new_empty(w_hh.shape[:2])
    dw_ih = torch.empty_like(w_ih) if inline else gradient_of_w_ih(shape, da, x)
    columns = hidden + 1 + (inputs if inline else 0)
    numbers = models * (4 * hidden * columns + (shape.steps * hidden if k.dim() == 3 else 0))
    run.launch(
        "finish", (-(-numbers // THREADS), 1), THREADS,
        multiply(across, rows), dk_parts, None, dw_ih, dw_hh, db, None, dk, None, None, None,
        models, shape.steps, shape.tiles, 0,
    )  # fmt: skip
    dx = gradient_of_x(shape, da, w_ih, x) if need_x else None
    return dx, dw_ih, dw_hh, db, dk, dh0, dc0


def two_tables(k: Tensor, k_h: Tensor, batch: int) -> Tensor:
    """(2, M, T, B, H) of the cells' table and that of the outputs, each (M, T, H) or (M, T, B, H)."""
    return torch.stack([one if one.dim() == 4 else one.unsqueeze(2).expand(-1, -1, batch, -1) for one in (k, k_h)])


def gradients_of_two(dk: Tensor, k: Tensor, k_h: Tensor) -> list[Tensor]:
    """Of each table as it was given, from that of `two_tables`."""
    return [part if one.dim() == 4 else part.sum(2) for part, one in zip(dk, (k, k_h), strict=True)]


def readable(gradient: Tensor) -> Tensor:
    """Of all outputs, with its strides: a sum's is one number in memory.

    The kernel reads what is the same at every step once; else units must lie side by side.
    """
    steady = gradient.shape[-3] == 1 or gradient.stride(-3) == 0
    return gradient if steady or gradient.stride(-1) == 1 else gradient.contiguous()


def at(tensor: Tensor | None) -> int:
    """Its address; 0: there is none."""
    return 0 if tensor is None else tensor.data_ptr()


def gradient_of_w_ih(shape: Shape, da: Tensor, x: Tensor) -> Tensor:
    """(M, 4H, D), where the forward kernel got the input's share of the gates ready-made."""
    return by_gate(multiply(da.transpose(1, 2), rows_of(finite(x), shape.models).to(da.dtype)), shape)


def gradient_of_x(shape: Shape, da: Tensor, w_ih: Tensor, x: Tensor) -> Tensor:
    dx = multiply(da, by_slope(w_ih, shape).to(da.dtype)).view(shape.models, *x.shape[-3:])
    if x.dim() == 4:
        return dx
    return dx.sum(0) if shape.models > 1 else dx[0]
