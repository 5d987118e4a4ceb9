"""The minimal GRU (Feng, Tung, Ahmed, Bengio and Hajimirsadeghi, 2024, Were RNNs All We Needed?, arXiv:2410.01201).

A GRU whose gate and candidate do not hear h, without the reset gate and without tanh:

    z_n = sigmoid(W_z x_n + b_z)        h~_n = W_h x_n + b_h
    h_n = (1 - z_n) * h_{n-1} + z_n * h~_n

So h_n = a_n * h_{n-1} + b_n, element by element, with a and b known for all steps at once: one scan over time.

The paper's appendix computes the scan in log space, for which h must be positive: its candidate is then g(W_h x_n +
b_h), with g(v) = v + 0.5 for v >= 0 and sigmoid(v) else, and h_0 goes through g, too. Here the scan is a plain one that
needs no logarithms; `positive=True` has the candidate of the appendix, and h_0 is 0 or what is given. Public code
(lucidrains/minGRU-pytorch) has the appendix' form only, and no biases. The weights start as those of torch's linear
layers. The paper's tasks do not include sequential MNIST, so there is no preset.

Linear Recurrent Units (LRU; Orvieto et al., 2023, Resurrecting Recurrent Neural Networks for Long Sequences,
arXiv:2303.06349) are the same scan with an a that is learned and complex, but the same at every step, and with an input
that is scaled by sqrt(1 - |a|^2). Here a_n = 1 - z_n is real, follows the input, and z_n scales what comes in.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from glstm.cells.recurrent import Recurrent, State, after_last, check_flag
from glstm.ops.unit_scan import unit_scan


class MinGRU(Recurrent):
    """The minimal GRU. With `positive` the candidate is that of the appendix."""

    way: ClassVar[str] = "scan over time"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        positive: bool = False,
    ):
        check_flag("positive", positive)
        self.positive = positive
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout)

    def make_layer(self, inputs: int) -> nn.Module:
        """The rows of the weight are those of z, then those of the candidate."""
        return nn.Linear(inputs, 2 * self.hidden_size, self.bias)

    def run_layer(self, layer: Any, x: Tensor, state: State, valid: Tensor | None) -> tuple[Tensor, State]:
        (h0,) = state
        prepare = _positive if self.positive else _linear
        keep, new = prepare(linear(x, layer.weight, layer.bias))
        h = unit_scan(keep, new, h0)
        return h, (after_last(h, h0, valid),)

    def count_ops(self, steps: int, updates: float = 1.0) -> float:
        """Two sums, one sigmoid, and four operations for h; for a positive candidate, another nonlinear function."""
        inputs = sum(self.widths)
        own = 9 + (5 if self.positive else 0)
        return steps * self.hidden_size * (4 * inputs + own * self.num_layers)


def _linear(sums: Tensor) -> tuple[Tensor, Tensor]:
    """What is kept of h, and what is added to it."""
    z, candidate = sums.chunk(2, -1)
    return torch.sigmoid(-z), torch.sigmoid(z) * candidate


def _positive(sums: Tensor) -> tuple[Tensor, Tensor]:
    z, candidate = sums.chunk(2, -1)
    candidate = torch.where(candidate >= 0, candidate + 0.5, torch.sigmoid(candidate))
    return torch.sigmoid(-z), torch.sigmoid(z) * candidate
