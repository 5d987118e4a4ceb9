"""A gate, a cell, a head and a task as somebody would write them who has only installed the package."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from glstm import Gate
from glstm.data import Task
from glstm.gates import Values


@dataclass(frozen=True, eq=False)
class Bump(Gate):
    """Open around `centre`, and again a share `echo` as much `later` steps after it."""

    names: ClassVar[tuple[str, ...]] = ("centre", "width")
    in_time: ClassVar[tuple[str, ...]] = ("centre", "width")
    centre: Values = (1.0, 20.0)
    width: Values = 4.0
    echo: float = 0.5
    later: float = 6.0

    def openness(self, times, unit, training):
        def near(moment: Tensor) -> Tensor:
            return 1 / (1 + ((times.unsqueeze(-1) - moment) / unit["width"]) ** 2)

        return torch.maximum(near(unit["centre"]), self.echo * near(unit["centre"] + self.later))


@dataclass(frozen=True, eq=False)
class Window(Gate):
    """Open from `start`, for `width`; nothing of it is learned."""

    names: ClassVar[tuple[str, ...]] = ("start", "width")
    learned: ClassVar[bool] = False
    start: Values = (1.0, 15.0)
    width: Values = 5.0

    def openness(self, times, unit, training):
        since = times.unsqueeze(-1) - unit["start"]
        return ((since >= 0) & (since < unit["width"])).to(times.dtype)


class LeakyCell(nn.Module):
    """h = (1 - rate) h + rate tanh(W x + U h), with dropout on x, which draws from torch's own generator."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, rate: float = 0.5, dropout: float = 0.1):
        super().__init__()
        if num_layers != 1:
            raise ValueError(f"a LeakyCell has one layer, not {num_layers}")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.rate, self.dropout = rate, dropout
        self.cell = nn.RNNCell(input_size, hidden_size)

    def forward(self, x: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        x = nn.functional.dropout(x, self.dropout, self.training)
        h = x.new_zeros(x.shape[1], self.hidden_size) if hx is None else hx[0]
        outputs = []
        for x_t in x:
            h = torch.lerp(h, self.cell(x_t, h), self.rate)
            outputs.append(h)
        return torch.stack(outputs), h.unsqueeze(0)


class SkippingCell(LeakyCell):
    """Leaves out every other step, and says so."""

    def forward(self, x, hx=None):
        output, state = super().forward(x[::2], hx)
        self.share_of_updates = torch.tensor(len(output) / len(x))
        return output.repeat_interleave(2, 0)[: len(x)], state


class Normed(nn.Module):
    """A cell whose input is normalised over the batch, with running statistics."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1):
        super().__init__()
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.norm = nn.BatchNorm1d(input_size)
        self.cell = LeakyCell(input_size, hidden_size, dropout=0.0)

    def forward(self, x: Tensor, hx=None):
        return self.cell(self.norm(x.flatten(0, 1)).view_as(x), hx)


def tanh_head(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 5), nn.Tanh(), nn.Linear(5, outputs))


class Parity(Task):
    """Two classes: are there more ones in the first half of the sequence than in the second?"""

    name = "parity"
    inputs, outputs = 1, 2
    metric, as_percent = "error", True

    def __init__(self, steps: int = 16, train_size: int = 70, test_size: int = 30, device: torch.device | str = "cpu"):
        self.steps, self.train_size, self.test_size = steps, train_size, test_size
        self.device = torch.device(device)
        self._test = self._draw(test_size, 10**6)

    def _draw(self, size: int, seed: int) -> tuple[Tensor, Tensor]:
        draws = torch.Generator().manual_seed(seed)
        x = torch.randint(2, (self.steps, size, 1), generator=draws).float().to(self.device)
        halves = x.view(2, self.steps // 2, size).sum(1)
        return x, (halves[0] > halves[1]).long()

    def stage(self, seed: int, epoch: int):
        return self._draw(self.train_size, 1000 * seed + epoch)

    def cut(self, stage, wanted):
        x, y = stage
        return x[:, wanted], y[wanted]

    def test_samples(self, wanted):
        return self.cut(self._test, wanted)

    def losses(self, prediction, y):
        return nn.functional.cross_entropy(prediction, y, reduction="none")

    def errors(self, prediction, y):
        return (prediction.argmax(-1) != y).float()
