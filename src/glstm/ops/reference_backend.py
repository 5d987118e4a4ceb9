"""The equations and their backward loop as a backend: any floating dtype, any device, exact and slow."""

import torch
from torch import Tensor

from glstm.ops import reference, reference_backward
from glstm.ops.contract import Inputs, Made

SIDE_BY_SIDE = False
HOW = 0


def usable(x: Tensor, k_h: Tensor | None) -> bool:
    return True


def has_rule(rule: str, x: Tensor, hidden: int) -> bool:
    return True


def limits() -> str:
    return "computes everything"


def empty_tape(x: Tensor, w_hh: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:2], 6 * w_hh.shape[1])


def forward(inputs: Inputs, rule: str, sequence: bool, cells: bool, taped: bool) -> Made:
    x, w_ih, w_hh, b, k, k_h, h0, c0 = inputs
    with torch.autocast(x.device.type, enabled=False):
        h, c, gates = reference.forward(x, w_ih, w_hh, b, k, k if k_h is None else k_h, h0, c0, rule)
    tape = reference_backward.make_tape(h, c, gates, h0, c0) if taped else None
    h_n, c_n = (h[-1].clone(), c[-1].clone()) if len(x) else (h0.clone(), c0.clone())
    return Made(h if sequence else None, h_n, c_n, c if cells else None, tape)


def backward(gradients, inputs: Inputs, tape: Tensor, how, schedule, rule: str, need_x: bool, need_h0: bool):
    dh, dh_n, dc_n, dc = gradients
    x, w_ih, w_hh, b, k, k_h, h0, _ = inputs
    dh_n, dc_n = (torch.zeros_like(h0) if part is None else part for part in (dh_n, dc_n))
    with torch.autocast(x.device.type, enabled=False):
        dx, dw_ih, dw_hh, db, dk, dk_h, dh0, dc0 = reference_backward.backward(
            dh, dh_n, dc_n, dc, x, w_ih, w_hh, k, k if k_h is None else k_h, tape, rule
        )
    if k_h is None:
        dk, dk_h = dk + dk_h, None
    # Without steps, an incoming gradient would be returned as it is. A copy is returned, as from other backends.
    dh0, dc0 = (part.clone() if not len(x) else part for part in (dh0, dc0))
    return dx if need_x else None, dw_ih, dw_hh, None if b is None else db, dk, dk_h, dh0 if need_h0 else None, dc0
