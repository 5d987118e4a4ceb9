"""The LSTM with chrono biases (Tallec and Ollivier, 2018, Can recurrent neural networks warp time?, arXiv:1804.11188).

The plain LSTM, and another start: b_f = log u with u drawn from U(1, T_max - 1) for each unit, and b_i = -b_f. A unit
with the bias b_f forgets in about e^b_f steps, so the units remember for 1 to T_max steps: T_max is the longest memory
that the task needs. The other biases and the weights start as those of `glstm.LSTM`: the paper changes the biases of
these two gates only.
"""

from typing import ClassVar

from glstm.init import check_t_max, chrono_
from glstm.layers import LSTM


class ChronoLSTM(LSTM):
    """`t_max` is in steps. Training from a recipe sets it to the task's number of steps, if nothing else is said."""

    own_start: ClassVar[bool] = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device=None,
        dtype=None,
        *,
        t_max: float = 784.0,
        candidate: str = "tanh",
        backend: str = "auto",
    ):
        check_t_max(t_max)
        self.t_max = float(t_max)
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
            candidate=candidate,
            backend=backend,
        )

    def reset_parameters(self) -> None:
        super().reset_parameters()
        chrono_(self, self.t_max)
