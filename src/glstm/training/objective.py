"""A model on a task: what training and testing compute for a batch, as modules that call the model.

They are modules so that `torch.func.functional_call` can run them with other values: one network's row of the tensor of
all values, or, under `torch.vmap`, the rows of many networks at once.
"""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from glstm.data.task import Batch, Stage, Task
from glstm.layers import gated_layers
from glstm.masks import Keyed, key_of_part
from glstm.times import known_to_increase
from glstm.training.openness import mean_openness, openness_count, openness_sum


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
    """The loss of a batch in training: the sum of its samples' losses, that of cells, and the mean openness of gates.

    This process takes the samples rank, rank + world, rank + 2 world and so on of the batch.
    """

    def __init__(self, model: nn.Module, task: Task, dtype: torch.dtype, rank: int = 0, world: int = 1):
        super().__init__(model, task, dtype)
        self.rank, self.world = rank, world
        self.keyed = [module for module in model.modules() if isinstance(module, Keyed)]
        self.with_extras: list[Any] = [module for module in model.modules() if hasattr(module, "extra_losses")]

    def forward(self, key: Tensor, stage: Stage, wanted: slice | Tensor, charged: bool) -> Tensor:
        """In one tensor (3,): the loss, what cells want to be added to it, and the mean openness, if it is charged."""
        whole = Batch(*self.task.cut(stage, wanted))
        batch = whole.share(self.rank, self.world, self.task.per_step)
        for part, module in enumerate(self.keyed):
            module.key = key_of_part(key, part)
        try:
            prediction, tables = self.predict(batch, counted=charged)
        finally:
            for module in self.keyed:
                module.key = None
        losses = self.task.losses(prediction, batch.y)
        extra = losses.new_zeros(())
        for module in self.with_extras:
            errors = self.task.errors(prediction, batch.y).detach() if self.task.as_percent else None
            extra = extra + module.extra_losses(losses.detach(), errors).sum()
        shares = take_shares_of_updates(self.model)
        openness = losses.new_zeros(())
        if charged:
            openness = self._charge(tables, batch, whole) if tables else self._updates(shares, batch, whole)
        return torch.stack((losses.sum(), extra, openness))

    def _updates(self, shares: list[Tensor], batch: Batch, whole: Batch) -> Tensor:
        """The share of updates of a cell that decides for itself what to skip; 0: there is none. As with openness, the
        mean of this over processes is that of the whole batch."""
        if not shares:
            return batch.x.new_zeros((), dtype=self.dtype)
        found = torch.stack(shares).mean().to(self.dtype)
        return found if self.world == 1 else found * self.world * real_steps(batch) / real_steps(whole)

    def _charge(self, tables: list[Tensor], batch: Batch, whole: Batch) -> Tensor:
        """The mean of this over processes is the mean openness of the whole batch."""
        if self.world == 1:
            return mean_openness(tables, batch.lengths)
        own = openness_sum(tables, batch.size, batch.lengths)
        return self.world * own / openness_count(tables, whole.size, whole.lengths)


class Test(_OnTask):
    """Sums over a batch of the test or validation set, all float64: of losses and errors; of openness, with its count;
    and of updates that were made, with their count. The counts are 0 if the model has none."""

    def forward(self, *parts: Tensor | None) -> Tensor:
        """The parts of a batch."""
        batch = Batch(*parts)  # pyright: ignore[reportArgumentType]
        prediction, tables = self.predict(batch, counted=True)
        sums = [of(prediction, batch.y).double().sum() for of in (self.task.losses, self.task.errors)]
        return torch.stack([*sums, *self._openness(tables, batch, sums[0])])

    def _openness(self, tables: list[Tensor], batch: Batch, like: Tensor) -> list[Tensor]:
        if tables:
            wide = [table.double() for table in tables]
            opened = [table.gt(0).double() for table in wide]
            count = openness_count(wide, batch.size, batch.lengths)
            sums = [openness_sum(each, batch.size, batch.lengths) for each in (wide, opened)]
            return [sums[0], count, sums[1], count]
        nothing = torch.zeros_like(like)
        measured = [share.double() for share in take_shares_of_updates(self.model)]
        if not measured:
            return [nothing] * 4
        steps = torch.ones_like(like) * real_steps(batch)
        return [nothing, nothing, torch.stack(measured).mean() * steps, steps]


def skips(model: nn.Module) -> bool:
    """Whether it has a cell that decides for itself what to skip."""
    return any(hasattr(module, "share_of_updates") for module in model.modules())


def take_shares_of_updates(model: nn.Module) -> list[Tensor]:
    """Of the last call, from each cell that says so, once: what stayed at the cell would keep a graph in memory, and
    after `torch.vmap` it would be no tensor any more."""
    found: list[Tensor] = []
    for module in model.modules():
        share = getattr(module, "share_of_updates", None)
        if isinstance(share, Tensor):
            found.append(share)
            setattr(module, "share_of_updates", None)  # noqa: B010
    return found


def real_steps(batch: Batch) -> int | Tensor:
    """Of all sequences together, without padding."""
    return len(batch.x) * batch.size if batch.lengths is None else batch.lengths.sum()
