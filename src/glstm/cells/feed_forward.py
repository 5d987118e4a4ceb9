"""A network without recurrence that reads a sequence step by step, to compare with: one hidden layer (Rumelhart, Hinton
and Williams, 1986), whose input is a sequence as a whole.

    s_n = s_{n-1} + W_n x_n        h_n = relu(s_n + b)

W_n is the step's own, so the last h is that of a fully connected layer which has all steps as its input at once. It
remembers s alone, as many numbers as it has units. It cannot read more than `t_max` steps, and what it learns about one
step it knows at no other. Gates with learnt moments know the step, too: so this says what the step alone is worth. The
table of cells does not have it; a recipe names it as glstm.cells.feed_forward:FeedForward.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad
from torch.nn.utils.rnn import PackedSequence

from glstm.cells.recurrent import Recurrent, State, after_last
from glstm.errors import UserError


class FeedForward(Recurrent):
    """Its state has the number of steps that each sample has seen, so that a sequence may come in pieces."""

    state: ClassVar[tuple[str, ...]] = ("h", "sums", "steps")
    counters: ClassVar[tuple[str, ...]] = ("steps",)
    leaves_out_sequence: ClassVar[bool] = True
    way: ClassVar[str] = "one product for all steps"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        t_max: int = 1000,
    ):
        if not isinstance(t_max, int) or isinstance(t_max, bool) or t_max < 1:
            raise UserError(f"t_max is the most steps that it can read, a whole number from 1 on, not {t_max!r:.50}")
        if num_layers != 1:
            raise UserError(f"a network without recurrence has one hidden layer here, not {num_layers!r:.50}")
        self.t_max = t_max
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout)

    def make_layer(self, inputs: int) -> nn.Module:
        return nn.Linear(self.t_max * inputs, self.hidden_size, self.bias)

    def width_of(self, part: str) -> int:
        return 1 if part == "steps" else self.hidden_size

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | Sequence[Tensor] | None = None,
        *,
        lengths: Any = None,
        sequence: bool = True,
    ) -> tuple[Any, Tensor | State]:
        """As other cells; without `sequence`, None instead of the outputs of all steps."""
        if sequence or hx is not None or lengths is not None or not isinstance(input, Tensor) or input.dim() != 3:
            output, state = super().forward(input, hx, lengths=lengths)
            return output if sequence else None, state
        self._check(input)
        x = input if self.batch_first else input.transpose(0, 1)
        batch, count, _ = x.shape
        self._require_room(count)
        sums = linear(pad(x.flatten(1), (0, (self.t_max - count) * self.input_size)), self._layer.weight)
        h = self._output(sums) if count else sums
        steps = torch.full((1, batch, 1), count, device=x.device)
        return None, (h.unsqueeze(0), sums.unsqueeze(0), steps)

    def run_layer(self, layer: Any, x: Tensor, state: State, valid: Tensor | None) -> tuple[Tensor, State]:
        h, sums, steps = state
        if not len(x):
            return x.new_empty(0, *h.shape), state
        numbers = steps.T + torch.arange(len(x), device=x.device).unsqueeze(1)  # of steps (T, B)
        seen = len(x) if valid is None else valid.sum(0).unsqueeze(-1)
        if x.shape[1]:
            self._require_room(int((steps + seen).max()))
        each = layer.weight.view(self.hidden_size, self.t_max, self.input_size).permute(1, 2, 0)
        added = x.unsqueeze(-1) * each[numbers.clamp(max=self.t_max - 1)]  # (T, B, D, H); at padding x is 0
        sums = sums + added.sum(2).cumsum(0)
        output = self._output(sums)
        return output, (after_last(output, h, valid), sums[-1], steps + seen)

    @property
    def _layer(self) -> nn.Linear:
        return self.layers[0]  # pyright: ignore[reportReturnType]

    def _output(self, sums: Tensor) -> Tensor:
        bias = self._layer.bias
        return torch.relu(sums if bias is None else sums + bias)

    def _require_room(self, steps: int) -> None:
        if steps > self.t_max:
            raise UserError(
                f"each step has weights of its own, for {self.t_max} steps here, and the sequence has {steps}: make "
                f"the layer with a larger t_max"
            )

    def count_ops(self, steps: int, updates: float = 1.0) -> float:
        """A product and a sum for each step; the bias, and a relu as a nonlinear function, once."""
        return self.hidden_size * (2 * steps * self.input_size + 1 + 5)
