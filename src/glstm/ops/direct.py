"""Straight to an engine and back, past torch's dispatcher: on short sequences that is most of the time.

The operator in `__init__.py` does the same and is what torch.compile and torch.export see.
"""

from types import ModuleType

import torch

from glstm.ops import reference_backward


class Direct(torch.autograd.Function):
    """`engine` is the module `cpu` or `gpu`."""

    @staticmethod
    def forward(ctx, engine: ModuleType, candidate: str, sequence: bool, cells: bool, *tensors):
        h, h_n, c_n, c, tape = engine.forward(*tensors, candidate, sequence, cells, True)
        ctx.save_for_backward(*tensors, tape)
        ctx.engine, ctx.candidate = engine, candidate
        ctx.set_materialize_grads(False)  # an output nobody used costs nothing backward
        return h, h_n, c_n, c

    @staticmethod
    def backward(ctx, *gradients):  # pyright: ignore[reportIncompatibleMethodOverride]
        dh, dh_n, dc_n, dc = gradients
        x, w_ih, w_hh, b, k, h0, c0, tape = ctx.saved_tensors
        need_x, need_h0 = ctx.needs_input_grad[4], ctx.needs_input_grad[9]
        if torch.is_grad_enabled():  # create_graph=True: somebody will differentiate these gradients again
            tensors = (x, w_ih, w_hh, b, k, None, h0, c0)
            found = reference_backward.backward_by_autograd((dh, dh_n, dc_n, dc), tensors, ctx.candidate)
            dx, dw_ih, dw_hh, db, dk, _, dh0, dc0 = found
        else:
            found = ctx.engine.backward(
                dh, dh_n, dc_n, dc, x, w_ih, w_hh, k, h0, tape, ctx.candidate, need_x, need_h0
            )  # fmt: skip
            dx, dw_ih, dw_hh, db, dk, dh0, dc0 = found
        none = [None] * 4
        return *none, dx if need_x else None, dw_ih, dw_hh, None if b is None else db, dk, dh0 if need_h0 else None, dc0
