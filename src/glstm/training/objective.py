"""A model on a task: what training and testing compute for a batch, as modules that call the model.

They are modules so that `torch.func.functional_call` can run them with other values: one network's row of the tensor of
all values, or, under `torch.vmap`, the rows of many networks at once.
"""

from contextlib import ExitStack

import torch
from torch import Tensor, nn

from glstm.data.task import Stage, Task
from glstm.layers import gated_layers
from glstm.masks import Keyed, key_of_part


class _OnTask(nn.Module):
    def __init__(self, model: nn.Module, task: Task, dtype: torch.dtype):
        super().__init__()
        self.model = model
        self.task, self.dtype = task, dtype

    def predict(self, x: Tensor, counted: bool) -> tuple[Tensor, list[Tensor]]:
        """The model's output, and, if they are counted, the tables of openness that its gated layers used."""
        with ExitStack() as stack:
            layers = gated_layers(self.model) if counted else []
            tables = [stack.enter_context(layer.recording_openness()) for layer in layers]
            prediction = self.model(x.to(self.dtype)).to(self.dtype)
        return prediction, [table for own in tables for table in own]


class Objective(_OnTask):
    """The loss of a batch in training: the sum of its samples' losses, and the mean openness of the gates.

    This process takes the samples rank, rank + world, rank + 2 world and so on of the batch.
    """

    def __init__(self, model: nn.Module, task: Task, dtype: torch.dtype, rank: int = 0, world: int = 1):
        super().__init__(model, task, dtype)
        self.share = slice(rank, None, world)
        self.keyed = [module for module in model.modules() if isinstance(module, Keyed)]

    def forward(self, key: Tensor, stage: Stage, wanted: slice | Tensor, charged: bool) -> Tensor:
        """Both in one tensor (2,), or only the first (1,) if there is no budget."""
        x, y = self.task.cut(stage, wanted)
        for part, module in enumerate(self.keyed):
            module.key = key_of_part(key, part)
        try:
            prediction, tables = self.predict(x[:, self.share], counted=charged)
        finally:
            for module in self.keyed:
                module.key = None
        loss = self.task.losses(prediction, y[self.share]).sum()
        if not charged:
            return loss.unsqueeze(0)
        return torch.stack((loss, mean_openness(tables) if tables else torch.zeros_like(loss)))


class Test(_OnTask):
    """Sums of losses and errors over a batch of the test set; then mean openness, and the share of
    updates that were made, each NaN if the model has none. All float64."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        prediction, tables = self.predict(x, counted=True)
        sums = [of(prediction, y).double().sum() for of in (self.task.losses, self.task.errors)]
        return torch.stack([*sums, *self._shares(tables, sums[0])])

    def _shares(self, tables: list[Tensor], like: Tensor) -> tuple[Tensor, Tensor]:
        if tables:
            k = torch.cat([table.flatten() for table in tables])
            return k.double().mean(), k.gt(0).double().mean()
        nothing = torch.full_like(like, torch.nan)
        found = (getattr(module, "share_of_updates", None) for module in self.model.modules())
        measured = [share.double() for share in found if isinstance(share, Tensor)]
        return nothing, torch.stack(measured).mean() if measured else nothing


def mean_openness(tables: list[Tensor]) -> Tensor:
    """Over steps and units of each layer and direction, then over these."""
    means = [table.mean() for table in tables]
    return means[0] if len(means) == 1 else torch.stack(means).mean()
