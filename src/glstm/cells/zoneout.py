"""Zoneout (Krueger et al., 2017, Regularizing RNNs by Randomly Preserving Hidden Activations, arXiv:1606.01305).

An LSTM whose units keep their old c or h at random steps in training: c with the probability z_c, h with z_h.

    c~ = f c_{n-1} + i g              h~ = o tanh(c~)
    c_n = d_c c_{n-1} + (1 - d_c) c~  h_n = d_h h_{n-1} + (1 - d_h) h~

d_c and d_h are 0 or 1, drawn for each step, sample and unit; in evaluation they are their means, z_c and z_h. So it is
the shared operator with k = 1 - d_c, and 1 - d_h for h.

The paper trains on permuted sequential MNIST: 100 units, z_c = z_h = 0.15, RMSProp with a decay of 0.5 and a rate of
1e-3, gradients clipped at a norm of 1, 150 epochs. Its public code differs. There, c and h have one and the same mask
in this task (`shared` here), the rate is 1e-4 and the epochs are 100 if nothing else is said, the first h and c are
learned (here they are 0), and the 'permutation' draws pixels with replacement. The start of the weights is that of the
code: all recurrent weights one orthogonal matrix, those of the input another, the forget gate's bias 1.
"""

from math import prod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from glstm.cells.recurrent import Recurrent, State, check_flag
from glstm.errors import UserError
from glstm.masks import Keyed, keep_mask, number_elements, random_key
from glstm.ops import gated_lstm


class Zoneout(Keyed, Recurrent):
    """`shared`: one mask for c and h. On a CPU this is faster by far: two are a plain loop there, and also on CUDA for
    layers that are too large for the kernels with two tables, above 384 units."""

    state: ClassVar[tuple[str, ...]] = ("h", "c")
    way: ClassVar[str] = "shared operator"
    recipe: ClassVar[dict[str, Any]] = {"units": 100, "decay": 0.5, "lr": 1e-3, "epochs": 150}

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        z_c: float = 0.15,
        z_h: float = 0.15,
        shared: bool = False,
    ):
        for name, value in (("z_c", z_c), ("z_h", z_h)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
                raise UserError(f"{name} is a probability of at least 0 and below 1, not {value!r:.50}")
        check_flag("shared", shared)
        if shared and z_c != z_h:
            raise UserError(f"one mask for c and h has one probability, but z_c is {z_c} and z_h is {z_h}")
        self.z_c, self.z_h, self.shared = float(z_c), float(z_h), shared
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout)

    def make_layer(self, inputs: int) -> nn.Module:
        layer: Any = nn.Module()
        layer.weight_ih = nn.Parameter(nn.init.orthogonal_(torch.empty(4 * self.hidden_size, inputs)))
        layer.weight_hh = nn.Parameter(nn.init.orthogonal_(torch.empty(4 * self.hidden_size, self.hidden_size)))
        layer.bias = None
        if self.bias:
            i, f, g, o = torch.zeros(4, self.hidden_size)
            layer.bias = nn.Parameter(torch.cat((i, f + 1, g, o)))
        return layer

    def run_layer(self, layer: Any, x: Tensor, state: State, valid: Tensor | None) -> tuple[Tensor, State]:
        k, k_h = self._tables(layer, x, valid)
        h, c = state
        made = gated_lstm(x, layer.weight_ih, layer.weight_hh, layer.bias, k, h, c, k_h=k_h)
        assert made.h is not None
        return made.h, (made.h_n, made.c_n)

    def _tables(self, layer: nn.Module, x: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """How far c and h follow at each step, (T, H) or (T, B, H); the second is None where it would be the first."""
        drawn = self.training and (self.z_c > 0 or self.z_h > 0)
        one = self.shared or (self.z_c == self.z_h and not drawn)
        chances = [self.z_c] if one else [self.z_c, self.z_h]
        tables = self._draw(layer, x, chances) if drawn else [self._mean(layer, x, z) for z in chances]
        if valid is not None:  # a sequence that has ended keeps its state
            tables = [torch.where(valid.unsqueeze(-1), k if k.dim() == 3 else k.unsqueeze(1), 0) for k in tables]
        return tables[0], None if one else tables[1]

    def _mean(self, layer: Any, x: Tensor, z: float) -> Tensor:
        return layer.weight_hh.new_full((len(x), self.hidden_size), 1 - z)

    def _draw(self, layer: Any, x: Tensor, chances: list[float]) -> list[Tensor]:
        """0 where the old state is kept. Elements are numbered through all layers and both tables."""
        shape = (*x.shape[:2], self.hidden_size)
        place, count = next(n for n, one in enumerate(self.layers) if one is layer), prod(shape)
        key = random_key(x.device) if self.key is None else self.key
        tables = []
        for n, z in enumerate(chances):
            kept = keep_mask(key, number_elements(count, x.device, (2 * place + n) * count), z)
            tables.append(kept.view(shape).to(layer.weight_hh.dtype))
        return tables

    def count_ops(self, steps: int, updates: float = 1.0) -> float:
        """An LSTM's, and for each mean of an old and a new number two products and a sum."""
        mixed = 3 * ((self.z_c > 0) + (self.z_h > 0))
        return self.lstm_ops(steps) + steps * self.num_layers * self.hidden_size * mixed

    def extra_repr(self) -> str:
        shared = ", shared=True" if self.shared else ""
        return f"{super().extra_repr()}, z_c={self.z_c:g}, z_h={self.z_h:g}{shared}"
