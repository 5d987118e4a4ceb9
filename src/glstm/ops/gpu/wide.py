"""Large layers, a whole sequence in one kernel: a block for every 8 or 16 units, all of them running at the same time.

Each block has a multiprocessor of its own, and the recurrent weights of its units in registers. What a step makes goes
to the others through the cache that all share. Where the blocks do not fit on the device together, the layer is
computed step by step; the tape is that of `steps.py`.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from glstm.ops.gpu import steps
from glstm.ops.gpu.runtime import DoesNotFit, Kernels, read_sources

SAMPLES = 16  # of a tile: the rows of a product
UNITS = (8, 16)  # that a block may take
WARPS = {"forward": 8, "backward": 8}
VECTOR = 16  # bytes: a message
FRAGMENT = 4  # registers of a thread for 32 x 8 weights
MOST_REGISTERS = {False: 128, True: 64}  # for weights; in exact mode twice as many numbers are on their way
COST = {8: 1.4, 16: 1.0}  # time of a tile, as measured on an H200: fewer blocks exchange fewer messages


@dataclass(frozen=True)
class Layout:
    """How a layer is laid out on the device."""

    hidden: int
    exact: bool
    units: int  # of a block
    groups: int  # of one model's samples, side by side
    tiles: int  # of samples, that a group takes one after the other; the last group may have fewer
    models: int  # side by side

    @property
    def blocks(self) -> int:
        """Which share the units."""
        return -(-self.hidden // self.units)

    @property
    def eights(self) -> int:
        return self.blocks * self.units // 8

    @property
    def chunks(self) -> int:
        return -(-self.eights // 4)

    def fragments(self, part: str) -> int:
        """Of weights, in a thread."""
        return -(-self.chunks // WARPS[part]) * self.units // 2

    def constants(self, part: str, candidate: str, k_per_sample: bool) -> dict:
        return {
            "H": self.hidden,
            "UNITS": self.units,
            "WARPS": WARPS[part],
            "LOGISTIC": candidate == "sigmoid",
            "K_PER_SAMPLE": k_per_sample,
            "EXACT": self.exact,
            "D": 0,
        }

    def shared_bytes(self, part: str) -> int:
        warps, subs = WARPS[part], self.units // 8
        rests = self.fragments(part) * warps * 32 if self.exact else 0
        sums, sent = (36, 1) if part == "forward" else (10, 4)
        vectors = rests + 2 * warps * subs * 4 * sums + (1 + self.exact) * sent * SAMPLES * subs
        return VECTOR * (vectors + self.tiles * SAMPLES * self.units // 2)


def pairs_of(batch: int) -> int:
    return (batch + 1) // 2


def layout_for(models: int, batch: int, hidden: int, exact: bool, device: Any) -> Layout | None:
    """The fastest that fits on a device with these properties; None if none does."""
    tiles, found = -(-batch // SAMPLES), {}
    for units in UNITS:
        room = device.multi_processor_count // -(-hidden // units)  # groups that run at the same time
        if not room:
            continue
        each = -(-tiles // min(max(1, room // models), tiles))
        groups = -(-tiles // each)  # none of them empty
        at_once = min(models, room // groups)
        layout = Layout(hidden, exact, units, groups, each, at_once)
        if all(
            layout.fragments(part) * FRAGMENT <= MOST_REGISTERS[exact]
            and layout.shared_bytes(part) <= device.shared_memory_per_block_optin
            for part in WARPS
        ):
            found[layout] = COST[units] * each * -(-models // at_once)
    return min(found, key=found.__getitem__) if found else None


@cache
def kernels(part: str, **constants: int) -> Kernels:
    return Kernels(read_sources("exchange.cuh", f"wide_{part}.cu"), constants)


def _launch(part: str, layout: Layout, k: Tensor, candidate: str, models: int, *arguments) -> None:
    """As many models at once as fit, until all are done."""
    run = kernels(part, **layout.constants(part, candidate, k.dim() == 4))
    for first in range(0, models, layout.models):
        grid = (layout.blocks, min(layout.models, models - first) * layout.groups)
        run.launch(
            f"wide_{part}", grid, WARPS[part] * 32, *arguments, layout.groups, layout.tiles, first,
            shared_bytes=layout.shared_bytes(part), together=True,
        )  # fmt: skip


def _ring(like: Tensor, *sizes: int) -> Tensor:
    """Messages: zeros, because those of the first step are told apart from what was there before."""
    return like.new_zeros(sizes, dtype=torch.int32)


def forward(x, w_ih, b, w_hh: Tensor, k: Tensor, h0: Tensor, c0: Tensor, candidate: str, exact: bool, device: Any):
    """As `steps.forward`. device: its properties."""
    models, batch, hidden = h0.shape
    layout = layout_for(models, batch, hidden, exact, device)
    if layout is None:
        return steps.forward(x, w_ih, b, w_hh, k, h0, c0, candidate, exact)
    tape, gates, h, c = steps.tape_with_drive(x, w_ih, b)
    ring = _ring(h0, 2 * (1 + exact), models * pairs_of(batch), layout.eights, 2, 4)
    length = len(gates)
    try:
        _launch("forward", layout, k, candidate, models, w_hh, k, h0, c0, gates, h, c, ring, models, length, batch)
    except DoesNotFit:  # others use the device, too
        return steps.forward(x, w_ih, b, w_hh, k, h0, c0, candidate, exact)
    return tape, h, c


def backward(dh, dh_n, dc_n, dc, w_hh: Tensor, k: Tensor, tape, length: int, candidate: str, exact: bool, device: Any):
    """As `steps.backward`."""
    models, batch, hidden = dh_n.shape
    layout = layout_for(models, batch, hidden, exact, device)
    if layout is None:
        return steps.backward(dh, dh_n, dc_n, dc, w_hh, k, tape, length, candidate, exact)
    way = steps.WayBack(dh, dh_n, dc_n, dc, tape, length)
    ring = _ring(tape, 2 * (1 + exact), models * pairs_of(batch), layout.eights, 8, 4)
    backs = _ring(tape, 2, models * pairs_of(batch), 2, layout.chunks, 4)
    try:
        _launch(
            "backward", layout, k, candidate, models,
            w_hh, k, way.gates, way.h, way.c, way.dh, way.dc, way.dh_now, way.dc_now, way.da, way.dk, ring, backs,
            models, length, batch,
        )  # fmt: skip
    except DoesNotFit:
        return steps.backward(dh, dh_n, dc_n, dc, w_hh, k, tape, length, candidate, exact)
    return way.results(k)
