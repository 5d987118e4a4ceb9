"""The operator as a function for autograd and torch.func: how it is differentiated, and how it is batched.

It calls a backend directly, without torch's dispatcher, which would take most of the time on short sequences.
`registered.py` has the same for torch.compile and torch.export.
"""

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as transforming
from torch._C._functorch import is_legacy_batchedtensor
from torch.autograd import forward_ad

from glstm.ops import batching, model_axis, registered
from glstm.ops.contract import Backend, Inputs
from glstm.ops.model_axis import Result
from glstm.ops.reference_backward import second_derivatives


def run(backend: Backend, inputs: Inputs, rule: str, sequence: bool, cells: bool, taped: bool = False) -> Result:
    """The operator on tensors of any kind. `taped`: a backward pass will follow even if these tensors need none."""
    wanted = torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in inputs)
    # torch refuses forward-mode derivatives here, in its own words, rather than that they are lost.
    if wanted or transforming() or forward_ad._current_level >= 0:
        h, h_n, c_n, c, record, *tapes = Recorded.apply(backend, rule, sequence, cells, taped or wanted, *inputs)
        return Result(h, h_n, c_n, c, record, tuple(tapes))
    return model_axis.forward(backend, inputs, rule, sequence, cells, taped)


class Recorded(torch.autograd.Function):
    """(backend, rule, sequence, cells, taped, *inputs) -> h, h_n, c_n, c, record, *tapes"""

    # No named arguments: torch binds them at every call, which takes longer than everything else here.
    @staticmethod
    def forward(*arguments):
        backend, rule, sequence, cells, taped, *inputs = arguments
        result = model_axis.forward(backend, Inputs(*inputs), rule, sequence, cells, taped)
        return *result[:-1], *result.tapes

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.backend, ctx.rule, _, _, _, *tensors = inputs
        _, _, _, _, ctx.record, *tapes = output
        ctx.save_for_backward(*tensors, *tapes)
        ctx.mark_non_differentiable(*tapes)
        ctx.set_materialize_grads(False)  # an unused output needs no work in the backward pass

    @staticmethod
    def backward(ctx, *gradients):  # pyright: ignore[reportIncompatibleMethodOverride]
        saved, needs = ctx.saved_tensors, ctx.needs_input_grad[5:]
        arguments = (ctx.backend, ctx.record, ctx.rule, needs[0], needs[6], *gradients[:4], *saved)
        if any(part is not None and is_legacy_batchedtensor(part) for part in gradients[:4]):
            return *[None] * 5, *registered.backward_of(ctx.backend, *arguments[1:])
        if torch.is_grad_enabled() or transforming():
            return *[None] * 5, *Gradient.apply(*arguments)
        return *[None] * 5, *Gradient.forward(*arguments)

    @staticmethod
    def vmap(info, in_dims, backend, rule, sequence, cells, taped, *tensors):  # pyright: ignore
        inputs, dims, size = Inputs(*tensors), in_dims[5:], info.batch_size
        # With a tape, each element needs its own gradients. Only models have that: samples share their gradients.
        if taped or any(dim is not None for dim in dims[1:4]):
            models = batching.models_of(inputs, dims)
            result = run(backend, batching.into_models(inputs, dims, size, own_x=False), rule, sequence, cells, taped)
            outputs = [batching.lower(part, size, models) for part in result[:4]]
        else:
            result = run(backend, batching.into_samples(inputs, dims, size), rule, sequence, cells)
            outputs = [batching.out_of_samples(part, size) for part in result[:4]]
        found_dims = [None if part is None else 0 for part in outputs]
        # A tape holds all elements together.
        return (*outputs, result.record, *result.tapes), (*found_dims, None, *[None] * len(result.tapes))


class Gradient(torch.autograd.Function):
    """(backend, record, rule, need_x, need_h0, *gradients of outputs, *inputs, *tapes) -> gradients of inputs"""

    @staticmethod
    def forward(*arguments):
        backend, record, rule, need_x, need_h0, *tensors = arguments
        gradients, inputs, tapes = tuple(tensors[:4]), Inputs(*tensors[4:12]), tuple(tensors[12:])
        return model_axis.backward(backend, gradients, inputs, record, tapes, rule, need_x, need_h0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, _, ctx.rule, _, _, *tensors = inputs
        ctx.tapes = len(tensors) - 12
        ctx.save_for_backward(*tensors[:12])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *gradients):  # pyright: ignore[reportIncompatibleMethodOverride]
        if all(part is None for part in gradients):
            return (None,) * (17 + ctx.tapes)
        saved = ctx.saved_tensors
        found = second_derivatives(gradients, saved[:4], Inputs(*saved[4:]), ctx.rule)
        return *[None] * 5, *found, *[None] * ctx.tapes

    @staticmethod
    def vmap(info, in_dims, backend, record, rule, need_x, need_h0, *tensors):  # pyright: ignore
        size, dims = info.batch_size, in_dims[5:]
        gradients, inputs, tapes = tensors[:4], Inputs(*tensors[4:12]), tensors[12:]
        options = (backend, record, rule, need_x, need_h0)
        if all(dim is None for dim in dims[4:12]):  # one forward pass, several gradients that arrive
            each = [
                Gradient.apply(*options, *(_at(part, dim, n) for part, dim in zip(gradients, dims)), *inputs, *tapes)
                for n in range(size)
            ]
            outputs = [None if parts[0] is None else torch.stack(parts) for parts in zip(*each)]
        else:
            models = batching.models_of(inputs, dims[4:12])
            arrived = [batching.lift(part, dim, size, models) for part, dim in zip(gradients, dims)]
            lifted = batching.into_models(inputs, dims[4:12], size, own_x=need_x)
            found = Gradient.apply(*options, *arrived, *lifted, *tapes)
            outputs = [batching.lower(part, size, models) for part in found]
        return tuple(outputs), tuple(None if part is None else 0 for part in outputs)


def _at(part: Tensor | None, dim: int | None, n: int) -> Tensor | None:
    return part if part is None or dim is None else part.select(dim, n)
