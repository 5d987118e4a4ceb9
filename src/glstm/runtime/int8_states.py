"""A deployed network in whole numbers: weights and h in 8 bits, sums in 32. `native/int8.h` says what they mean, and
this module computes the same numbers, bit for bit, for whole batches."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glstm.errors import UserError
from glstm.runtime.head import HeadPlan
from glstm.runtime.plan import LayerPlan, Plan
from glstm.runtime.quantize import LARGEST, Quantized, QuantizedLayer, quantize
from glstm.runtime.runtime import Runtime

HEADROOM = 4  # how much larger than those that it was calibrated on a sample may be
TABLE_END, TABLE_STEP = 12, 32  # the logistic function's table: up to here, so many steps in 1

Whole = NDArray[np.int64]


def logistic_table() -> NDArray[np.uint16]:
    z = np.arange(TABLE_END * TABLE_STEP + 1) / TABLE_STEP
    return np.rint(2**15 / (1 + np.exp(-z))).astype(np.uint16)


TABLE = logistic_table().astype(np.int64)


@dataclass(frozen=True)
class Int8Layer:
    """The constant data of a layer besides that of its plan."""

    weights: QuantizedLayer
    k: NDArray[np.uint16] | None
    slot: NDArray[np.uint16]
    scale_x: NDArray[np.int32]
    scale_h: NDArray[np.int32]
    bias: NDArray[np.int32]
    shift_x: int
    shift_h: int

    @property
    def slots(self) -> int:
        return int(self.slot.max()) + 1


@dataclass(frozen=True)
class Int8States:
    """A plan in whole numbers."""

    plan: Plan
    weights: Quantized
    layers: tuple[Int8Layer, ...]
    scale: np.float32  # a sample times this is a whole number, ...
    most: int  # ... at most so large

    @property
    def carried(self) -> int:
        return 0 if self.plan.missing == "refuse" else self.plan.inputs

    @cached_property
    def widest(self) -> tuple[int, int]:
        """Numbers that are needed for a while: the most that a layer reads, and the most units open at once."""
        return max(layer.inputs for layer in self.plan.layers), max(layer.most_open for layer in self.plan.layers)

    @property
    def state_bytes(self) -> int:
        """The size of all data that changes, as the exported struct has it."""
        plan, (inputs, open_units) = self.plan, self.widest
        units, most_open = (sum(getattr(one, what) for one in plan.layers) for what in ("units", "most_open"))
        words = 1 + 3 * len(plan.layers) + self.carried + units + sum(4 * one.slots for one in self.layers)
        size = 4 * words + 2 * (units + inputs + open_units) + most_open
        return -(-size // 4) * 4

    @property
    def constant_bytes(self) -> int:
        """The size of all data that does not change."""
        arrays: list[np.ndarray | None] = [logistic_table()]
        for plan, own in zip(self.plan.layers, self.layers, strict=True):
            arrays += [plan.start, plan.change, plan.opens, own.k, own.slot, plan.row, own.weights.w_x, own.weights.w_h]
            arrays += [own.scale_x, own.scale_h, own.bias]
        for dense, eight in zip(self.plan.head.dense, self.weights.head, strict=True):
            arrays += [eight.weight, eight.scale, dense.bias]
        if self.plan.head.opening is not None:
            arrays += [self.plan.head.opening.places]
        arrays += [array for one in self.plan.head.activations for array in one.constants]
        arrays += [] if self.plan.standard is None else [self.plan.standard.mean, self.plan.standard.scale]
        return sum(array.nbytes for array in arrays if array is not None)

    @cached_property
    def _head(self) -> list[Callable[[Tensor], Tensor]]:
        pairs = zip(self.plan.head.dense, self.weights.head, strict=True)
        dense = (replace(one, weight=eight.weight * eight.scale[:, None]) for one, eight in pairs)
        return HeadPlan(self.plan.head.opening, tuple(dense)).runs()

    def __call__(self, x: Tensor) -> Tensor:
        """Whole sequences x (T, B, inputs) -> (B, outputs), or (T, B, outputs) if the head reads every step."""
        rows = Runtime(self.plan).standardized(x.detach().cpu().float()).numpy()
        scaled = rows * self.scale
        given = np.trunc(np.clip(np.nan_to_num(scaled, nan=0.0), -self.most, self.most)).astype(np.int64)
        h = np.zeros(0, np.int16)
        for number, (layer, own) in enumerate(zip(self.plan.layers, self.layers, strict=True)):
            h = _run(layer, own, given, all_steps=self.plan.every or number + 1 < len(self.layers))
            given = in_8_bits(h)
        read = torch.from_numpy(h.astype(np.float32) / np.float32(2**15))
        for run in self._head:
            read = run(read.flatten(0, -2)).view(*read.shape[:-1], -1)
        return read


def int8_states(plan: Plan, x: Tensor) -> Int8States:
    """Calibrated on sequences x (T, B, inputs) such as the network will see: raw, if it takes raw numbers."""
    if not len(plan.times):
        raise UserError("int8 states are for networks with known steps: deploy it with their number, or their times")
    if plan.two_ways:
        raise UserError("int8 states are for networks of one direction, and this one reads windows from both ends")
    if plan.pool:
        raise UserError(f"int8 states are for heads that read h, and this one reads its {plan.pool} over the steps")
    weights = quantize(plan, x)
    rows = Runtime(plan).standardized(x.detach().cpu().float()).numpy()
    largest = np.nanmax(np.abs(rows), initial=1e-6)
    most = max(1, min(2**15 - 1, 2**24 // (LARGEST * plan.layers[0].inputs)))
    scale = np.float32(most / (HEADROOM * largest))
    above = len(plan.layers) - 1
    steps, limits = [1 / float(scale), *[1 / LARGEST] * above], [most, *[LARGEST] * above]
    layers = tuple(map(_layer, plan.layers, weights.layers, steps, limits))
    return Int8States(plan, weights, layers, scale, most)


def _layer(plan: LayerPlan, weights: QuantizedLayer, step: float, most: int) -> Int8Layer:
    """`step`: what 1 in an input stands for, which is at most `most`."""
    k = None
    if plan.k is not None:
        k = np.rint(plan.k.astype(np.float64) * 2**16).astype(np.int64)
        k = (k - (k >= 2**15)).astype(np.uint16)
    rows = np.repeat(np.arange(plan.units), np.diff(plan.row))
    sums_x, sums_h = np.abs(weights.w_x.astype(np.int64)).sum(1) * most, np.zeros((plan.units, 4), np.int64)
    np.add.at(sums_h, rows, np.abs(weights.w_h.astype(np.int64)) * LARGEST)
    shift_x, scale_x = _scales(weights.scale_x.astype(np.float64) * step, sums_x)
    shift_h, scale_h = _scales(weights.scale_h.astype(np.float64) / LARGEST, sums_h)
    bias = plan.bias.astype(np.float64) * 2**16
    _require(np.abs(bias).max(initial=0))
    return Int8Layer(
        weights, k, _slots(plan.table > 0), scale_x, scale_h, np.rint(bias).astype(np.int32), shift_x, shift_h
    )


def _scales(scale: NDArray[np.float64], largest: Whole) -> tuple[int, NDArray[np.int32]]:
    """Of sums (units, 4) that are at most so large: a shift that keeps them within 32 bits, and what the shifted sums
    are multiplied by. The upper 32 bits of that have 16 binary places."""
    _require((scale * largest).max(initial=0) * 2**16)
    shift = 31 - int(largest.max(initial=1)).bit_length()
    return shift, np.rint(scale * 2.0 ** (48 - shift)).astype(np.int32)


def _require(largest: float) -> None:
    if largest >= 2**28:
        raise UserError("a weight or an input of this network is too large for whole numbers: standardise its inputs")


def _slots(is_open: NDArray[np.bool_]) -> NDArray[np.uint16]:
    """(T, units) -> for each unit a number that no unit has which is open at the same step, as small as it can be."""
    taken = np.zeros((len(is_open), 0), bool)
    found = []
    for mine in is_open.T:
        free = np.flatnonzero(~taken[mine].any(0))
        if not len(free):
            taken, free = np.pad(taken, ((0, 0), (0, 1))), [taken.shape[1]]
        taken[mine, free[0]] = True
        found.append(free[0])
    return np.array(found, np.uint16)


def _run(plan: LayerPlan, own: Int8Layer, x: Whole, *, all_steps: bool) -> NDArray[np.int16]:
    """Whole numbers x (T, B, inputs) -> h of all steps, or after the last, with 15 binary places."""
    steps, batch, _ = x.shape
    h, c, short = (np.zeros((batch, plan.units), np.int64) for _ in range(3))
    w_h = np.zeros((plan.units, plan.units, 4))
    for unit in range(plan.units):
        columns = own.weights.w_h[plan.row[unit] : plan.row[unit + 1]]
        w_h[unit, : len(columns)] = columns
    w_x = own.weights.w_x.astype(np.float64)
    scale_h, scale_x, bias = (array.astype(np.int64) for array in (own.scale_h, own.scale_x, own.bias))
    found, k_at = np.zeros((steps if all_steps else 1, batch, plan.units), np.int16), 0
    for step in range(steps):
        units = np.flatnonzero(plan.table[step])
        if len(units):
            of_h = _products(short, w_h[units])
            of_x = _products(x[step], w_x[units])
            z = bias[units] + (((of_h << own.shift_h) * scale_h[units]) >> 32)
            z += ((of_x << own.shift_x) * scale_x[units]) >> 32
            k = np.full(len(units), 2**16) if own.k is None else _openness(own.k[k_at : k_at + len(units)])
            h[:, units], c[:, units] = _update(z, k, h[:, units], c[:, units], plan.logistic)
            short[:, units] = in_8_bits(h[:, units])
            k_at += len(units)
        found[step if all_steps else 0] = h
    return found if all_steps else found[0]


def _products(numbers: Whole, weights: NDArray[np.float64]) -> Whole:
    """(B, columns) and (units, columns, 4) -> (B, units, 4). Floats of 64 bits hold these sums exactly."""
    flat = weights.transpose(1, 0, 2).reshape(weights.shape[1], -1)
    return (numbers.astype(np.float64) @ flat).astype(np.int64).reshape(len(numbers), -1, 4)


def _openness(k: NDArray[np.uint16]) -> Whole:
    wide = k.astype(np.int64)
    return wide + (wide >> 15)


def _update(z: Whole, k: Whole, h: Whole, c: Whole, is_logistic: bool) -> tuple[Whole, Whole]:
    i, f, g, o = (z[..., gate] for gate in range(4))
    i, f, o, g = _logistic(i), _logistic(f), _logistic(o), _logistic(g) if is_logistic else _tanh(g)
    candidate = (((f * c + 2**14) >> 15) + ((i * g + 512) >> 10)).clip(-(2**30 - 1), 2**30 - 1)
    target = (o * _tanh(candidate >> 4) + 2**14) >> 15
    mixed = (h + ((k * (target - h) + 2**15) >> 16)).clip(-(2**15 - 1), 2**15 - 1)
    return mixed, c + ((k * (candidate - c) + 2**15) >> 16)


def in_8_bits(h: NDArray[np.integer]) -> Whole:
    """h with 15 binary places -> in 1/127."""
    return (h.astype(np.int64) * LARGEST + 2**14) >> 15


def _logistic(z: Whole) -> Whole:
    size = np.abs(z).clip(max=TABLE_END * 2**16 - 1)
    place = size >> 11
    low = TABLE[place]
    y = low + (((TABLE[place + 1] - low) * (size & 2047) + 1024) >> 11)
    return np.where(z < 0, 2**15 - y, y)


def _tanh(z: Whole) -> Whole:
    return 2 * _logistic(2 * z) - 2**15
