"""The error of a trained network and its cost in operations, at any threshold.

`Cost` counts operations; the time of the C engine is estimated in `glstm/ops/cost.py`.
"""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glstm.analysis import count_cached_ops, count_ops
from glstm.data.task import Task
from glstm.gated import GatedLSTM

TEST_BATCH = 500  # larger than in training: without gradients less memory is needed


@dataclass(frozen=True)
class Cost:
    mean_k: float  # mean openness
    open_share: float  # the share of all (step, unit) pairs at which the unit is open at all
    lstm_ops: float  # a plain LSTM of this size
    paper_ops: float  # the paper's count at this openness
    cached_ops: float  # the exact count, when frozen contributions are stored


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
def openness_in_use(layer: GatedLSTM, steps: int) -> Tensor:
    """k in evaluation, on the CPU. It differs from training: the Phased LSTM, for example, leaks in training only."""
    with evaluating(layer):
        return layer.openness(steps).cpu()


def cost(layer: GatedLSTM, steps: int) -> Cost:
    """The cost of one sequence of `steps` at times 1, 2, ..., with the layer's current threshold."""
    tables = openness_in_use(layer, steps)
    share = tables.gt(0).double().mean().item()
    widths = [
        layer.input_size if row < layer.num_directions else layer.hidden_size * layer.num_directions
        for row in range(len(tables))
    ]
    return Cost(
        mean_k=tables.double().mean().item(),
        open_share=share,
        lstm_ops=sum(count_ops(steps, layer.hidden_size, width) for width in widths),
        paper_ops=sum(
            count_ops(steps, layer.hidden_size, width, table.gt(0).double().mean().item())
            for table, width in zip(tables, widths, strict=True)
        ),
        cached_ops=sum(count_cached_ops(table, width) for table, width in zip(tables, widths, strict=True)),
    )


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
    dtype = next(model.parameters()).dtype
    with evaluating(model):
        return sums_of(lambda x: model(x.to(dtype)), task, batch, on_batch=on_batch)


@torch.no_grad()
def sums_of(
    predict: Callable[[Tensor], Tensor],
    task: Task,
    batch: int = TEST_BATCH,
    *,
    rank: int = 0,
    world: int = 1,
    on_batch: Callable[[], object] = lambda: None,
) -> tuple[Tensor, Tensor]:
    """Sums over this rank's share of the test set: (loss, error), float64."""
    losses = errors = torch.zeros((), dtype=torch.float64, device=task.device)
    for x, y in task.batches("test", batch):
        prediction, target = predict(x[:, rank::world]), y[rank::world]
        losses = losses + task.losses(prediction, target).double().sum()
        errors = errors + task.errors(prediction, target).double().sum()
        on_batch()
    return losses, errors
