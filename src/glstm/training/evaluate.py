"""What a trained network achieves, and what it costs, at any threshold."""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glstm.analysis import count_cached_ops, count_ops
from glstm.data import Task
from glstm.gated import GatedLSTM
from glstm.models import SequenceModel

TEST_BATCH = 500  # without gradients there is room for more than in training


@dataclass(frozen=True)
class Cost:
    mean_k: float  # mean openness
    open_share: float  # the share of all (step, unit) pairs at which the unit is open at all
    lstm_ops: float  # a plain LSTM of this size
    paper_ops: float  # the paper's count at this openness
    cached_ops: float  # exact, when frozen contributions are kept


@contextmanager
def evaluating(model: nn.Module):
    """The model in evaluation mode, then as it was."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@torch.no_grad()
def openness_in_use(layer: GatedLSTM, steps: int) -> Tensor:
    """k as it is in evaluation, on the CPU: the Phased LSTM's leak, for one, is only for training."""
    with evaluating(layer):
        return layer.openness(steps).cpu()


def cost(layer: GatedLSTM, steps: int) -> Cost:
    """The cost of one sequence of `steps` at times 1, 2, ..., under the layer's present threshold."""
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
    model: SequenceModel | nn.Module, task: Task, batch: int = TEST_BATCH, on_batch: Callable[[], object] = lambda: None
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
    """Sums over this rank's share of the test set: (loss, error), float64; one for each network that `predict`
    speaks for."""
    losses = errors = torch.zeros((), dtype=torch.float64, device=task.device)
    for x, y in task.batches("test", batch):
        prediction, target = predict(x[:, rank::world]), y[rank::world]
        losses = losses + task.losses(prediction, target).double().sum(-1)
        errors = errors + task.errors(prediction, target).double().sum(-1)
        on_batch()
    return losses, errors
