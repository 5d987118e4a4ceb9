"""Training on very long sequences: keep the state between segments, and run each forward again when its turn comes.

Memory is then one segment's tape instead of the whole sequence's; the price is one more forward pass.
"""

from collections.abc import Callable

import torch


class Segmented(torch.autograd.Function):
    """`forward_op` and `backward_op` are the operator's own, with its arguments."""

    @staticmethod
    def forward(ctx, forward_op: Callable, backward_op: Callable, segment: int, options: tuple, *tensors):
        x, w_ih, w_hh, b, k_c, k_h, h0, c0 = tensors
        candidate, sequence, cells, backend = options
        h = x.new_empty(*x.shape[:2], w_hh.shape[1]) if sequence else None
        c = x.new_empty(*x.shape[:2], w_hh.shape[1]) if cells else None
        states = [(h0, c0)]
        for part in parts(len(x), segment):
            k_part = None if k_h is None else k_h[part]
            h_part, h_n, c_n, c_part, _ = forward_op(
                x[part], w_ih, w_hh, b, k_c[part], k_part, *states[-1], candidate, sequence, cells, False, backend
            )
            states.append((h_n, c_n))
            if h is not None:
                h[part] = h_part
            if c is not None:
                c[part] = c_part
        ctx.save_for_backward(*tensors, *(state for pair in states[1:-1] for state in pair))
        ctx.settings = backward_op, forward_op, segment, options
        ctx.set_materialize_grads(False)
        return h, *states[-1], c

    @staticmethod
    def backward(ctx, *gradients):  # pyright: ignore[reportIncompatibleMethodOverride]
        if torch.is_grad_enabled():
            raise NotImplementedError("second derivatives do not go through segments: set segment to None for them")
        dh, dh_n, dc_n, dc = gradients
        backward_op, forward_op, segment, (candidate, _, cells, backend) = ctx.settings
        x, w_ih, w_hh, b, k_c, k_h, h0, c0, *between = ctx.saved_tensors
        states = [(h0, c0), *zip(between[::2], between[1::2])]
        need_x, need_h0 = ctx.needs_input_grad[4], ctx.needs_input_grad[10]
        dx = torch.zeros_like(x) if need_x else None
        dk_c, dk_h = torch.zeros_like(k_c), None if k_h is None else torch.zeros_like(k_h)
        dw_ih, dw_hh, db = torch.zeros_like(w_ih), torch.zeros_like(w_hh), w_hh.new_zeros(w_hh.shape[0])
        for part, (h, c) in reversed(list(zip(parts(len(x), segment), states))):
            k_part = None if k_h is None else k_h[part]
            *_, tape = forward_op(
                x[part], w_ih, w_hh, b, k_c[part], k_part, h, c, candidate, False, cells, True, backend
            )  # fmt: skip
            dh_part, dc_part = (None if d is None else d[part] for d in (dh, dc))
            need_h = need_h0 or part.start > 0
            found = backward_op(
                dh_part, dh_n, dc_n, dc_part, x[part], w_ih, w_hh, k_c[part], k_part, h, tape,
                candidate, cells, need_x, need_h, backend,
            )  # fmt: skip
            del tape  # before the next one is made
            dx_part, dw_ih_part, dw_hh_part, db_part, dk_c[part], dk_h_part, dh_n, dc_n = found
            if dx is not None:
                dx[part] = dx_part
            if dk_h is not None:
                dk_h[part] = dk_h_part
            for total, one in ((dw_ih, dw_ih_part), (dw_hh, dw_hh_part), (db, db_part)):
                total += one
        dh0 = dh_n if need_h0 else None
        return None, None, None, None, dx, dw_ih, dw_hh, None if b is None else db, dk_c, dk_h, dh0, dc_n


def parts(steps: int, segment: int) -> list[slice]:
    return [slice(start, min(start + segment, steps)) for start in range(0, steps, segment)]
