"""Weights in 8 bits: each row has its own scale, chosen so that the row's sums on real data change least."""

import copy
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from glstm.models import SequenceModel
from glstm.runtime.plan import LayerPlan, Plan, constant_bytes, units_left
from glstm.runtime.raw import Floats
from glstm.runtime.runtime import Runtime, side_by_side

LARGEST = 127
CLIPPED = np.linspace(1.0, 0.5, 26, dtype=np.float32)  # shares of a row's largest weight that LARGEST may stand for

Bytes = NDArray[np.int8]


@dataclass(frozen=True)
class QuantizedLayer:
    w_x: Bytes
    w_h: Bytes
    scale_x: Floats  # (units, 4)
    scale_h: Floats


@dataclass(frozen=True)
class QuantizedDense:
    weight: Bytes
    scale: Floats  # (outputs)


@dataclass(frozen=True)
class Quantized:
    layers: tuple[QuantizedLayer, ...]
    head: tuple[QuantizedDense, ...]


def quantize(plan: Plan, x: torch.Tensor) -> Quantized:
    """Calibrated on sequences x (T, B, inputs) such as the network will see: raw, if it takes raw numbers."""
    runtime = Runtime(plan)
    layers, inputs = [], runtime.standardized(x.detach().cpu().float())
    last: list[torch.Tensor] = []
    for level, engines in zip(plan.levels, runtime.levels, strict=True):
        runs = [engine.run(inputs) for engine in engines]
        for layer, (h, _) in zip(level, runs, strict=True):
            order = -1 if layer.backwards else 1
            layers.append(_quantized_layer(layer, inputs.numpy()[::order], h.numpy()[::order]))
        inputs, last = side_by_side([h for h, _ in runs]), [h_n for _, h_n in runs]
    read = runtime.pooled_so_far(inputs)
    read = read.flatten(0, 1) if plan.every else read[-1] if plan.pool else side_by_side(last)
    head, run = [], list(runtime.head)
    if plan.head.opening is not None:
        read = run.pop(0)(read)
    for dense, step in zip(plan.head.dense, run, strict=True):
        moments = _moments(read.numpy())
        rows, scales = zip(*(_quantized_row(row, moments) for row in dense.weight))
        head.append(QuantizedDense(np.stack(rows), np.array(scales, np.float32)))
        read = step(read)
    return Quantized(tuple(layers), tuple(head))


def _quantized_layer(plan: LayerPlan, x: Floats, h: Floats) -> QuantizedLayer:
    before = np.concatenate([np.zeros_like(h[:1]), h[:-1]])
    w_x, w_h = np.zeros(plan.w_x.shape, np.int8), np.zeros(plan.w_h.shape, np.int8)
    scale_x, scale_h = np.ones((plan.units, 4), np.float32), np.ones((plan.units, 4), np.float32)
    for unit in range(plan.units):
        steps = np.flatnonzero(plan.table[:, unit])  # only what it reads while it is open matters
        columns = slice(plan.row[unit], plan.row[unit + 1])
        of_x, of_h = _moments(x[steps]), _moments(before[steps][..., : columns.stop - columns.start])
        for gate in range(4):
            w_x[unit, :, gate], scale_x[unit, gate] = _quantized_row(plan.w_x[unit, :, gate], of_x)
            w_h[columns, gate], scale_h[unit, gate] = _quantized_row(plan.w_h[columns, gate], of_h)
    return QuantizedLayer(w_x, w_h, scale_x, scale_h)


def _moments(inputs: Floats) -> Floats:
    """Mean products of a row's inputs with each other, over samples (..., columns)."""
    flat = inputs.reshape(math.prod(inputs.shape[:-1]), inputs.shape[-1])
    return flat.T @ flat / np.float32(max(1, len(flat)))


def _quantized_row(row: Floats, moments: Floats) -> tuple[Bytes, np.float32]:
    """With e the rounding errors of a row, the mean squared error of its sum is e M e."""
    largest = np.abs(row).max(initial=0.0)
    if largest == 0:
        return np.zeros(row.shape, np.int8), np.float32(1)
    scales = CLIPPED[:, None] * largest / LARGEST
    rounded = np.clip(np.round(row / scales), -LARGEST, LARGEST)
    errors = rounded * scales - row
    best = int(np.einsum("si,ij,sj->s", errors, moments, errors).argmin())
    return rounded[best].astype(np.int8), np.float32(scales[best, 0])


def constant_bytes_int8(plan: Plan, int8: Quantized) -> int:
    """As `constant_bytes`, with the weights in 8 bits and their scales."""
    weights = [array for layer in plan.layers for array in (layer.w_x, layer.w_h)]
    weights += [dense.weight for dense in plan.head.dense]
    scales = [array for layer in int8.layers for array in (layer.scale_x, layer.scale_h)]
    scales += [dense.scale for dense in int8.head]
    return constant_bytes(plan) - sum(3 * array.size for array in weights) + sum(array.nbytes for array in scales)


@torch.no_grad()
def dequantized(model: SequenceModel, plan: Plan, int8: Quantized) -> SequenceModel:
    """The model in float32, with the values of the 8-bit weights: it computes what the int8 network computes."""
    model = copy.deepcopy(model).float().cpu()
    layer = model.layer
    for (depth, suffix), one, own in zip(layer.places(), plan.layers, int8.layers, strict=True):
        below = units_left(plan.levels[depth - 1], layer.hidden_size) if depth else np.arange(layer.input_size)
        for gate in range(4):
            rows = one.unit_numbers + gate * layer.hidden_size
            w_ih, w_hh = (weight.numpy() for weight in layer.weights(suffix)[:2])
            w_ih[np.ix_(rows, below)] = own.w_x[:, :, gate] * own.scale_x[:, gate, None]
            for unit, row in enumerate(rows):
                columns = own.w_h[one.row[unit] : one.row[unit + 1], gate]
                w_hh[row, one.unit_numbers[: len(columns)]] = columns * own.scale_h[unit, gate]
    model.head = _dequantized_head(plan, int8, layer.hidden_size).train(model.training)
    model.outputs = None  # their unit is part of the plan's weights
    return model


def _dequantized_head(plan: Plan, int8: Quantized, hidden: int) -> nn.Sequential:
    opening = plan.head.opening
    parts: list[nn.Module] = [] if opening is None else [nn.Identity(), *(one.module() for one in opening.then)]
    width = hidden * len(plan.levels[-1])
    for dense, own in zip(plan.head.dense, int8.head, strict=True):
        outputs, inputs = dense.weight.shape
        columns = slice(None) if parts else units_left(plan.levels[-1], hidden)
        weight = np.zeros((outputs, inputs if parts else width), np.float32)
        weight[:, columns] = own.weight * own.scale[:, None]
        linear = nn.Linear(weight.shape[1], outputs, device="meta")  # draws nothing
        linear.weight = nn.Parameter(torch.from_numpy(weight))
        linear.bias = nn.Parameter(torch.from_numpy(dense.bias.copy()))
        parts += [linear, *(one.module() for one in dense.then)]
    return nn.Sequential(*parts)
