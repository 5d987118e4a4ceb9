"""A plan: all constant data of a deployed network, which is the schedule (which unit is open when) and the weights.

k does not depend on the input, so all of this is known before the first sample arrives. Weights that are never read are
left out. Arrays are laid out as in `native/stream.h`, which says what they mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from glstm.analysis import count_cached_ops, count_ops
from glstm.gated import GatedLSTM
from glstm.gates import Open
from glstm.models import DropConnect, SequenceModel

Floats = NDArray[np.float32]

MOST_UNITS = 2**16 - 1  # a unit's number has 16 bits


@dataclass(frozen=True)
class LayerPlan:
    """The constant data of one layer. Its units are those that ever open, in the order of their first opening."""

    inputs: int
    units: int
    most_open: int  # the largest number of units that are open at once
    logistic: bool
    unit_numbers: NDArray[np.int64]  # which of the trained layer's units these are
    table: Floats  # k (T, units)
    start: NDArray[np.uint32]
    change: NDArray[np.uint32]
    opens: NDArray[np.uint16]
    k: Floats | None  # of open units only; None: all 1
    row: NDArray[np.uint32]
    w_x: Floats
    w_h: Floats
    bias: Floats

    @property
    def spans(self) -> int:
        return len(self.start) - 1

    @property
    def numbers(self) -> int:
        """Floats of state."""
        return 6 * self.units + 2 * self.most_open

    def place(self, steps: int) -> tuple[int, int, int]:
        """The position in the schedule after `steps` steps: spans begun, k read, units that were ever open."""
        past = self.table[:steps] > 0
        spans = int(np.searchsorted(self.start[:-1], steps, "left"))
        return spans, int(past.sum()), int(past.any(0).sum())

    @property
    def constants(self) -> list[np.ndarray]:
        """The arrays that the network reads while it runs."""
        arrays = (self.start, self.change, self.opens, self.k, self.row, self.w_x, self.w_h, self.bias)
        return [array for array in arrays if array is not None]

    @property
    def ops(self) -> int:
        return count_cached_ops(torch.from_numpy(self.table), self.inputs)


@dataclass(frozen=True)
class DensePlan:
    """One linear layer of the head, (outputs, inputs), and whether a ReLU follows."""

    weight: Floats
    bias: Floats
    relu: bool

    @property
    def outputs(self) -> int:
        return self.weight.shape[0]


@dataclass(frozen=True)
class Plan:
    """The constant data of a whole network."""

    layers: tuple[LayerPlan, ...]
    head: tuple[DensePlan, ...]
    steps: int
    hidden: int  # units a layer had before those that never open were left out

    @property
    def inputs(self) -> int:
        return self.layers[0].inputs

    @property
    def outputs(self) -> int:
        return self.head[-1].outputs

    @property
    def state_bytes(self) -> int:
        """The size of all data that changes: the step, and each layer's place and numbers, four bytes each."""
        return 4 * (1 + sum(3 + layer.numbers for layer in self.layers))

    @property
    def ops(self) -> int:
        """The exact number of operations of one sequence through the layers: see `count_cached_ops`."""
        return sum(layer.ops for layer in self.layers)

    @property
    def lstm_ops(self) -> float:
        """The operations of a plain LSTM of the original size."""
        widths = [self.inputs, *[self.hidden] * (len(self.layers) - 1)]
        return sum(count_ops(self.steps, self.hidden, width) for width in widths)

    @property
    def openness(self) -> float:
        """The share of all (step, unit) pairs at which the unit is open, of all units the network had."""
        pairs = sum(np.count_nonzero(layer.table) for layer in self.layers)
        return pairs / (len(self.layers) * self.steps * self.hidden)


def make_plan(model: SequenceModel, times: Tensor, threshold: float) -> Plan:
    """`times` (T,) are those of the steps; units at k <= threshold are closed."""
    layer = model.layer
    if layer.hidden_size > MOST_UNITS:
        raise ValueError(f"a layer can be deployed with up to {MOST_UNITS} units, but this one has {layer.hidden_size}")
    _check_finite(model)
    first = linear_parts(model.head)[0]
    if isinstance(first, nn.Linear) and first.in_features != layer.hidden_size:
        raise ValueError(f"the head reads {first.in_features} numbers, but the layer has {layer.hidden_size} units")
    if layer.unfitted:
        layer.fit_times(times)
    tables = _tables(layer, times, threshold)
    layers: list[LayerPlan] = []
    for (depth, suffix), table in zip(layer.places(), tables, strict=True):
        below = layers[-1].unit_numbers if depth else np.arange(layer.input_size)
        layers.append(_layer_plan(layer, suffix, table, below))
    return Plan(tuple(layers), tuple(_head_plan(model.head, layers[-1].unit_numbers)), len(times), layer.hidden_size)


def _check_finite(model: nn.Module) -> None:
    for name, value in model.state_dict().items():
        if not bool(value.isfinite().all()):
            raise ValueError(f"{name} holds nan or infinite values: this network has diverged, and cannot be deployed")


@torch.no_grad()
def _tables(layer: GatedLSTM, times: Tensor, threshold: float) -> list[Floats]:
    """k (T, H) of each layer in evaluation. The layer itself is not changed: others may be using it."""
    times = times.to(next(layer.parameters()).device)
    return [
        _floats(layer.openness_at(suffix, times, threshold=threshold, training=False)) for _, suffix in layer.places()
    ]


def _layer_plan(layer: GatedLSTM, suffix: str, table: Floats, below: NDArray[np.int64]) -> LayerPlan:
    is_open = table > 0
    ever = np.flatnonzero(is_open.any(0))
    first = is_open[:, ever].argmax(0)
    unit_numbers = ever[np.argsort(first, kind="stable")]
    table = np.ascontiguousarray(table[:, unit_numbers])
    is_open = table > 0
    steps, units = table.shape
    first, last = np.sort(first), steps - 1 - is_open[::-1].argmax(0) if units else np.zeros(0, int)

    begins = np.flatnonzero(np.concatenate(([True], (is_open[1:] != is_open[:-1]).any(1))))
    counts = is_open[begins].sum(1)
    columns = np.searchsorted(first, last, "left")  # units that opened before the last step at which this one is open
    w_ih, w_hh, bias = _weights(layer, suffix)
    gates = (4, layer.hidden_size, -1)
    w_ih, w_hh = (w.reshape(gates)[:, unit_numbers].transpose(1, 2, 0) for w in (w_ih, w_hh))  # (units, columns, 4)
    rows = [w_hh[unit][unit_numbers[:count]] for unit, count in enumerate(columns)]
    return LayerPlan(
        inputs=len(below),
        units=units,
        most_open=max(1, int(is_open.sum(1).max(initial=0))),
        logistic=layer.candidate == "sigmoid",
        unit_numbers=unit_numbers,
        table=table,
        start=np.append(begins, steps).astype(np.uint32),
        change=np.append(0, counts.cumsum()).astype(np.uint32),
        opens=_whole(np.nonzero(is_open[begins])[1], np.uint16),
        k=None if isinstance(layer.gate, Open) else _whole(table[is_open], np.float32),
        row=np.append(0, columns.cumsum()).astype(np.uint32),
        w_x=_whole(w_ih[:, below], np.float32),
        w_h=_whole(np.concatenate([*rows, np.zeros((0, 4))]), np.float32),
        bias=_whole(bias.reshape(4, -1)[:, unit_numbers].T, np.float32),
    )


def _weights(layer: GatedLSTM, suffix: str) -> tuple[Floats, Floats, Floats]:
    weights = layer.weights(suffix)
    bias = weights.w_hh.new_zeros(4 * layer.hidden_size) if weights.bias is None else weights.bias
    return _floats(weights.w_ih), _floats(weights.w_hh), _floats(bias)


def _head_plan(head: nn.Module, unit_numbers: NDArray[np.int64]) -> list[DensePlan]:
    found: list[DensePlan] = []
    for part in linear_parts(head):
        if isinstance(part, nn.ReLU):
            found[-1] = DensePlan(found[-1].weight, found[-1].bias, relu=True)
            continue
        weight = _floats(part.weight)
        weight = weight if found else weight[:, unit_numbers]
        bias = np.zeros(len(weight), np.float32) if part.bias is None else _floats(part.bias)
        found.append(DensePlan(_whole(weight, np.float32), bias, relu=False))
    return found


def linear_parts(head: nn.Module) -> Sequence[nn.Linear | nn.ReLU]:
    """The head's modules in their order, without dropout, which does nothing in evaluation.

    Subclasses of the known types are refused: they may compute something else.
    """
    parts = list(head) if type(head) is nn.Sequential else [head]
    parts = [part for part in parts if type(part) not in (nn.Dropout, nn.Identity)]
    known = all(type(part) in (nn.Linear, DropConnect, nn.ReLU) for part in parts)
    if not known or not parts or isinstance(parts[0], nn.ReLU):
        names = ", ".join(type(part).__name__ for part in parts) or "nothing"
        raise ValueError(f"a head is a Linear, or a Sequential of Linear and ReLU that begins with Linear, not {names}")
    return parts  # pyright: ignore[reportReturnType]


def _floats(tensor: Tensor) -> Floats:
    """A copy, so that later changes of the model do not change the plan."""
    return tensor.detach().cpu().float().numpy().copy()


def _whole(array: np.ndarray, dtype: type[np.generic]) -> np.ndarray:
    """Contiguous in memory, as C reads it."""
    return np.ascontiguousarray(array, dtype)


def constant_bytes(plan: Plan) -> int:
    arrays = [array for layer in plan.layers for array in layer.constants]
    arrays += [getattr(dense, field.name) for dense in plan.head for field in fields(dense) if field.name != "relu"]
    return sum(array.nbytes for array in arrays)
