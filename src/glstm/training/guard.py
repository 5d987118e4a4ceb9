"""Updates after which a number would be nan or infinite: they are left out, each network's by itself.

A step on CUDA is a graph that never waits for the device. So the step itself decides, there, which networks keep the
values they had before it; the loop reads what was decided where it waits for the device anyway. With `on_nan` "stop" a
network also makes no update after the first one that failed: it stays as it was before, and the loop reports it.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from glstm.training.settings import Settings

if TYPE_CHECKING:
    from glstm.training.population import Population

UPDATES, SAMPLES, SINCE_ROW = 0, 1, 2  # columns of `left_out`: in this epoch; and since the last line of losses.csv


class Guard:
    def __init__(self, settings: Sequence[Settings], device: torch.device):
        self.stops = [setting.on_nan == "stop" for setting in settings]
        self.failed_at = torch.zeros(len(settings), dtype=torch.int64, device=device)  # its first failure; 0: none
        self.left_out = torch.zeros(len(settings), 3, dtype=torch.int64, device=device)
        self._stops = torch.tensor(self.stops, device=device)

    def state(self) -> list[Tensor]:
        """What a step changes."""
        return [self.failed_at, self.left_out]

    def sound(self, loss: Tensor, rows: Sequence[Tensor]) -> Tensor:
        """Of which networks (M,) all numbers are finite; `rows` (M, P) are values and the optimiser's state now."""
        total = loss.double()
        for tensor in rows:
            total = total + tensor.sum(1, dtype=torch.float64)  # which cannot overflow
        return (total - total) == 0  # for nan and infinity it is nan

    def settle(
        self, sound: Tensor, update: Tensor, size: int, rows: Sequence[Tensor], models: Sequence[nn.Module],
        before: Sequence[Tensor],
    ) -> Tensor:  # fmt: skip
        """Give networks back the values `before` where the update is left out. Returns which have made it."""
        made = sound & ~(self._stops & (self.failed_at > 0))
        self.failed_at.copy_(torch.where(sound | (self.failed_at > 0), self.failed_at, update))
        self.left_out += (~made).unsqueeze(1) * _counts(size, made.device)
        own = made.unsqueeze(1)
        for tensor, value in zip(rows, before, strict=False):
            torch.where(own, tensor, value, out=tensor)
        buffers = [(row, buffer) for row, model in enumerate(models) for buffer in model.buffers()]
        for (row, buffer), value in zip(buffers, before[len(rows) :], strict=True):
            buffer.copy_(torch.where(made[row], buffer, value))
        return made

    def failures(self) -> dict[int, int]:
        """Networks that have stopped, with the number of the update that failed, from 1."""
        found = self.failed_at.tolist()
        return {row: update for row, update in enumerate(found) if update and self.stops[row]}

    def restart(self, row: int, left_out: Tensor | None) -> None:
        """A network goes on from a checkpoint, which may be of a version that did not count."""
        self.failed_at[row] = 0
        self.left_out[row] = 0
        if left_out is not None:
            self.left_out[row].copy_(left_out)


_kept_counts: dict[tuple[int, torch.device], Tensor] = {}


def _counts(size: int, device: torch.device) -> Tensor:
    """Made once for each size: in a graph, a tensor cannot be made from numbers of the host."""
    if (size, device) not in _kept_counts:
        _kept_counts[size, device] = torch.tensor([1, size, size], device=device)
    return _kept_counts[size, device]


def mean(total: float, samples: int) -> float:
    """nan: there is no sample."""
    return total / samples if samples else math.nan


@torch.no_grad()
def what_failed(population: "Population", row: int, update: int) -> str:
    """Which parameter of a network that has stopped was the first to fail in this update of the present epoch.

    The network has the values that it had before. So the update is made again, for all, and undone.
    """
    state = population.changing()
    before = [tensor.detach().clone() for tensor in state]
    at = population.batch
    population.batch = (update - 1) % population.batches
    first = population.batch * population.batch_size
    population.updates.fill_(update - 1)
    try:
        with torch.enable_grad():
            objective, _, gradient = population.gradients(slice(first, first + population.size_now()))
        raw = gradient.clone()
        population.apply(gradient)
        flat = population.stack.flat.detach()
        found = _first_bad(population, row, raw), _first_bad(population, row, flat)
        loss = float(objective[row])
    finally:
        population.batch = at
        for tensor, value in zip(state, before, strict=True):
            tensor.copy_(value)
    if found[0]:
        return f"the loss was {loss:g}, and the gradient of {found[0]} was the first that was not finite"
    if found[1]:
        return f"the loss was {loss:g}, and {found[1]} was the first parameter that the update made too large"
    return f"the loss was {loss:g}"


def _first_bad(population: "Population", row: int, rows: Tensor) -> str | None:
    """Its name, in the order of the network."""
    stack: Any = population.stack
    parts = stack.layouts[row].parts(rows[row], stack.weights)
    bad = {name for name, part in parts.items() if not part.isfinite().all()}
    return next((name for name, _ in population.models[row].named_parameters() if name in bad), None)
