"""Skip RNN (Campos, Jou, Giro-i-Nieto, Torres and Chang, 2018, Skip RNN: Learning to Skip State Updates in Recurrent
Neural Networks, arXiv:1708.06834), around an LSTM and a GRU.

A binary gate for each sample decides whether it reads the input x_n or copies its state s:

    u_n       = round(u~_n)
    s_n       = u_n S(s_{n-1}, x_n) + (1 - u_n) s_{n-1}
    du~_n     = sigmoid(W_p s_n + b_p)
    u~_{n+1}  = u_n du~_n + (1 - u_n) (u~_n + min(du~_n, 1 - u~_n))

with u~_1 = 1, and b_p = 1 at the start, so that a new network reads all or most inputs. In training the gradient of
`round` is 1 (straight-through); in evaluation it is the true one, 0. s_0 is learned. A network is charged for its
updates: the paper adds lambda sum_n u_n to a sequence's loss; here a budget times mean_n u_n is added, so that its
lambda = 1e-4 at 784 steps is a budget of 0.0784.

The paper writes W_p s. The authors' code (imatge-upc/skiprnn-2017-telecombcn) lets W_p read c of the Skip LSTM, not h,
and so does this. With several layers there is one gate for the whole stack, which reads the top layer: the paper says
that of its network with two layers, and the authors' code does it. Where the paper is silent, starts are those of that
code: weights Glorot-uniform (of input and recurrent weights together), the forget gate's bias 1, the biases of the
GRU's gates 1, s_0 from N(0, 1).

Where that code differs: at a skipped step it carries du~ along and does not compute it again, the same number with
another gradient. Its GRU resets h before the product with the weights; torch.nn.GRU and this do it after. In its stack
of GRUs every layer's candidate reads the network's input, not the layer below.
"""

from abc import abstractmethod
from collections.abc import Sequence
from math import sqrt
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

from glstm.analysis.operations import count_ops
from glstm.cells.fusing import fused
from glstm.cells.recurrent import add_product, deferred, held
from glstm.cells.skipping import Skipping, lstm, share
from glstm.ops.side_by_side import of_all

SKIP_OPS = 4  # of a step that is skipped: 1 - u~, the minimum, the sum, and the comparison that rounds


class SkipRNN(Skipping):
    """The gate, around a rule S that a subclass gives. Of a state, the last part is u~ of the next step, the same in
    every layer; the part before it is what W_p reads."""

    recipe: ClassVar[dict[str, Any]] = {
        "units": 110,
        "optimizer": "adam",
        "lr": 1e-4,
        "clip": 1.0,
        "batch": 256,
        "epochs": 600,
        "budget": 784 * 1e-4,  # the paper's lambda of 1e-4 is for each update, and an image has 784 steps
    }

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout)
        self.gate = nn.Linear(hidden_size, 1)
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.ones_(self.gate.bias)

    def sums_of(self, layer: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """Weights (4H, D) and (4H, H), and biases, of the sums that `rule` is given."""
        return layer.weight_ih, layer.weight_hh, layer.bias

    @abstractmethod
    def rule(self, sums: Tensor, *state: Tensor) -> Sequence[Tensor]:
        """S: a layer's new state, from its sums (B, 4H) and its old state."""

    def width_of(self, part: str) -> int:
        return 1 if part == "u" else self.hidden_size

    def run_stack(self, x: Tensor, states: list[Tensor] | None, valid: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """All layers step by step, because the top layer decides whether the first reads the next input."""
        old, wish = self._before(x.shape[1], states, x)
        multiplied: list[list[Tensor]] = [[] for _ in self.layers]
        read_by_gate: list[Tensor] = []
        weights, drives = self._drives(x, multiplied)
        offsets = deferred(self.gate.bias.expand(*x.shape[:2], 1), self.gate.weight, read_by_gate).unbind()
        reads = self.gate.weight.detach()
        outputs, updates = [], []
        for n in range(len(x)):
            new = self._candidates([drive[n] for drive in drives], weights, old, multiplied)
            new, wish_after, u = _skip(wish, new, _flat(old), reads, offsets[n], self.training)
            read_by_gate.append(of_all(new[-1]).detach())
            if valid is not None:
                *new, wish_after = held(valid[n], (*new, wish_after), (*_flat(old), wish))
            old, wish = self._in_layers(new), wish_after
            outputs.append(old[-1][0])
            updates.append(u)
        made = torch.cat(updates, 1).T if updates else x.new_zeros(0, x.shape[1])
        self.share_of_updates = share(made, valid)
        output = torch.stack(outputs) if outputs else x.new_empty(0, *old[-1][0].shape)
        return output, [*(torch.stack(part) for part in zip(*old, strict=True)), torch.stack([wish] * self.num_layers)]

    def _before(self, batch: int, states: list[Tensor] | None, x: Tensor) -> tuple[list[list[Tensor]], Tensor]:
        """The layers' states, and u~, before the first step."""
        if states is None:
            starts = [[getattr(layer, f"{part}_0") for part in self.state[:-1]] for layer in self.layers]
            return [[start.expand(batch, -1) for start in of_layer] for of_layer in starts], x.new_ones(batch, 1)
        return [[part[number] for part in states[:-1]] for number in range(self.num_layers)], states[-1][-1]

    def _drives(self, x: Tensor, multiplied: list[list[Tensor]]) -> tuple[list[Tensor], list[Sequence[Tensor]]]:
        """Of each layer, the weights of the product at a step, and what is added to it at each step."""
        weights, drives = [], []
        for layer, factors in zip(self.layers, multiplied, strict=True):
            forward, recurrent, bias = self.sums_of(layer)
            if not weights:
                drive, weight = linear(x, forward, bias), recurrent
            else:
                drive = (recurrent.new_zeros(len(recurrent)) if bias is None else bias).expand(*x.shape[:2], -1)
                weight = torch.cat((recurrent, forward), 1)
            drives.append(deferred(drive, weight, factors).unbind())
            weights.append(weight.detach())
        return weights, drives

    def _candidates(
        self, drives: list[Tensor], weights: list[Tensor], old: list[list[Tensor]], multiplied: list[list[Tensor]]
    ) -> list[Tensor]:
        """S of every layer at one step; a layer reads the candidate of the one below."""
        found: list[Tensor] = []
        below: Tensor | None = None
        for number, (drive, weight, state) in enumerate(zip(drives, weights, old, strict=True)):
            factor = state[0] if below is None else torch.cat((state[0], below), 1)
            new = self.rule(add_product(drive, factor, weight, multiplied[number]), *state)
            found += new
            below = dropout(new[0], self.dropout, self.training) if self.dropout else new[0]
        return found

    def _in_layers(self, parts: Sequence[Tensor]) -> list[list[Tensor]]:
        each = len(self.state) - 1
        return [list(parts[at : at + each]) for at in range(0, len(parts), each)]

    def count_ops(self, steps: int, updates: float = 1.0) -> float:
        """An update costs the cell, and the gate's product and sigmoid; every step adds to u~ and rounds it."""
        gate = 2 * self.hidden_size + 5
        return steps * (updates * (sum(map(self.cell_ops, self.widths)) + gate) + SKIP_OPS)

    @abstractmethod
    def cell_ops(self, inputs: int) -> float:
        """Of one step of one layer that is not skipped."""


class SkipLSTM(SkipRNN):
    """Skip RNN around an LSTM."""

    state: ClassVar[tuple[str, ...]] = ("h", "c", "u")

    def make_layer(self, inputs: int) -> nn.Module:
        units = self.hidden_size
        layer = _layer(inputs, units, (4 * units,))
        bias = torch.zeros(4 * units)
        bias[units : 2 * units] = 1
        layer.bias = nn.Parameter(bias) if self.bias else None
        layer.c_0 = nn.Parameter(torch.randn(units))
        return layer

    def rule(self, sums: Tensor, *state: Tensor) -> Sequence[Tensor]:
        return _lstm(sums, state[1])

    def cell_ops(self, inputs: int) -> float:
        return count_ops(1, self.hidden_size, inputs)


class SkipGRU(SkipRNN):
    """Skip RNN around a GRU."""

    state: ClassVar[tuple[str, ...]] = ("h", "u")

    def make_layer(self, inputs: int) -> nn.Module:
        """Rows as torch.nn.GRU's: reset, update, candidate. The last of four biases is within the reset."""
        units = self.hidden_size
        layer = _layer(inputs, units, (2 * units, units))
        bias = torch.cat((torch.ones(2 * units), torch.zeros(2 * units)))
        layer.bias = nn.Parameter(bias) if self.bias else None
        return layer

    def sums_of(self, layer: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """The candidate's two sums stay apart: that of the input has no recurrent weights, the other no input's."""
        units = self.hidden_size
        forward, recurrent = layer.weight_ih, layer.weight_hh
        forward = torch.cat((forward, forward.new_zeros(units, forward.shape[1])))
        nothing = recurrent.new_zeros(units, units)
        return forward, torch.cat((recurrent[: 2 * units], nothing, recurrent[2 * units :])), layer.bias

    def rule(self, sums: Tensor, *state: Tensor) -> Sequence[Tensor]:
        return _gru(sums, *state)

    def cell_ops(self, inputs: int) -> float:
        return self.hidden_size * (6 * inputs + 6 * self.hidden_size + 21)


def _layer(inputs: int, units: int, rows: tuple[int, ...]) -> Any:
    """Weights of matrices with so many rows, each Glorot-uniform over its inputs and its recurrent units."""
    layer: Any = nn.Module()
    parts = [torch.empty(count, inputs + units) for count in rows]
    for part in parts:
        bound = sqrt(6 / sum(part.shape))
        nn.init.uniform_(part, -bound, bound)
    whole = torch.cat(parts)
    layer.weight_ih = nn.Parameter(whole[:, :inputs].clone())
    layer.weight_hh = nn.Parameter(whole[:, inputs:].clone())
    layer.h_0 = nn.Parameter(torch.randn(units))
    return layer


def _flat(states: list[list[Tensor]]) -> list[Tensor]:
    return [part for state in states for part in state]


@fused
def _lstm(sums: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    return lstm(sums, c)


@fused
def _gru(sums: Tensor, h: Tensor) -> tuple[Tensor]:
    reset, update, of_input, of_h = sums.chunk(4, -1)
    candidate = torch.tanh(of_input + torch.sigmoid(reset) * of_h)
    update = torch.sigmoid(update)
    return ((1 - update) * candidate + update * h,)


@fused
def _skip(
    wish: Tensor, new: list[Tensor], old: list[Tensor], weight: Tensor, offset: Tensor, training: bool
) -> tuple[list[Tensor], Tensor, Tensor]:
    """The states after a step, u~ of the next, and u, from u~ (B, 1) and the candidates."""
    u = torch.round(wish)
    if training:  # the sum is exactly 0 or 1: what is added to it is exactly 0
        u = u.detach() + (wish - wish.detach())
    states = [u * one + (1 - u) * before for one, before in zip(new, old, strict=True)]
    step = torch.sigmoid(offset + (states[-1] * weight).sum(-1, keepdim=True))
    return states, u * step + (1 - u) * (wish + torch.minimum(step, 1 - wish)), u
