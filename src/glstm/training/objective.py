"""A model on a task: what training and testing compute for a batch, as modules that call the model.

They are modules so that `torch.func.functional_call` can run them with other values: one network's row of the tensor of
all values, or, under `torch.vmap`, the rows of many networks at once.
"""

from contextlib import ExitStack

import torch
from torch import Tensor, nn

from glstm.data.task import Batch, Stage, Task
from glstm.layers import gated_layers
from glstm.masks import Keyed, key_of_part
from glstm.times import known_to_increase


class _OnTask(nn.Module):
    def __init__(self, model: nn.Module, task: Task, dtype: torch.dtype):
        super().__init__()
        self.model = model
        self.task, self.dtype = task, dtype

    def predict(self, batch: Batch, counted: bool) -> tuple[Tensor, list[Tensor]]:
        """The model's output, and, if they are counted, the tables of openness that its gated layers used."""
        with ExitStack() as stack:
            layers = gated_layers(self.model) if counted else []
            tables = [stack.enter_context(layer.recording_openness()) for layer in layers]
            stack.enter_context(known_to_increase())  # a task's times were checked when it was made
            prediction = self.model(batch.x.to(self.dtype), **batch.arguments()).to(self.dtype)
        return prediction, [table for own in tables for table in own]


class Objective(_OnTask):
    """The loss of a batch in training: the sum of its samples' losses, and the mean openness of the gates.

    This process takes the samples rank, rank + world, rank + 2 world and so on of the batch.
    """

    def __init__(self, model: nn.Module, task: Task, dtype: torch.dtype, rank: int = 0, world: int = 1):
        super().__init__(model, task, dtype)
        self.rank, self.world = rank, world
        self.keyed = [module for module in model.modules() if isinstance(module, Keyed)]

    def forward(self, key: Tensor, stage: Stage, wanted: slice | Tensor, charged: bool) -> Tensor:
        """Both in one tensor (2,), or only the first (1,) if there is no budget."""
        batch = Batch(*self.task.cut(stage, wanted)).share(self.rank, self.world, self.task.per_step)
        for part, module in enumerate(self.keyed):
            module.key = key_of_part(key, part)
        try:
            prediction, tables = self.predict(batch, counted=charged)
        finally:
            for module in self.keyed:
                module.key = None
        loss = self.task.losses(prediction, batch.y).sum()
        if not charged:
            return loss.unsqueeze(0)
        return torch.stack((loss, mean_openness(tables, batch.lengths) if tables else torch.zeros_like(loss)))


class Test(_OnTask):
    """Sums of losses and errors over a batch of the test or validation set; then mean openness, and the share of
    updates that were made, each NaN if the model has none. All float64."""

    def forward(self, *parts: Tensor | None) -> Tensor:
        """The parts of a batch."""
        batch = Batch(*parts)  # pyright: ignore[reportArgumentType]
        prediction, tables = self.predict(batch, counted=True)
        sums = [of(prediction, batch.y).double().sum() for of in (self.task.losses, self.task.errors)]
        return torch.stack([*sums, *self._shares(tables, sums[0], batch.lengths)])

    def _shares(self, tables: list[Tensor], like: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        if tables and lengths is not None:
            wide = [table.double() for table in tables]
            opened = [table.gt(0).double() for table in wide]
            return mean_openness(wide, lengths), mean_openness(opened, lengths)
        if tables:
            k = torch.cat([table.flatten() for table in tables])
            return k.double().mean(), k.gt(0).double().mean()
        nothing = torch.full_like(like, torch.nan)
        found = (getattr(module, "share_of_updates", None) for module in self.model.modules())
        measured = [share.double() for share in found if isinstance(share, Tensor)]
        return nothing, torch.stack(measured).mean() if measured else nothing


def mean_openness(tables: list[Tensor], lengths: Tensor | None = None) -> Tensor:
    """Over steps and units of each layer and direction, then over these; padding after a sequence does not count."""
    if lengths is None:
        means = [table.mean() for table in tables]
    else:
        each = [_weighted(table, lengths) for table in tables]
        means = [(k * weight).sum() / weight.expand_as(k).sum() for k, weight in each]
    return means[0] if len(means) == 1 else torch.stack(means).mean()


def _weighted(table: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """k (T, H) or (T, B, H), and how many real steps each of its rows stands for, in a shape that fits it."""
    real = torch.arange(len(table), device=table.device)[:, None] < lengths
    return table, (real if table.dim() == 3 else real.sum(1)).unsqueeze(-1).to(table.dtype)
