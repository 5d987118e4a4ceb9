"""The r-LSTM (Trinh, Dai, Luong and Le, 2018, Learning Longer-term Dependencies in RNNs with Auxiliary Losses,
arXiv:1803.00144).

An LSTM that learns to remember by a second loss. At random anchors in a sequence, a second LSTM, the decoder, starts
from the state there and reconstructs the inputs before the anchor: it is given the first of them and then each one
after it has said what it expects. The losses of all anchors are averaged and added to the task's. So gradients need not
go all the way back: the task's loss goes back over the last `truncate` steps only, and a reconstruction through the
decoder and over as many steps before its anchor. In evaluation it is a plain LSTM.

As published: one anchor a sequence, 600 inputs reconstructed, gradients over 300 steps, 128 units, a head of two
layers of 256, both losses added with the same weight, and before that the reconstruction alone. For the last,
`pretrain_steps` is a number of updates in which the task's loss trains the head but not this layer; it is 0 unless
asked for, and both losses train from the start.

Chosen here, to keep it simple, or because no code of the authors is public. What is reconstructed are the inputs right
before the anchor. The error is the squared one, which fits all inputs: pixels from 0 to 255 could be classes, but they
are scaled when they come here, and a layer does not know what its inputs mean. Each sample has its own anchors. The
decoder has one layer, of as many units as this one, and a linear output. Inputs have no embedding. With unequal
lengths, gradients are cut at the same steps for all, counted from the end of the longest. Weights start as those of
torch's LSTM do, with a forget bias of 1. RMSProp at 1e-3 and batches of 128 are those of a public reimplementation,
belepi93/rnn-auxiliary-loss, which says that it did not reach the paper's figures.
"""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from glstm.cells.recurrent import Recurrent, State
from glstm.errors import UserError
from glstm.masks import Keyed, number_elements, random_key, uniform
from glstm.ops import Output, gated_lstm

Trace = tuple[Tensor, Tensor]  # h and c of a layer before the first step and after every one, (T + 1, B, H)


class RLSTM(Keyed, Recurrent):
    """`anchors` a sequence, the `reconstruct` inputs before each; `weight` of their loss; gradients over `truncate`
    steps, 0: over all."""

    state: ClassVar[tuple[str, ...]] = ("h", "c")
    takes_lengths: ClassVar[bool] = True  # it is not to be reconstructed
    way: ClassVar[str] = "shared operator"
    recipe: ClassVar[dict[str, Any]] = {
        "units": 128, "head": "deep", "optimizer": "rmsprop", "lr": 1e-3, "decay": 0.9, "batch": 128,
        "options": {"anchors": 1, "reconstruct": 600, "truncate": 300, "weight": 1.0},
    }  # fmt: skip
    of_last_call: ClassVar[tuple[str, ...]] = ("_loss",)
    updates: Tensor
    _loss: Tensor | None = None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        anchors: int = 1,
        reconstruct: int = 600,
        truncate: int = 300,
        weight: float = 1.0,
        pretrain_steps: int = 0,
    ):
        least = {"anchors": 1, "reconstruct": 2, "truncate": 0, "pretrain_steps": 0}
        given = {"anchors": anchors, "reconstruct": reconstruct, "truncate": truncate, "pretrain_steps": pretrain_steps}
        for name, value in given.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < least[name]:
                raise UserError(f"{name} must be a whole number of at least {least[name]}, not {value!r:.50}")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            raise UserError(f"weight, of the reconstruction in the loss, must be 0 or more, not {weight!r:.50}")
        self.anchors, self.reconstruct, self.truncate = anchors, reconstruct, truncate
        self.weight, self.pretrain_steps = float(weight), pretrain_steps
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout)
        self.decoder = self.make_layer(input_size)
        self.readout = nn.Linear(hidden_size, input_size)
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self._traces: list[Trace] = []

    def make_layer(self, inputs: int) -> nn.Module:
        units, reach = self.hidden_size, self.hidden_size**-0.5
        layer: Any = nn.Module()
        layer.weight_ih = nn.Parameter(torch.empty(4 * units, inputs).uniform_(-reach, reach))
        layer.weight_hh = nn.Parameter(torch.empty(4 * units, units).uniform_(-reach, reach))
        bias = torch.empty(4, units).uniform_(-reach, reach)
        bias[1] = 1.0
        layer.bias = nn.Parameter(bias.flatten()) if self.bias else None
        return layer

    def run_layer(self, layer: Any, x: Tensor, state: State, valid: Tensor | None) -> tuple[Tensor, State]:
        if not self.training:
            made = _lstm(layer, x, state[0], state[1], valid)
            return _all(made.h), (made.h_n, made.c_n)
        (h, c), hs, cs = state, [state[0].unsqueeze(0)], [state[1].unsqueeze(0)]
        for piece in self._pieces(len(x)):
            if piece.start:
                h, c = h.detach(), c.detach()
            made = _lstm(layer, x[piece], h, c, None if valid is None else valid[piece], cells=True)
            h, c = made.h_n, made.c_n
            hs.append(_all(made.h))
            cs.append(_all(made.c))
        self._traces.append((torch.cat(hs), torch.cat(cs)))
        return self._traces[-1][0][1:], (h, c)

    def _pieces(self, steps: int) -> list[slice]:
        """The last is the last `truncate` steps, before it as many, and so on; what is left over comes first."""
        reach = self.truncate or steps
        starts = [0, *range(steps % reach or reach, steps, reach)] if steps else []
        return [slice(start, end) for start, end in zip(starts, [*starts[1:], steps], strict=True)]

    def run_stack(self, x: Tensor, states: list[Tensor] | None, valid: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        self._traces = []
        try:
            output, finals = super().run_stack(x, states, valid)
            if self.training:
                self._loss = self._reconstruction(x, valid) if len(x) > 1 else None
        finally:
            self._traces = []
        if self.training and self.pretrain_steps:
            learns = (self.updates >= self.pretrain_steps).to(x.dtype)  # 0 or 1, times the gradient
            output, *finals = (torch.lerp(part.detach(), part, learns) for part in (output, *finals))
        if self.training:
            self.updates.add_(1)
        return output, finals

    def extra_losses(self, losses: Tensor, errors: Tensor | None) -> Tensor:
        """The loss of the reconstruction of each sample of the last call; 0 if there was nothing to reconstruct."""
        found, self._loss = self._loss, None
        return losses.new_zeros(()) if found is None else self.weight * found

    def _reconstruction(self, x: Tensor, valid: Tensor | None) -> Tensor:
        steps, batch, _ = x.shape
        count = min(self.reconstruct, steps)
        lengths = torch.full((batch,), steps, device=x.device) if valid is None else valid.sum(0)
        key = random_key(x.device) if self.key is None else self.key
        drawn = uniform(key, number_elements(self.anchors * batch, x.device)).double().view(self.anchors, batch)
        least = lengths.clamp(max=count)
        anchor = least + (drawn * (lengths - least + 1)).long()  # so many steps lie before it
        h, c = self._at(anchor, x, count, valid)
        place = anchor - count + torch.arange(count, device=x.device).view(-1, 1, 1)  # (count, anchors, B)
        wanted = _picked(x, place.clamp(min=0)).detach()
        inside = (place[:-1] >= 0).flatten(1)  # a sample may be shorter than what is reconstructed
        made = _lstm(self.decoder, wanted[:-1], h, c, None if valid is None else inside)
        wrong = (self.readout(_all(made.h)) - wanted[1:]).square().mean(-1)
        real = inside.to(wrong.dtype)
        each = (wrong * real).sum(0) / real.sum(0).clamp(min=1)
        return each.view(self.anchors, batch).mean(0)

    def _at(self, anchor: Tensor, x: Tensor, count: int, valid: Tensor | None) -> State:
        """The top layer's h and c at the anchors (anchors, B), as (anchors x B, H).

        With truncated gradients, the last steps before each anchor are computed once more, from a state that is a
        constant: so every anchor has its own last steps, and shapes do not depend on where anchors are.
        """
        if not self.truncate:
            h, c = (_picked(part, anchor.unsqueeze(0)).squeeze(0) for part in self._traces[-1])
            return h, c
        window = min(self.truncate, len(x))
        start = anchor - window
        place = start + torch.arange(window, device=x.device).view(-1, 1, 1)
        inside = None if valid is None and window <= count else (place >= 0).flatten(1)
        read, start = _picked(x, place.clamp(min=0)), start.clamp(min=0).unsqueeze(0)
        state: State = ()
        for layer, trace in zip(self.layers, self._traces, strict=True):
            h, c = (_picked(part.detach(), start).squeeze(0) for part in trace)
            made = _lstm(layer, read, h, c, inside)
            read, state = _all(made.h), (made.h_n, made.c_n)
        return state

    def count_ops(self, steps: int, updates: float = 1.0) -> float:
        """An LSTM's: the decoder is for training only."""
        return self.lstm_ops(steps)


def _lstm(layer: Any, x: Tensor, h: Tensor, c: Tensor, valid: Tensor | None, cells: bool = False) -> Output:
    """By the operator that all gated layers share; where a sample has ended, its units are closed."""
    k = x.new_ones(len(x), h.shape[-1])
    if valid is not None:
        k = torch.where(valid.unsqueeze(-1), k.unsqueeze(1), 0)
    return gated_lstm(x, layer.weight_ih, layer.weight_hh, layer.bias, k, h, c, cells=cells)


def _all(steps: Tensor | None) -> Tensor:
    assert steps is not None
    return steps


def _picked(values: Tensor, place: Tensor) -> Tensor:
    """Of values (T, B, W) those at steps (n, anchors, B), as (n, anchors x B, W)."""
    anchors, batch = place.shape[1:]
    wanted = place.flatten(0, 1).unsqueeze(-1).expand(-1, -1, values.shape[-1])
    return values.gather(0, wanted).view(len(place), anchors * batch, values.shape[-1])
