"""What cells have in common that decide, from what they read, at which steps to update their state."""

from typing import ClassVar

import torch
from torch import Tensor

from glstm.cells.recurrent import Recurrent


class Skipping(Recurrent):
    """A cell that counts its updates: see `share_of_updates` in `glstm/cells/__init__.py`.

    Of padded sequences it is told the lengths, because padding does not count.
    """

    share_of_updates: Tensor | None = None
    takes_lengths: ClassVar[bool] = True
    of_last_call: ClassVar[tuple[str, ...]] = ("share_of_updates",)


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
