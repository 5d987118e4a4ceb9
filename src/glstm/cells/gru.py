"""torch's GRU on this project's engines, of which small networks train faster, and several side by side.

    r, z = s(W_r x + U_r h), s(W_z x + U_z h)      n = tanh(W_n x + r * (U_n h))
    h = (1 - z) * n + z * h

Each sum has its biases. A large z is a long memory (Cho et al., 2014, arXiv:1406.1078, as torch writes it).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.functional import dropout

from glstm.ops import gated_gru
from glstm.ops.gru import has_engine
from glstm.ops.operator import watched


class GRU(nn.GRU):
    """`torch.nn.GRU`: its weights, names and results. Where no engine computes a call, it is torch's own in all: two
    directions, packed sequences, single ones without a batch's axis, types and devices that no engine has, and where
    derivatives are taken forwards (torch.func.jvp)."""

    way = "shared operator"
    leaves_out_sequence = True  # it can be asked for the last state alone
    weight_hh_l0: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device=None,
        dtype=None,
    ):
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )

    def forward(self, input: Any, hx: Tensor | None = None, *, sequence: bool = True) -> Any:
        """As `torch.nn.GRU`; without `sequence`, None instead of the outputs of all steps."""
        if not self._has_engine(input):
            output, h_n = super().forward(input, hx)
            return output if sequence else None, h_n
        self.check_input(input, None)
        if hx is not None:
            self.check_hidden_size(hx, self.get_expected_hidden_size(input, None))
        x: Any = input.transpose(0, 1) if self.batch_first else input
        states, finals = [None] * self.num_layers if hx is None else hx.unbind(), []
        for layer, h0 in enumerate(states):
            if layer and self.dropout:
                x = dropout(x, self.dropout, self.training)
            w_ih, w_hh, *biases = (getattr(self, name) for name in self._all_weights[layer])
            b_ih, b_hh = biases or (None, None)
            h0 = x.new_zeros(x.shape[1], self.hidden_size, dtype=w_hh.dtype) if h0 is None else h0
            last = layer == self.num_layers - 1
            x, h_n = gated_gru(x, w_ih, w_hh, b_ih, b_hh, h0, sequence=sequence or not last)
            finals.append(h_n)
        output = x.transpose(0, 1) if sequence and self.batch_first else x
        return output, torch.stack(finals)

    def on_engine(self, like: Tensor) -> bool:
        """Whether an engine computes batches of this tensor's type and device."""
        return not self.bidirectional and has_engine(like, self.weight_hh_l0)

    def _has_engine(self, input: Any) -> bool:
        is_batch = isinstance(input, Tensor) and input.dim() == 3
        # What is recorded, to be compiled or exported, is torch's own: then it runs where glstm is not.
        forwards = forward_ad._current_level >= 0  # no engine has these derivatives
        return is_batch and not forwards and not watched((input,)) and self.on_engine(input)
