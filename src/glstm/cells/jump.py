"""LSTM-Jump (Yu, Lee and Le, 2017, Learning to Skim Text, arXiv:1704.06877), in its simplest form.

An LSTM reads R inputs, and a softmax of its h decides how far to jump: k from 1 to K makes the k-th input from here the
next one to be read, so that k = 1 skips nothing; 0 stops. It also stops after N jumps and R more inputs, and at the end
of a sequence. The answer is read from the last h.

The jumps are trained by REINFORCE: with the reward r = 1 for a right answer and -1 for a wrong one, and a baseline
b = w_b h + c_b at each decision, a sample adds to its loss

    sum over its decisions of  -log p(k) (r - b) + (r - b)^2

where the first b is a constant. In a task without classes r is minus the sample's loss; the paper has no such task. The
paper keeps the parameters of the LSTM, of the jumps and of the baseline apart, so here these terms move the softmax and
the baseline only; public code (not the authors') lets them move the LSTM, too. One reading of each sequence is drawn in
training. In evaluation the most probable jump is taken, one of the two ways that the paper describes; the other is to
draw.

All steps of a sequence go through the loop, and those that are jumped over copy the state: so a sequence can be fed in
pieces, and the output at a step is the state after the last input read until then. A budget, which the paper does not
have, charges for the share of inputs that are read, with the gradient that REINFORCE gives it. With several layers the
first decides and the others follow, which is this project's choice.

The paper's tasks are texts. R = 20, N = 5, K = 40 and Adam's rate are those of public code for the paper's longest
texts; the LSTM starts as torch.nn.LSTM does. For an image of 784 steps, N = 13 lets the longest jumps reach the end.
"""

from math import sqrt
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear, log_softmax

from glstm import masks
from glstm.cells.fusing import fused
from glstm.cells.recurrent import State, with_product
from glstm.cells.skipping import Skipping, lstm, share
from glstm.errors import UserError

STOPPED = -1.0  # in `left`


class LSTMJump(masks.Keyed, Skipping):
    """`read`, `jumps` and `furthest` are the paper's R, N and K. The state also has, the same in every layer: `ahead`,
    the inputs still to be jumped over; `left`, those to read before the next decision, or -1 after the stop; and
    `jumped`, the jumps made."""

    state: ClassVar[tuple[str, ...]] = ("h", "c", "ahead", "left", "jumped")
    of_last_call: ClassVar[tuple[str, ...]] = (*Skipping.of_last_call, "decisions")
    recipe: ClassVar[dict[str, Any]] = {"optimizer": "adam", "lr": 1e-3, "clip": 1.0, "options": {"jumps": 13}}
    decisions: tuple[Tensor, Tensor, Tensor] | None = None  # (T, B) each: log p, baseline, and where there is one

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        read: int = 20,
        jumps: int = 5,
        furthest: int = 40,
    ):
        for name, value, least in (("read", read, 1), ("jumps", jumps, 0), ("furthest", furthest, 1)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise UserError(f"{name} must be a whole number of at least {least}, not {value!r:.50}")
        self.read, self.jumps, self.furthest = read, jumps, furthest
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout)
        self.jump = nn.Linear(hidden_size, furthest + 1)
        self.baseline = nn.Linear(hidden_size, 1)

    def make_layer(self, inputs: int) -> nn.Module:
        layer: Any = nn.Module()
        bound = 1 / sqrt(self.hidden_size)
        shapes = {"weight_ih": (inputs,), "weight_hh": (self.hidden_size,), "bias": ()}
        for name, shape in shapes.items():
            value = torch.empty(4 * self.hidden_size, *shape).uniform_(-bound, bound)
            setattr(layer, name, nn.Parameter(value) if name != "bias" or self.bias else None)
        return layer

    def width_of(self, part: str) -> int:
        return self.hidden_size if part in ("h", "c") else 1

    def first_state(self, part: str, batch: int, like: Tensor) -> Tensor:
        return like.new_full((batch, self.width_of(part)), self.read if part == "left" else 0)

    def run_stack(self, x: Tensor, states: list[Tensor] | None, valid: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        first = [self.first_state(part, x.shape[1], x).expand(self.num_layers, -1, -1) for part in self.state]
        before = list(zip(*(part.unbind() for part in states or first), strict=True))
        deciding, *following = self.layers
        x, after, reads = self._decide(deciding, x, before[0], valid)
        finals = [after]
        for layer, state in zip(following, before[1:], strict=True):
            x = dropout(x, self.dropout, self.training) if self.dropout else x
            x, of_layer = self._follow(layer, x, state[:2], reads, valid)
            finals.append((*of_layer, *after[2:]))
        return x, [torch.stack(part) for part in zip(*finals, strict=True)]

    def _decide(self, layer: Any, x: Tensor, state: State, valid: Tensor | None) -> tuple[Tensor, State, Tensor]:
        """The first layer's output and final state, and where it reads (T, B, 1).

        The recurrent product also gives the scores of the jumps, from the h of the step before; in training noise is
        added to them, with which the largest is a draw from the softmax.
        """
        found: list[Tensor] = []

        def step(sums: Tensor, *state: Tensor) -> list[Tensor]:
            *new, about = _jump(sums, *state, self.read, self.jumps)
            found.append(about)
            return new

        scores = self.jump.bias.detach().expand(*x.shape[:2], -1)
        if self.training:
            scores = scores + self._noise(scores)
        drive = torch.cat((linear(x, layer.weight_ih, layer.bias), scores.to(x.dtype)), -1)
        weight = torch.cat((layer.weight_hh, self.jump.weight.detach()))
        output, after = with_product(step, drive, weight, state, valid)
        about = torch.stack(found) if found else x.new_zeros(0, x.shape[1], 3)
        reads, decides, choice = about.unbind(-1)
        made = share(reads, valid)
        if self.training:
            h = torch.cat((state[0].unsqueeze(0), output))[: len(x)].detach()
            decides = decides > 0 if valid is None else (decides > 0) & valid
            real = torch.ones_like(reads) if valid is None else valid.to(reads.dtype)
            made = made + self._remember(h, choice, decides, (reads - made) * real / real.sum().clamp(min=1))
        self.share_of_updates = made
        return output, after, reads.unsqueeze(-1)

    def _noise(self, like: Tensor) -> Tensor:
        """From Gumbel's distribution, as a function of the key."""
        key = masks.random_key(like.device) if self.key is None else self.key
        numbers = masks.number_elements(like.numel(), like.device)
        return -torch.log(-torch.log(masks.uniform(key, numbers))).view(like.shape)

    def _remember(self, h: Tensor, choice: Tensor, decides: Tensor, surplus: Tensor) -> Tensor:
        """Keep what `extra_losses` needs. Returns a 0 with the gradient of the share of updates by REINFORCE, from how
        much more than the others each sample reads, as a share of all steps, summed over `surplus` (T, B)."""
        chosen = log_softmax(self.jump(h), -1).gather(-1, choice.long().unsqueeze(-1)).squeeze(-1)
        self.decisions = chosen, self.baseline(h).squeeze(-1), decides
        total = torch.where(decides, chosen, 0).sum(0)
        return ((total - total.detach()) * surplus.sum(0)).sum()

    def extra_losses(self, losses: Tensor, errors: Tensor | None) -> Tensor:
        """Of each sample (B,), from its loss and its error; the error is None where there is no right and wrong."""
        if self.decisions is None:
            return torch.zeros_like(losses)
        chosen, baseline, decides = self.decisions
        self.decisions = None
        reward = -losses if errors is None else 1 - 2 * errors
        short = reward - baseline
        return torch.where(decides, short**2 - chosen * short.detach(), 0).sum(0)

    def _follow(self, layer: Any, x: Tensor, state: State, reads: Tensor, valid: Tensor | None) -> tuple[Tensor, State]:
        """Another layer, which reads what the first read: its sums have a last column that says so."""
        drive = torch.cat((linear(x, layer.weight_ih, layer.bias), reads.to(x.dtype)), -1)
        weight = torch.cat((layer.weight_hh, layer.weight_hh.new_zeros(1, self.hidden_size)))
        return with_product(_read, drive, weight, state, valid)

    def count_ops(self, steps: int, updates: float = 1.0) -> float:
        """An input that is read costs the LSTM; after every R of them the scores of the jumps, and the largest of
        them. What is jumped over costs nothing. The baseline is for training."""
        decision = (self.furthest + 1) * 2 * self.hidden_size + self.furthest
        return steps * updates * (self.lstm_ops(1) + decision / self.read)


@fused
def _jump(
    sums: Tensor, h: Tensor, c: Tensor, ahead: Tensor, left: Tensor, jumped: Tensor, read: int, jumps: int
) -> tuple[Tensor, ...]:
    """The state after a step, and (B, 3): whether the input was read, whether there was a choice, and what it was."""
    gates, scores = sums[:, : 4 * h.shape[1]], sums[:, 4 * h.shape[1] :]
    choice = scores.argmax(-1, keepdim=True).to(ahead.dtype)
    due = (left == 0) & (ahead == 0)
    free = due & (jumped < jumps)
    goes = free & (choice > 0)
    left = torch.where(goes, read, torch.where(due, STOPPED, left))
    ahead = torch.where(goes, choice - 1, ahead)
    reads = (ahead == 0) & (left > 0)
    new_h, new_c = lstm(gates, c)
    about = torch.cat((reads.to(ahead.dtype), free.to(ahead.dtype), choice), -1)
    return (
        torch.where(reads, new_h, h),
        torch.where(reads, new_c, c),
        torch.clamp(ahead - 1, min=0),
        left - reads.to(left.dtype),
        jumped + goes.to(jumped.dtype),
        about,
    )


@fused
def _read(sums: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """An LSTM's step where the last of the sums is not 0."""
    new_h, new_c = lstm(sums[:, :-1], c)
    reads = sums[:, -1:] > 0
    return torch.where(reads, new_h, h), torch.where(reads, new_c, c)
