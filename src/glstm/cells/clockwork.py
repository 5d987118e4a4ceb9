"""The Clockwork RNN (Koutnik, Greff, Gomez and Schmidhuber, 2014, A Clockwork RNN, arXiv:1402.3511).

The units are cut into equal groups, each with a clock. At a step whose number the period of its clock divides, a group
computes a new h; else it keeps the old one:

    h_n = tanh(W x_n + R h_{n-1} + b)    for groups with n mod period = 0

A group hears only groups with its own or a longer period: R is block upper triangular. The paper has no bias; its
periods are 1, 2, 4, ... and its weights start from N(0, 0.1^2). This is the plain RNN of that paper; clocks over an
LSTM are the gate `glstm.Clockwork`.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from glstm.cells.fusing import fused
from glstm.cells.recurrent import Recurrent, State, with_product
from glstm.errors import UserError

PERIODS = (1, 2, 4, 8, 16, 32, 64, 128)


class ClockworkRNN(Recurrent):
    """Its state has the number of steps that each sample has seen, so that the clocks go on with the next piece."""

    state: ClassVar[tuple[str, ...]] = ("h", "steps")
    counters: ClassVar[tuple[str, ...]] = ("steps",)
    period: Tensor
    hears: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        periods: tuple[int, ...] = PERIODS,
    ):
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout)
        listed = isinstance(periods, tuple | list) and all(type(period) is int for period in periods)
        if not listed or not 0 < len(periods) <= hidden_size or periods[0] < 1 or list(periods) != sorted(periods):
            raise UserError(
                f"periods are whole numbers of at least 1 in rising order, at most one for each of the {hidden_size} "
                f"units, not {periods!r:.80}"
            )
        self.periods = tuple(periods)
        groups = torch.arange(hidden_size) * len(periods) // hidden_size
        self.register_buffer("period", torch.tensor(self.periods)[groups], persistent=False)
        self.register_buffer("hears", (groups[:, None] <= groups).float(), persistent=False)

    def make_layer(self, inputs: int) -> nn.Module:
        layer: Any = nn.Module()
        layer.weight_ih = nn.Parameter(0.1 * torch.randn(self.hidden_size, inputs))
        layer.weight_hh = nn.Parameter(0.1 * torch.randn(self.hidden_size, self.hidden_size))
        layer.bias = nn.Parameter(torch.zeros(self.hidden_size)) if self.bias else None
        return layer

    def width_of(self, part: str) -> int:
        return 1 if part == "steps" else self.hidden_size

    def run_layer(self, layer: Any, x: Tensor, state: State, valid: Tensor | None) -> tuple[Tensor, State]:
        heard = layer.weight_hh * self.hears.to(layer.weight_hh)
        drive = linear(x, layer.weight_ih, layer.bias)
        return with_product(lambda sums, h, steps: _tick(sums, h, steps, self.period), drive, heard, state, valid)

    def count_ops(self, steps: int, updates: float = 1.0) -> float:
        """Only groups whose clock ticks compute."""
        units = self.hidden_size
        ticks = [steps // period for period in self.period.tolist()]
        heard = self.hears.sum(1).tolist()
        return sum(ticks[n] * (2 * inputs + 2 * heard[n] + 5) for inputs in self.widths for n in range(units))


@fused
def _tick(sums: Tensor, h: Tensor, steps: Tensor, period: Tensor) -> tuple[Tensor, Tensor]:
    steps = steps + 1
    return torch.where(torch.remainder(steps, period) == 0, torch.tanh(sums), h), steps
