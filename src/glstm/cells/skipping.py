"""What cells have in common that decide, from what they read, at which steps to update their state."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from glstm.cells.recurrent import Recurrent


class Skipping(Recurrent):
    """A cell that counts its updates: see `share_of_updates` in `glstm/cells/__init__.py`.

    Of padded sequences it is told the lengths, because padding does not count.
    """

    share_of_updates: Tensor | None = None
    takes_lengths: ClassVar[bool] = True
    # What a call leaves behind. It may hold a whole graph, so that a copy or a file of the cell goes without it.
    of_last_call: ClassVar[tuple[str, ...]] = ("share_of_updates",)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in self.of_last_call}


def share(updates: Tensor, valid: Tensor | None) -> Tensor:
    """Of all real steps (T, B), the share at which there is an update."""
    if valid is None:
        return updates.sum() / max(updates.numel(), 1)
    return torch.where(valid, updates, 0).sum() / valid.sum().clamp(min=1)


def lstm(sums: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """h and c of an LSTM from its sums (B, 4H), in torch's order: input, forget, candidate, output."""
    enter, keep, candidate, leave = sums.chunk(4, -1)
    c = torch.sigmoid(keep) * c + torch.sigmoid(enter) * torch.tanh(candidate)
    return torch.sigmoid(leave) * torch.tanh(c), c
