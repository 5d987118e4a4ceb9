"""Operations for torch.utils.flop_counter: it counts those of operators that it knows, and all others as none."""

from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from glstm.ops import registered as registered  # makes the operators
from glstm.ops.reference import GRU


@register_flop_formula(torch.ops.glstm.gated_lstm)
def _forward(x: Any, w_ih: Any, w_hh: Any, *others: Any, **named: Any) -> int:
    """Two for each weight, step and sample, as the counter counts a matrix product; as if every unit was open."""
    *models, rows, hidden = w_hh
    steps, batch, width = x[-3:]
    if GRU in others:
        rows = rows * 3 // 4  # of its four sums one has no weights of x, and one none of h
    return 2 * (models[0] if models else 1) * steps * batch * rows * (width + hidden)


@register_flop_formula(torch.ops.glstm.gated_lstm_backward)
def _backward(dh: Any, dh_n: Any, dc_n: Any, dc: Any, x: Any, w_ih: Any, w_hh: Any, *others: Any, **named: Any) -> int:
    """The gradients of weights and of inputs: each as many as forward."""
    return 2 * _forward(x, w_ih, w_hh, *others)
