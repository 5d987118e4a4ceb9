"""The error of a trained network and its cost in operations, at any threshold.

`Cost` counts operations; the time of the C engine is estimated in `glstm/ops/cost.py`.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from glstm.advice import check
from glstm.analysis import count_cached_ops, count_ops, operations_of
from glstm.analysis.operations import kernels, knows_operations, widths
from glstm.data.task import Batch, Task
from glstm.errors import UserError
from glstm.gated import GatedLSTM
from glstm.layers import gated_layers
from glstm.training.objective import real_steps, skips, take_shares_of_updates

TEST_BATCH = 500  # larger than in training: without gradients less memory is needed


@dataclass(frozen=True)
class Cost:
    mean_k: float  # mean openness
    open_share: float  # the share of all (step, unit) pairs at which the unit is open at all
    lstm_ops: float  # a plain LSTM of this size
    paper_ops: float  # the paper's count at this openness
    cached_ops: float  # the exact count, when frozen contributions are stored and weights that are 0 are left out


@dataclass(frozen=True)
class CellCost:
    """Of a network without gates."""

    updates: float  # the share of all steps at which the state is updated; 1 of a cell that skips nothing
    ops: float  # of a sequence, at that share, on average


OF_STEPS = ("mean_k", "open_share")  # means over steps; the others are numbers of a sequence


@contextmanager
def evaluating(*models: nn.Module):
    """The models in evaluation mode, then every part of them as it was."""
    before = [(module, module.training) for model in models for module in model.modules()]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for module, was_training in before:
            module.training = was_training


@torch.no_grad()
def openness_in_use(layer: GatedLSTM, times: int | Tensor) -> Tensor:
    """k in evaluation, on the CPU. It differs from training: the Phased LSTM, for example, leaks in training only."""
    with evaluating(layer):
        return layer.openness(times).cpu()


def first_gates(model: nn.Module, task: Task) -> Tensor | None:
    """k (T, H) of the first layer with gates at the task's times, on the CPU; None: there is no such layer."""
    layers = [layer for layer in gated_layers(model) if layer.gate.names]
    return openness_in_use(layers[0], task.grid())[0].float() if layers else None


def check_opening(model: nn.Module, gates: Tensor | None, task: Task) -> None:
    """Whether anything can be learned at all; `gates` are the model's `first_gates`."""
    if gates is not None and gates.max() < 1e-3:
        values = " and ".join(next(layer.gate.names for layer in gated_layers(model) if layer.gate.names))
        counted = task.times is None and not task.own_times
        why = check(model, task.steps if counted else task.grid())
        raise UserError(
            f"no gate opens within the {task.steps} steps of {task.name}: {why[0] if why else f'look at its {values}'}"
        )


def mean_cost(layer: GatedLSTM, task: Task, part: str = "test") -> Cost:
    """The mean cost of a sequence of the task, with the layer's current threshold; its openness is the mean over steps,
    as in `glstm/training/openness.py`."""
    if task.equally_long and not task.own_times:
        return cost(layer, task.steps if task.times is None else task.times)
    found = [one for batch in task.batches(part, TEST_BATCH) for one in _costs(layer, Batch(*batch))]

    def mean(name: str) -> float:
        weights = [count * steps if name in OF_STEPS else count for count, steps, _ in found]
        total = sum(weight * getattr(one, name) for weight, (_, _, one) in zip(weights, found, strict=True))
        return total / sum(weights)

    return Cost(*(mean(field.name) for field in fields(Cost)))


def _costs(layer: GatedLSTM, batch: Batch) -> Iterator[tuple[int, int, Cost]]:
    """Of sequences that cost the same: how many there are, of how many steps, and what one costs."""
    steps, count = batch.x.shape[:2]
    lengths = [steps] * count if batch.lengths is None else batch.lengths.tolist()
    if batch.times is not None and batch.times.dim() == 2:
        for sequence, length in enumerate(lengths):
            yield 1, length, cost(layer, batch.times[:length, sequence])
        return
    for length in sorted(set(lengths)):
        times = length if batch.times is None else batch.times[:length]
        yield lengths.count(length), length, cost(layer, times)


def cost(layer: GatedLSTM, times: int | Tensor) -> Cost:
    """The cost of one sequence at these times, or of so many steps at 1, 2, ..., with the layer's current threshold."""
    tables, inputs = openness_in_use(layer, times), widths(layer)
    steps = tables.shape[1]
    share = tables.gt(0).double().mean().item()
    return Cost(
        mean_k=tables.double().mean().item(),
        open_share=share,
        lstm_ops=sum(count_ops(steps, layer.hidden_size, width) for width in inputs),
        paper_ops=sum(
            count_ops(steps, layer.hidden_size, width, table.gt(0).double().mean().item())
            for table, width in zip(tables, inputs, strict=True)
        ),
        cached_ops=sum(
            count_cached_ops(table, width, own)
            for table, width, own in zip(tables, inputs, kernels(layer), strict=True)
        ),
    )


def cell_cost(model: nn.Module, task: Task, batch: int = TEST_BATCH) -> CellCost | None:
    """The mean cost of a test sequence through a model's recurrent layer, with the updates that it makes there; None of
    a cell whose operations nobody knows."""
    layer = next((module for module in model.modules() if knows_operations(module)), None)
    if layer is None:
        return None
    updates, lengths = _measured(model, task, batch)
    operations = sum(count * operations_of(layer, length, updates) for length, count in lengths.items())
    return CellCost(updates, operations / lengths.total())


@torch.no_grad()
def _measured(model: nn.Module, task: Task, batch: int) -> tuple[float, Counter[int]]:
    """The share of updates over the test set, and how many sequences of each length it has."""
    skipping = skips(model)
    if task.equally_long and not skipping:
        return 1.0, Counter({task.steps: 1})
    made, steps, lengths = 0.0, 0.0, Counter[int]()
    predict = predict_with(model)
    with evaluating(model):
        for found in task.batches("test", batch):
            own = Batch(*found)
            lengths.update([len(own.x)] * own.size if own.lengths is None else own.lengths.tolist())
            if skipping:
                predict(own)
                real = float(real_steps(own))
                made += real * float(torch.stack(take_shares_of_updates(model)).mean())
                steps += real
    return made / steps if skipping else 1.0, lengths


@contextmanager
def threshold_at(layer: GatedLSTM, threshold: float):
    before, layer.threshold = layer.threshold, threshold
    try:
        yield
    finally:
        layer.threshold = before


def error_sums(
    model: nn.Module, task: Task, batch: int = TEST_BATCH, on_batch: Callable[[], object] = lambda: None
) -> tuple[Tensor, Tensor]:
    """Sums over the test set: (loss, error), float64 on the task's device."""
    with evaluating(model):
        return sums_of(predict_with(model), task, batch, on_batch=on_batch)


def predict_with(model: nn.Module) -> Callable[[Batch], Tensor]:
    """The model as a function of a batch, whose steps come first whatever layout the model has."""
    dtype = next(model.parameters()).dtype
    if not getattr(getattr(model, "layer", None), "batch_first", False):
        return lambda batch: model(batch.x.to(dtype), **batch.arguments())

    def predict(batch: Batch) -> Tensor:
        times = batch.times if batch.times is None or batch.times.dim() == 1 else batch.times.T
        return _steps_first(model(batch.x.to(dtype).transpose(0, 1), times, batch.lengths))

    return predict


def _steps_first(outputs: Tensor) -> Tensor:
    """Of a model with batch_first: (B, T, K) -> (T, B, K); what has no steps stays."""
    return outputs.transpose(0, 1) if outputs.dim() == 3 else outputs


def predict_deployed(runtime: Callable[[Tensor], Tensor]) -> Callable[[Batch], Tensor]:
    """A deployed network, which takes sequences of one length at a time, as a function of a batch.

    Its schedule is that of the shared times, so it is given none.
    """
    batch_first = getattr(runtime, "batch_first", False)

    def run(x: Tensor) -> Tensor:
        return _steps_first(runtime(x.transpose(0, 1))) if batch_first else runtime(x)

    def predict(batch: Batch) -> Tensor:
        if batch.lengths is None:
            return run(batch.x)
        found: list[Tensor] = [torch.empty(0)] * batch.size
        for length in batch.lengths.unique().tolist():
            alike = (batch.lengths == length).nonzero().flatten().tolist()
            outputs = run(batch.x[:length, alike])
            padded = pad(outputs, (0, 0, 0, 0, 0, len(batch.x) - length)) if outputs.dim() == 3 else outputs
            for place, one in zip(alike, padded.unbind(-2), strict=True):
                found[place] = one
        return torch.stack(found, -2)

    return predict


@torch.no_grad()
def confusion(model: nn.Module, task: Task, batch: int = TEST_BATCH) -> Tensor:
    """How often each class of the test set (rows) was taken for each class (columns); targets of steps, too."""
    counts = torch.zeros(task.outputs, task.outputs, dtype=torch.int64)
    predict = predict_with(model)
    with evaluating(model):
        for found in task.batches("test", batch):
            own = Batch(*found)
            truth, answer = own.y.flatten().cpu(), predict(own).argmax(-1).flatten().cpu()
            known = truth >= 0
            places = truth[known] * task.outputs + answer[known]
            counts += places.bincount(minlength=task.outputs**2).view_as(counts)
    return counts


@torch.no_grad()
def sums_of(
    predict: Callable[[Batch], Tensor],
    task: Task,
    batch: int = TEST_BATCH,
    *,
    on_batch: Callable[[], object] = lambda: None,
) -> tuple[Tensor, Tensor]:
    """Sums over the test set: (loss, error), float64."""
    losses = errors = torch.zeros((), dtype=torch.float64, device=task.device)
    for found in task.batches("test", batch):
        own = Batch(*found)
        prediction = predict(own)
        losses = losses + task.losses(prediction, own.y).double().sum()
        errors = errors + task.errors(prediction, own.y).double().sum()
        on_batch()
    return losses, errors
