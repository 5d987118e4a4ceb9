"""Updates after which a number would be nan or infinite: they are left out, each network's by itself.

A step on CUDA is a graph that never waits for the device. So the step itself decides, there, which networks keep the
values they had before it; the loop reads what was decided where it waits for the device anyway. With `on_nan` "stop" a
network also makes no update after the first one that failed: it stays as it was before, and the loop reports it.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from glstm.training.settings import Settings

if TYPE_CHECKING:
    from glstm.training.population import Population

UPDATES, SAMPLES, SINCE_ROW = 0, 1, 2  # columns of `left_out`: in this epoch; and since the last line of losses.csv


class Guard:
    """Sums of losses, and of what was left out, that a step adds to. A step should not become slower by it: these are
    few operations on small tensors, and one each to copy, to add up and to choose all values at once."""

    def __init__(self, settings: Sequence[Settings], device: torch.device):
        self.stops = [setting.on_nan == "stop" for setting in settings]
        self.device, count = device, len(settings)
        self._tally = torch.zeros(count, 5, dtype=torch.float64, device=device)
        self.sums, self.left_out = self._tally[:, :2], self._tally[:, 2:]  # of losses: this epoch, and since the row
        self._halt = torch.zeros(count, 2, dtype=torch.float64, device=device)  # nan: it makes no update any more
        self._gain = torch.zeros_like(self._tally)
        self._stops = torch.tensor(self.stops, device=device).unsqueeze(1)
        self._before = [0] * count  # updates left out in this epoch before it was resumed
        self._sizes: dict[int, tuple[Tensor, Tensor]] = {}

    def state(self) -> list[Tensor]:
        """What a step changes."""
        return [self._tally, self._halt]

    def prepare(self, size: int) -> None:
        """For steps with so many samples. The first one comes before a graph is captured: in a graph, no tensor can be
        made from numbers of the host."""
        if size not in self._sizes:
            rows = [size, size, 1, 1, 1], [0, 0, 1, size, size]
            made, lost = (torch.tensor(row, dtype=torch.float64, device=self.device) for row in rows)
            self._sizes[size] = made, lost

    def add_losses(self, loss: Tensor, size: int) -> Tensor:
        """The means (M,) of so many samples. Returns what `settle` adds to the sums for an update that is made."""
        torch.add(loss.unsqueeze(1), self._halt, out=self._gain[:, :2])
        return self._gain * self._sizes[size][0]

    def settle(self, unsound: Tensor, gain: Tensor, size: int, values: Tensor, before: Tensor) -> Tensor:
        """Where `unsound` (M, 1) is nan and not 0, the update is left out: `values` (N, M, P) get back those `before`.
        Returns which networks have made it (M, 1)."""
        made = unsound == 0
        self._tally += torch.where(made, gain, self._sizes[size][1])
        if all(self.stops):
            self._halt += unsound
        elif any(self.stops):
            self._halt += torch.where(self._stops, unsound, 0.0)
        torch.where(made, values, before, out=values)
        return made

    def failures(self, done: int) -> dict[int, int]:
        """Networks that have stopped, with the batch that failed, from 0; `done` batches of this epoch were tried."""
        halted, left = self._halt[:, 0].isnan().tolist(), self.left_out[:, UPDATES].tolist()
        return {row: done - round(left[row]) + self._before[row] for row, halt in enumerate(halted) if halt}

    def start_epoch(self) -> None:
        self._tally.zero_()
        self._before = [0] * len(self._before)

    def restart(self, row: int, sums: Tensor, left_out: Tensor) -> None:
        """A network goes on from a checkpoint, which may be of a version that did not count."""
        self._halt[row] = 0
        self.sums[row] = sums.to(self.device)
        self.left_out[row] = left_out.to(self.device)
        self._before[row] = round(float(left_out[UPDATES]))


def mean(total: float, samples: float) -> float:
    """nan: there is no sample."""
    return total / samples if samples else math.nan


@torch.no_grad()
def what_failed(population: "Population", row: int, batch: int) -> str:
    """Which parameter of a network that has stopped was the first to fail in this batch of the present epoch.

    The network has the values that it had before. So the update is made again, for all, and undone.
    """
    state = population.changing()
    before = [tensor.detach().clone() for tensor in state]
    at, population.batch = population.batch, batch
    first = batch * population.batch_size
    population.updates.fill_((population.epoch - 1) * population.batches + batch)
    try:
        with torch.enable_grad():
            loss, gradient = population.gradients(slice(first, first + population.size_now()))
        bad = _first_bad(population, row, gradient)
        population.apply(gradient)
        too_large = _first_bad(population, row, population.stack.flat.detach())
    finally:
        population.batch = at
        for tensor, value in zip(state, before, strict=True):
            tensor.copy_(value)
    said = f"the loss was {float(loss[row]):g}"
    if bad:
        return f"{said}, and the gradient of {bad} was the first that was not finite"
    return f"{said}, and the new value of {too_large} was the first that was too large" if too_large else said


def _first_bad(population: "Population", row: int, rows: Tensor) -> str | None:
    """Its name, in the order of the network."""
    stack = population.stack
    parts = stack.layouts[row].parts(rows[row], stack.weights)
    bad = {name for name, part in parts.items() if not part.isfinite().all()}
    return next((name for name, _ in population.models[row].named_parameters() if name in bad), None)
