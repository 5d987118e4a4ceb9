"""A whole sequence in one kernel, forward and backward: 8 samples on one multiprocessor, or on a cluster of them.

Tensors are float32, contiguous, and have a leading model axis M (x may be without it: then all models read the same).
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from glstm.ops.gpu.products import drive_of, finite, multiply, rows_of
from glstm.ops.gpu.runtime import Kernels, Long, read_sources

INLINE = 4  # up to so many inputs, the kernel multiplies them itself
TILE = 8  # samples that a matrix instruction takes
END = 16  # numbers after h in a row of the weights' gradient's right side: x, 1, zeros
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
        return tiles_of(self.batch)

    @property
    def grid(self) -> tuple[tuple[int, int], int]:
        """Blocks and threads of a launch."""
        return (self.tiles * self.ranks, self.models), 4 * self.padded // (self.units * self.ranks)

    @property
    def tape_parts(self) -> list:
        """How many 32-bit words the tape has of gates, previous c, previous h and rows for the weights' gradient."""
        cells = self.models * self.steps * self.tiles * TILE * self.padded
        rows = self.models * self.steps * self.batch * (self.padded + END)
        return [cells * 4, cells, cells, rows] if self.exact else [cells * 2, cells, cells // 2, rows // 2]

    @property
    def dynamic_bytes(self) -> int:
        """Bytes of a block's shared memory for the rounding errors of its 16-bit weights: too many for registers."""
        return 8 * self.padded**2 // self.ranks if self.exact else 0

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that a block needs at most: also counts the backward kernel's tables."""
        slopes = 4 * (1 + self.exact) * TILE * (4 * self.padded // self.ranks + 8)
        return self.dynamic_bytes + slopes + (64 * self.padded if self.ranks > 1 else 0) + 256

    def constants(self, inputs: int, candidate: str, k_per_sample, sequence, taped) -> dict:
        return {
            "H": self.hidden,
            "RANKS": self.ranks,
            "D": inputs if inputs <= INLINE else 0,
            "LOGISTIC": candidate == "sigmoid",
            "K_PER_SAMPLE": k_per_sample,
            "SEQUENCE": sequence,
            "TAPED": taped,
            "EXACT": self.exact,
        }


def tiles_of(batch):
    return (batch + TILE - 1) // TILE


def ranks_for(hidden: int, tiles, clusters: bool, multiprocessors: int) -> int | None:
    """The number of blocks that share the units; None if they do not fit. `tiles` are those of all models."""
    if hidden > (LARGEST if clusters else ROOM[1]):
        return None
    least = next(ranks for ranks, room in ROOM.items() if hidden <= room)
    if least == 1 and hidden > WORTH_SHARING and clusters:
        # A cluster lies within a group of up to 16 multiprocessors; those left over in a group cannot form one.
        return 4 if 4 * tiles <= multiprocessors // 16 * 16 else 1
    return least


def source(part: str, ranks: int) -> str:
    """Of 'forward' or 'backward'."""
    return read_sources("layout.cuh", "block.cuh" if ranks == 1 else "cluster.cuh", f"{part}.cu")


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


def forward(shape: Shape, x, w_ih, w_hh, b, k, h0, c0, candidate: str, sequence: bool, cells: bool, taped: bool):
    """All h or None, final h, final c, all c or None, tape or None."""
    inputs = x.shape[-1]
    read = x if inputs <= INLINE else drive_of(x, w_ih, b)
    everything = (shape.models, shape.steps, shape.batch, shape.hidden)
    h = x.new_empty(everything) if sequence or cells else None  # the kernel writes all of both, or of neither
    c = x.new_empty(everything) if cells else None
    h_n, c_n = torch.empty_like(h0), torch.empty_like(c0)
    tape = x.new_empty(sum(shape.tape_parts)) if taped else None
    parts = [None] * 4 if tape is None else tape.split(shape.tape_parts)
    kernels("forward", **shape.constants(inputs, candidate, k.dim() == 4, h is not None, taped)).launch(
        "forward", *shape.grid,
        read, Long(read[0].numel() if read.dim() == 4 else 0), w_ih, b, w_hh, k, h0, c0,
        h, c, h_n, c_n, *parts, shape.steps, shape.batch,
        shared_bytes=shape.dynamic_bytes,
    )  # fmt: skip
    return h if sequence else None, h_n, c_n, c, tape


def backward(shape: Shape, dh, dh_n, dc_n, dc, x, w_ih, w_hh, k, tape, candidate: str, need_x: bool):
    """Gradients of x or None, w_ih, w_hh, b, k, h0, c0. dh, dh_n, dc_n and dc may be None: zeros."""
    models, hidden, inputs = shape.models, shape.hidden, x.shape[-1]
    gates, c_before, h_before, rows = tape.split(shape.tape_parts)
    narrow = torch.float32 if shape.exact else torch.bfloat16
    da = x.new_empty(models, shape.steps * shape.batch, 4 * shape.padded, dtype=narrow)
    dk = torch.empty_like(k)
    dk_parts = dk if k.dim() == 4 else x.new_empty(models, shape.tiles, shape.steps, hidden)
    dh0, dc0 = (x.new_empty(models, shape.batch, hidden) for _ in range(2))
    sequence = dh is not None or dc is not None
    run = kernels("backward", **shape.constants(inputs, candidate, k.dim() == 4, sequence, True))
    run.launch(
        "backward", *shape.grid,
        dh, dc, dh_n, dc_n, w_hh, k, gates, c_before, h_before, da, dk_parts, dh0, dc0, shape.steps, shape.batch,
        shared_bytes=shape.dynamic_bytes,
    )  # fmt: skip
    rows, across = rows.view(narrow).view(models, -1, shape.padded + END), da.transpose(1, 2)
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


def gradient_of_w_ih(shape: Shape, da: Tensor, x: Tensor) -> Tensor:
    """(M, 4H, D), where the forward kernel got the input's share of the gates ready-made."""
    return by_gate(multiply(da.transpose(1, 2), rows_of(finite(x), shape.models).to(da.dtype)), shape)


def gradient_of_x(shape: Shape, da: Tensor, w_ih: Tensor, x: Tensor) -> Tensor:
    dx = multiply(da, by_slope(w_ih, shape).to(da.dtype)).view(shape.models, *x.shape[-3:])
    if x.dim() == 4:
        return dx
    return dx.sum(0) if shape.models > 1 else dx[0]
