"""The operator for torch.compile, torch.export and torch.jit.trace: two custom operators with fake kernels.

All other calls use `recorded.py`, which is faster.
"""

from contextlib import nullcontext

import torch
from torch import Tensor

from glstm.ops.backends import BACKENDS, choose
from glstm.ops.contract import Backend, Inputs
from glstm.ops.gpu import choice
from glstm.ops.model_axis import Record, split, unbind
from glstm.ops.reference_backward import gradients_by_equations
from glstm.ops.segments import Segmented, in_segments


@torch.library.custom_op("glstm::gated_lstm", mutates_args=())
def forward(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b: Tensor | None,
    k: Tensor,
    k_h: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    candidate: str,
    sequence: bool,
    cells: bool,
    taped: bool,
    backend: str,
    segment: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """All h, final h, final c, all c, tape, how the tape was written; what was not requested has length 0."""
    inputs = Inputs(x, w_ih, w_hh, b, k, k_h, h0, c0)
    with choice.forcing("dense") if taped else nullcontext():  # the tape has the size that the fake kernel says
        made = _backend(backend, inputs, candidate, segment).forward(inputs, candidate, sequence, cells, taped)
    h, c, tape = (x.new_empty(0) if part is None else part for part in (made.h, made.c, made.tape))
    # Whole numbers in a tensor of their own: code that rounds or scales saved floats must not change them.
    how = x.new_tensor(made.how, dtype=torch.int64) if taped and made.how else x.new_empty(0, dtype=torch.int64)
    return h, made.h_n, made.c_n, c, tape, how


@forward.register_fake
def _(x, w_ih, w_hh, b, k, k_h, h0, c0, candidate, sequence, cells, taped, backend, segment=0):
    everything = (*w_hh.shape[:-2], *x.shape[-3:-1], w_hh.shape[-1])
    chosen = _backend(backend, Inputs(x, w_ih, w_hh, b, k, k_h, h0, c0), candidate, segment)
    return (
        x.new_empty(everything if sequence else 0),
        torch.empty_like(h0),
        torch.empty_like(h0),
        x.new_empty(everything if cells else 0),
        chosen.empty_tape(x, w_hh) if taped else x.new_empty(0),
        x.new_empty(chosen.HOW if taped else 0, dtype=torch.int64),
    )


@torch.library.custom_op("glstm::gated_lstm_backward", mutates_args=())
def backward(
    dh: Tensor | None,
    dh_n: Tensor | None,
    dc_n: Tensor | None,
    dc: Tensor | None,
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b: Tensor | None,
    k: Tensor,
    k_h: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    tape: Tensor,
    how: Tensor,
    candidate: str,
    need_x: bool,
    need_h0: bool,
    backend: str,
    segment: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, w_ih, w_hh, b, k, k_h, h0, c0; what is not needed, or is not there, has length 0."""
    inputs = Inputs(x, w_ih, w_hh, b, k, k_h, h0, c0)
    found = _backend(backend, inputs, candidate, segment).backward(
        (dh, dh_n, dc_n, dc), inputs, tape, tuple(how.tolist()), None, candidate, need_x, need_h0
    )
    filled = [x.new_empty(0) if part is None else part for part in found]
    return tuple(filled)  # pyright: ignore[reportReturnType]


@backward.register_fake
def _(dh, dh_n, dc_n, dc, x, w_ih, w_hh, b, k, k_h, h0, c0, tape, how, candidate, need_x, need_h0, backend, segment=0):
    return (
        torch.empty_like(x) if need_x else x.new_empty(0),
        torch.empty_like(w_ih),
        torch.empty_like(w_hh),
        x.new_empty(0) if b is None else torch.empty_like(b),
        torch.empty_like(k),
        x.new_empty(0) if k_h is None else torch.empty_like(k_h),
        torch.empty_like(h0) if need_h0 else x.new_empty(0),
        torch.empty_like(h0),
    )


def _backend(name: str, inputs: Inputs, rule: str, segment: int) -> Backend:
    return in_segments(choose(name, inputs.x, inputs.k_h, rule, inputs.w_hh.shape[-1]), segment)


def _remember(ctx, inputs, output) -> None:
    *tensors, ctx.candidate, ctx.sequence, ctx.cells, ctx.taped, ctx.backend, ctx.segment = inputs
    ctx.save_for_backward(*tensors, *output[4:])
    ctx.set_materialize_grads(False)


def _differentiate(ctx, dh, dh_n, dc_n, dc, *_):
    *tensors, tape, how = ctx.saved_tensors
    need_x, need_h0 = ctx.needs_input_grad[0], ctx.needs_input_grad[6]
    gradients = (dh if ctx.sequence else None, dh_n, dc_n, dc if ctx.cells else None)
    if torch.is_grad_enabled():  # create_graph=True: these gradients will be differentiated again
        found = gradients_by_equations(gradients, Inputs(*tensors), ctx.candidate)
    else:
        if not ctx.taped:  # in a traced model: what backward needs is computed now
            options = (ctx.candidate, False, ctx.cells, True, ctx.backend, ctx.segment)
            *_, tape, how = forward(*tensors, *options)
        found = backward(
            *gradients, *tensors, tape, how, ctx.candidate, need_x, need_h0, ctx.backend, ctx.segment
        )  # fmt: skip
    return *_present(found, tensors, need_x, need_h0), *[None] * 6


forward.register_autograd(_differentiate, setup_context=_remember)


def backward_of(backend: Backend, record: Record, candidate: str, need_x: bool, need_h0: bool, *tensors):
    """The gradients through the registered operator: torch then calls it once for each gradient of a batch of them."""
    given, tapes, segment = tensors[:12], tensors[12:], 0
    if isinstance(backend, Segmented):
        backend, segment = backend.backend, backend.segment
    name = next(name for name, one in BACKENDS.items() if one is backend)
    options = (candidate, need_x, need_h0, name, segment)
    how = [given[4].new_tensor(one, dtype=torch.int64) for one in record.how]
    if len(tapes) == 1:
        found = backward(*given, tapes[0], how[0], *options)
    else:
        arrived = zip(*(unbind(part, len(tapes)) for part in given[:4]))
        models = zip(arrived, split(Inputs(*given[4:])), tapes, how, strict=True)
        each = [backward(*own, *inputs, tape, one, *options) for own, inputs, tape, one in models]
        dx, *others = (torch.stack(parts) for parts in zip(*each))
        found = (dx.sum(0) if given[4].dim() == 3 else dx, *others)
    return _present(found, given[4:], need_x, need_h0)


def _present(found, inputs, need_x: bool, need_h0: bool) -> list[Tensor | None]:
    needed = (need_x, True, True, True, True, True, need_h0, True)
    return [part if need and given is not None else None for part, given, need in zip(found, inputs, needed)]
