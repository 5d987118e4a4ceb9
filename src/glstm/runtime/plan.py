"""A plan: all constant data of a deployed network, which is the schedule (which unit is open when) and the weights.

k does not depend on the input, so all of this is known before the first sample arrives. Weights that are never read are
left out. Arrays are laid out as in `native/stream.h`, which says what they mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from glstm.analysis import count_cached_ops, count_ops
from glstm.errors import UserError
from glstm.gated import GatedLSTM
from glstm.gates import Open
from glstm.models import SequenceModel, width_of
from glstm.runtime.head import HeadPlan, head_plan, outputs_of
from glstm.runtime.raw import Floats, InputPlan, OutputUnit, floats, input_plan, output_unit

POOLS = (None, "mean", "max")  # numbered as in native/stream.h; what to do with missing inputs is, too: see `MISSING`
MOST_UNITS = 2**16 - 1  # a unit's number has 16 bits


@dataclass(frozen=True)
class LayerPlan:
    """The constant data of one layer and direction. Its units are those that ever open, in the order of their first
    opening. The steps of a backward direction are in the order in which it takes them: the last comes first."""

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
    pool: str | None  # "mean" or "max": what the head reads of all h so far; None: it reads the last h
    backwards: bool

    @property
    def spans(self) -> int:
        return len(self.start) - 1

    @property
    def numbers(self) -> int:
        """Floats of state."""
        return 6 * self.units + 2 * self.most_open + (self.units if self.pool else 0)

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


@dataclass(frozen=True)
class Plan:
    """The constant data of a whole network."""

    layers: tuple[LayerPlan, ...]  # of two directions, the backward one comes after the forward one
    head: HeadPlan
    times: NDArray[np.float64]  # of the steps
    hidden: int  # units a layer had before those that never open were left out
    standard: InputPlan | None  # how inputs are standardised; None: they are read as they are
    every: bool  # the head reads at every step, not only at the last
    unit: OutputUnit  # of the outputs
    classes: tuple[str, ...] | None  # names of the outputs

    @property
    def steps(self) -> int:
        return len(self.times)

    @property
    def inputs(self) -> int:
        """Numbers in a sample, as it is given."""
        return self.layers[0].inputs if self.standard is None else self.standard.size

    @property
    def outputs(self) -> int:
        return self.head.outputs

    @property
    def two_ways(self) -> bool:
        """Whether it reads a window from both ends: then it takes whole windows only."""
        return self.layers[-1].backwards

    @property
    def levels(self) -> list[tuple[LayerPlan, ...]]:
        """The layers, both directions of each together."""
        directions = 1 + self.two_ways
        return [self.layers[first : first + directions] for first in range(0, len(self.layers), directions)]

    @property
    def read(self) -> int:
        """Numbers that the head reads."""
        return sum(layer.units for layer in self.levels[-1])

    @property
    def pool(self) -> str | None:
        """What the head reads: see `LayerPlan`."""
        return self.layers[-1].pool

    @property
    def missing(self) -> str:
        """What a NaN in a sample becomes; "refuse": it stays."""
        return "refuse" if self.standard is None else self.standard.missing

    @property
    def numbers(self) -> int:
        """Floats of state: of all layers, and the last inputs, where missing ones take their place."""
        return sum(layer.numbers for layer in self.layers) + (0 if self.missing == "refuse" else self.inputs)

    @property
    def widest(self) -> int:
        """Outputs of the head's widest stage."""
        return max(stage.outputs for stage in self.head.stages(self.read))

    @property
    def space(self) -> int:
        """Floats that computing an output needs for a while."""
        return 2 * self.widest + (self.read if self.pool == "mean" or self.two_ways else 0)

    @property
    def kept_rows(self) -> list[int]:
        """Of two directions: how wide the rows are, one a step, that are kept of a window. These are the standardised
        inputs and what each layer gives; of the last one only if the head reads every step."""
        if not self.two_ways:
            return []
        levels = self.levels if self.every else self.levels[:-1]
        return [self.layers[0].inputs] * (self.standard is not None) + [sum(one.units for one in two) for two in levels]

    @property
    def room(self) -> int:
        """Floats that hold the rows kept: two of those at a time, as a layer reads one and writes the other."""
        return self.steps * max(self.kept_rows, default=0) * min(2, len(self.kept_rows))

    @property
    def state_bytes(self) -> int:
        """The size of all data that changes: the step, each layer's place, the numbers and the rows kept of a window,
        four bytes each."""
        return 4 * (1 + 3 * len(self.layers) + self.numbers + self.room)

    @property
    def ops(self) -> int:
        """The exact number of operations of one sequence through the layers: see `count_cached_ops`."""
        return self.ops_of(self.steps)

    def ops_of(self, steps: int) -> int:
        """Of the first steps of a sequence."""
        return sum(count_cached_ops(torch.from_numpy(layer.table[:steps]), layer.inputs) for layer in self.layers)

    def require_one_way(self) -> None:
        """Refuse what takes one sample after the other, of a network that reads from both ends."""
        if self.two_ways:
            raise UserError(
                "a bidirectional layer reads a window from both ends, so no sample can be taken as it comes: call the "
                "runtime with whole windows"
            )

    def require_window(self, length: int) -> None:
        """Refuse windows on a stream that has none, or of more steps than the plan has."""
        self.require_one_way()
        if length > self.steps:
            raise UserError(f"this network was deployed for {self.steps} steps, so a window cannot have {length}")

    @property
    def lstm_ops(self) -> float:
        """The operations of a plain LSTM of the original size."""
        directions = 1 + self.two_ways
        widths = [self.layers[0].inputs] * directions
        widths += [self.hidden * directions] * (len(self.layers) - directions)
        return sum(count_ops(self.steps, self.hidden, width) for width in widths)

    @property
    def openness(self) -> float:
        """The share of all (step, unit) pairs at which the unit is open, of all units the network had."""
        pairs = sum(np.count_nonzero(layer.table) for layer in self.layers)
        return pairs / (len(self.layers) * self.steps * self.hidden)


def make_plan(
    model: SequenceModel,
    times: Tensor,
    threshold: float,
    *,
    every: bool | None = None,
    tables: list[Floats] | None = None,
) -> Plan:
    """`times` (T,) are those of the steps; units at k <= threshold are closed. `every`: whether the head reads at every
    step; None: as the model does. `tables`: k (T, H) of each layer, where they are not to be the gates' own."""
    layer = model.layer
    if width_of(layer) > MOST_UNITS:
        raise UserError(f"a layer can be deployed with up to {MOST_UNITS} units, but this one has {width_of(layer)}")
    _check_finite(model)
    if layer.unfitted:
        layer.fit_times(times)
    standard, unit = input_plan(model), output_unit(model, outputs_of(model))
    levels: list[list[LayerPlan]] = [[] for _ in range(layer.num_layers)]
    for (depth, suffix), table in zip(layer.places(), tables or _tables(layer, times, threshold), strict=True):
        below = units_left(levels[depth - 1], layer.hidden_size) if depth else np.arange(layer.input_size)
        pool = model.reads if model.reads in POOLS and depth + 1 == layer.num_layers else None
        levels[depth].append(_layer_plan(layer, suffix, table, below, pool))
    return Plan(
        tuple(one for level in levels for one in level),
        head_plan(model, units_left(levels[-1], layer.hidden_size)),
        times.double().numpy().copy(),
        layer.hidden_size,
        standard,
        every=model.reads == "every" if every is None else every,
        unit=unit,
        classes=model.classes,
    )


def units_left(level: Sequence[LayerPlan], hidden: int) -> NDArray[np.int64]:
    """Which of a trained layer's units are left, of both directions side by side."""
    return np.concatenate([one.unit_numbers + direction * hidden for direction, one in enumerate(level)])


def _check_finite(model: nn.Module) -> None:
    for name, value in model.state_dict().items():
        if not bool(value.isfinite().all()):
            raise UserError(f"{name} holds nan or infinite values: this network has diverged, and cannot be deployed")


@torch.no_grad()
def _tables(layer: GatedLSTM, times: Tensor, threshold: float) -> list[Floats]:
    """k (T, H) of each layer in evaluation. The layer itself is not changed: others may be using it."""
    given = times.to(next(layer.parameters()).device)
    tables = []
    for depth, suffix in layer.places():
        table = floats(layer.openness_at(suffix, given, threshold=threshold, training=False))
        if not (table > 0).any():
            most = float(layer.openness_at(suffix, given, threshold=0.0, training=False).max())
            raise UserError(_nothing_opens(layer, depth, times, threshold, most))
        tables.append(table)
    return tables


def _nothing_opens(layer: GatedLSTM, depth: int, times: Tensor, threshold: float, most: float) -> str:
    which = "" if layer.num_layers == 1 else f" of layer {depth + 1}"
    span = f"times {times[0].item():g} to {times[-1].item():g}"
    lower = f"choose a threshold below {most:.3g}, or " if most > 0 else ""
    return (
        f"no unit{which} opens above the threshold {threshold:g} at {span}, so no input would matter, for k is at most "
        f"{most:.3g} there: {lower}give times at which the gates are open"
    )


def _layer_plan(layer: GatedLSTM, suffix: str, table: Floats, below: NDArray[np.int64], pool: str | None) -> LayerPlan:
    backwards = suffix.endswith("_reverse")
    table = table[::-1] if backwards else table
    is_open = table > 0
    ever = np.flatnonzero(is_open.any(0))
    first = is_open[:, ever].argmax(0)
    unit_numbers = ever[np.argsort(first, kind="stable")]
    table = np.ascontiguousarray(table[:, unit_numbers])
    is_open = table > 0
    steps, units = table.shape
    first, last = np.sort(first), steps - 1 - is_open[::-1].argmax(0)

    columns = np.searchsorted(first, last, "left")  # units that opened before the last step at which this one is open
    w_ih, w_hh, bias = _weights(layer, suffix)
    gates = (4, layer.hidden_size, -1)
    w_ih, w_hh = (w.reshape(gates)[:, unit_numbers].transpose(1, 2, 0) for w in (w_ih, w_hh))  # (units, columns, 4)
    rows = [w_hh[unit][unit_numbers[:count]] for unit, count in enumerate(columns)]
    return LayerPlan(
        inputs=len(below),
        units=units,
        most_open=int(is_open.sum(1).max()),
        logistic=layer.candidate == "sigmoid",
        unit_numbers=unit_numbers,
        **spans_of(table, isinstance(layer.gate, Open)),
        row=np.append(0, columns.cumsum()).astype(np.uint32),
        w_x=_whole(w_ih[:, below], np.float32),
        w_h=_whole(np.concatenate([*rows, np.zeros((0, 4))]), np.float32),
        bias=_whole(bias.reshape(4, -1)[:, unit_numbers].T, np.float32),
        pool=pool,
        backwards=backwards,
    )


def spans_of(table: Floats, all_ones: bool) -> dict[str, Any]:
    """The schedule of a table k (T, units): which units are open in which spans."""
    is_open = table > 0
    begins = np.flatnonzero(np.concatenate(([True], (is_open[1:] != is_open[:-1]).any(1))))[: len(table)]
    return {
        "table": table,
        "start": np.append(begins, len(table)).astype(np.uint32),
        "change": np.append(0, is_open[begins].sum(1).cumsum()).astype(np.uint32),
        "opens": _whole(np.nonzero(is_open[begins])[1], np.uint16),
        "k": None if all_ones else _whole(table[is_open], np.float32),
    }


def _weights(layer: GatedLSTM, suffix: str) -> tuple[Floats, Floats, Floats]:
    weights = layer.weights(suffix)
    bias = weights.w_hh.new_zeros(4 * layer.hidden_size) if weights.bias is None else weights.bias
    return floats(weights.w_ih), floats(weights.w_hh), floats(bias)


def _whole(array: np.ndarray, dtype: type[np.generic]) -> np.ndarray:
    """Contiguous in memory, as C reads it."""
    return np.ascontiguousarray(array, dtype)


def constant_bytes(plan: Plan) -> int:
    arrays = [array for layer in plan.layers for array in layer.constants]
    arrays += plan.head.constants
    arrays += [] if plan.standard is None else [plan.standard.mean, plan.standard.scale]
    return sum(array.nbytes for array in arrays)
