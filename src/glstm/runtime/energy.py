"""What a deployed network needs of a machine, and the energy of that on paper, beside a plain LSTM's."""

from dataclasses import dataclass
from itertools import pairwise

import torch

from glstm.analysis.energy import MACHINES, NUMBER, OPENNESS, Work, work_of_dense, work_of_layer, work_of_lstm
from glstm.runtime.plan import Plan, constant_bytes
from glstm.runtime.timed_plan import TimedLayer, TimedPlan


@dataclass(frozen=True)
class Energy:
    """Joules of one sequence, estimated: of this network, and of a plain LSTM of the size before pruning."""

    network: float
    lstm: float


def energy_of(plan: Plan) -> dict[str, Energy]:
    """For each machine of `glstm.analysis.energy`, by its name."""
    own, dense = work_of(plan), lstm_work_of(plan)
    own_bytes = constant_bytes(plan), plan.state_bytes
    read = plan.hidden * len(plan.levels[-1])
    weights = sum(4 * plan.hidden * (width + plan.hidden + 1) for width in _widths(plan)) + _head(plan, read).constants
    dense_bytes = NUMBER * weights, NUMBER * 2 * plan.hidden * len(plan.layers)
    return {one.name: Energy(one.joules(own, *own_bytes), one.joules(dense, *dense_bytes)) for one in MACHINES}


def work_of(plan: Plan) -> Work:
    """Of one sequence, layers and head; of a plan without known steps, of those that its `ops` are about."""
    head = _head(plan, plan.read) * _readings(plan)
    if isinstance(plan, TimedPlan):
        return sum((_timed_work(plan, layer) for layer in plan.layers), head)
    tables = ((torch.from_numpy(layer.table), layer) for layer in plan.layers)
    return sum((work_of_layer(k, layer.inputs, reads_k=layer.k is not None) for k, layer in tables), head)


def _timed_work(plan: TimedPlan, layer: TimedLayer) -> Work:
    """That of all steps, without that of those before."""
    before, times = plan.counted_times
    k = torch.from_numpy(layer.openness(plan.scale.moments(times)))
    whole, until = (work_of_layer(part, layer.inputs, reads_k=False) for part in (k, k[:before]))
    return whole - until + OPENNESS.get(layer.shape, Work()) * int(k[before:].count_nonzero())


def lstm_work_of(plan: Plan) -> Work:
    """Of a plain LSTM of the original size, with the same head."""
    layers = (work_of_lstm(plan.steps, plan.hidden, width) for width in _widths(plan))
    return sum(layers, _head(plan, plan.hidden * len(plan.levels[-1])) * _readings(plan))


def _widths(plan: Plan) -> list[int]:
    """The inputs of each layer before units were left out."""
    directions = len(plan.levels[-1])
    return [plan.layers[0].inputs] * directions + [plan.hidden * directions] * (len(plan.layers) - directions)


def _head(plan: Plan, read: int) -> Work:
    """A row of so many numbers through the head's linear layers."""
    widths = [read, *(dense.outputs for dense in plan.head.dense)]
    return sum((work_of_dense(*pair) for pair in pairwise(widths)), Work())


def _readings(plan: Plan) -> int:
    return plan.steps if plan.every else 1
