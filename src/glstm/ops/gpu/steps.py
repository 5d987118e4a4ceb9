"""Any number of units, step by step: one launch per step, prepared once.

For networks whose recurrent weights do not fit into the registers of a cluster of multiprocessors. The weights are read
from the cache at every step; in a CUDA graph the launches take almost no time.
"""

from functools import cache

import torch
from torch import Tensor

from glstm.ops.gpu.products import drive_of
from glstm.ops.gpu.runtime import Kernels, Long, read_sources

THREADS = 128  # of a block, which takes so many units and samples:
UNITS, SAMPLES = 16, 32
PIECE = 128  # 16-bit numbers of a product's right side: 16 numbers of 8 samples


@cache
def kernels(hidden: int, candidate: str, k_per_sample: bool, exact: bool) -> Kernels:
    constants = {"H": hidden, "LOGISTIC": candidate == "sigmoid", "K_PER_SAMPLE": k_per_sample, "EXACT": exact, "D": 0}
    return Kernels(read_sources("steps.cu"), constants)


def tape_parts(models, steps, batch, hidden) -> list:
    """How many floats the tape has of gates, of h and of c before every step and after the last.

    And one more, which says that it is this kind of tape: those of `scan.py` have even sizes.
    """
    cells = models * batch * hidden
    return [steps * cells * 4, (steps + 1) * cells, (steps + 1) * cells, 1]


class Steps:
    """What the launches of both passes share."""

    def __init__(self, w_hh: Tensor, k: Tensor, batch: int, candidate: str, exact: bool):
        self.models, _, self.hidden = w_hh.shape
        self.run = kernels(self.hidden, candidate, k.dim() == 4, exact)
        self.w_hh, self.batch, self.copies = w_hh, batch, 1 + exact
        self.blocks, self.groups = -(-self.hidden // UNITS), -(-batch // SAMPLES)
        self.tiles = self.groups * SAMPLES // 8
        self.grid = (self.blocks, self.models * self.groups)

    def weights(self, transposed: bool) -> Tensor:
        """As left sides of products; the second half holds the rounding errors of the 16-bit numbers."""
        count = self.models * self.blocks * 4 * self.blocks
        packed = self.w_hh.new_empty(self.copies, count * PIECE)
        blocks = (-(-count * 32 // THREADS), 1)
        self.run.launch("pack_weights", blocks, THREADS, self.w_hh, packed, self.models, int(transposed))
        return packed

    def pieces(self, gates: int) -> tuple[Tensor, Long]:
        """Memory for two sets of right sides, with zeros for padding; and the offset of their rounding errors."""
        size = 2 * self.models * self.tiles * self.blocks * gates * PIECE
        return self.w_hh.new_zeros(self.copies * size, dtype=torch.float16), Long(size)


def tape_with_drive(x: Tensor, w_ih: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A tape with nothing but the input's part of the gates' sums, and its parts.

    They are gates (T, M, B, 4H), h and c (T + 1, M, B, H).
    """
    (models, rows, _), (steps, batch) = w_ih.shape, x.shape[-3:-1]
    tape = x.new_empty(sum(sizes := tape_parts(models, steps, batch, rows // 4)))
    gates, h, c, _ = tape.split(sizes)
    gates = gates.view(steps, models, batch, rows)
    if models == 1:  # then the order of the axes does not matter
        drive_of(x, w_ih, b, out=gates)
    else:
        gates.copy_(drive_of(x, w_ih, b).transpose(0, 1))
    h, c = (part.view(steps + 1, models, batch, rows // 4) for part in (h, c))
    return tape, gates, h, c


def forward(x, w_ih, b, w_hh: Tensor, k: Tensor, h0: Tensor, c0: Tensor, candidate: str, exact: bool):
    """Returns the tape, all h and all c (T + 1, M, B, H)."""
    tape, gates, h, c = tape_with_drive(x, w_ih, b)
    models, batch, _ = h0.shape
    steps = len(gates)
    h[0], c[0] = h0, c0
    shared = Steps(w_hh, k, batch, candidate, exact)
    weights, (pieces, rests) = shared.weights(transposed=False), shared.pieces(gates=1)
    cells, tiles = h0.numel(), shared.tiles
    shared.run.launch("pack_h", (-(-cells // THREADS), 1), THREADS, h0, pieces, rests, Long(cells), batch, tiles)
    step = shared.run.prepare(
        "step_forward", shared.grid, THREADS, weights, pieces, rests, gates, k, h, c, models, steps, batch, tiles, 0
    )
    for t in range(steps):
        step(t)
    return tape, h, c


class WayBack:
    """What a backward pass reads and writes, in the kernels' order of axes."""

    def __init__(self, dh, dh_n: Tensor, dc_n: Tensor, dc, tape: Tensor, steps: int):
        self.shape = (steps, *dh_n.shape)
        _, models, batch, hidden = self.shape
        self.gates, h, c, _ = tape.split(tape_parts(models, steps, batch, hidden))
        self.h, self.c = (part.view(steps + 1, models, batch, hidden) for part in (h, c))
        self.dh, self.dc = (None if part is None else part.transpose(0, 1).contiguous() for part in (dh, dc))
        self.da = torch.empty_like(self.gates).view(steps, models, batch, 4 * hidden)
        self.dk = torch.empty_like(self.h[1:])
        self.dh_now, self.dc_now = dh_n.clone(), dc_n.clone()

    def results(self, k: Tensor):
        steps, models, batch, hidden = self.shape
        dk = self.dk.transpose(0, 1).contiguous() if k.dim() == 4 else self.dk.sum(2).transpose(0, 1).contiguous()
        rows = self.h[:-1].transpose(0, 1).reshape(models, steps * batch, hidden)
        da = self.da.transpose(0, 1).reshape(models, steps * batch, 4 * hidden)
        return da, rows, dk, self.dh_now, self.dc_now


def backward(
    dh, dh_n: Tensor, dc_n: Tensor, dc, w_hh: Tensor, k: Tensor, tape, steps: int, candidate: str, exact: bool
):
    """da (M, T * B, 4H), rows of h before the steps (M, T * B, H), dk, dh0, dc0. dh and dc are (M, T, B, H) or None."""
    way = WayBack(dh, dh_n, dc_n, dc, tape, steps)
    models, batch, _ = dh_n.shape
    shared = Steps(w_hh, k, batch, candidate, exact)
    weights, (pieces, rests) = shared.weights(transposed=True), shared.pieces(gates=4)
    backs = w_hh.new_zeros(2, *shared.grid)
    step = shared.run.prepare(
        "step_backward", shared.grid, THREADS,
        weights, pieces, rests, backs, way.gates, k, way.h, way.c, way.dh, way.dc, way.dh_now, way.dc_now, way.da,
        way.dk, models, steps, batch, shared.tiles, 0,
    )  # fmt: skip
    for t in reversed(range(-1, steps)):
        step(t)
    return way.results(k)
