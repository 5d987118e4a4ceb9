"""A layer with its gate as one node of autograd, whichever engine computes it.

Around a short or sparse sequence, the operators that make the table of openness and its gradients take longer than the
sequence itself. An engine that computes gates, too, leaves them out. Whatever is unusual is left to the table and
`gated_lstm`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as transforming
from torch._C._functorch import is_legacy_batchedtensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from glstm.ops.operator import autocasting

OPEN, GAUSSIAN, PHASED, PERIODIC = range(4)  # kinds of gates
TIME_TYPES = (torch.float32, torch.float64)
PLAIN = {Tensor, Parameter}
Made = tuple[Tensor | None, Tensor, Tensor]  # all h (T, B, H), final h and final c (1, B, H)
Maybe = Tensor | None


class Gate(NamedTuple):
    """What is known of a gate besides its units' values."""

    kind: int
    leak: float
    threshold: float
    origin: float
    unit: float


class Call(NamedTuple):
    """What is asked for."""

    gate: Gate
    times: Tensor | range  # (T,) or (T, B), float32 or float64; a range where they only count steps
    backwards: bool  # x comes reversed, and meets its times from the last to the first
    candidate: str
    sequence: bool


class Plan(Protocol):
    """How an engine computes calls of one kind."""

    def forward(self, times: Maybe, x: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Maybe, b_hh: Maybe, h0: Maybe,
                c0: Maybe, *values: Tensor) -> tuple[Made, Any, tuple[Tensor, ...]]:  # fmt: skip
        """The results, and what the backward pass needs besides the inputs: anything, and tensors."""
        ...

    def backward(
        self, gradients: Sequence[Maybe], needs: Sequence[bool], record: Any, saved: Sequence[Any]
    ) -> list[Maybe]:
        """Gradients of x, the weights and biases, h0, c0 and the gate's values, where they are needed; `saved` are the
        arguments of `forward`, then its tensors."""
        ...


class Engine(Protocol):
    def fits(self, x: Tensor) -> bool:
        """Whether it computes this dtype on this device."""
        ...

    def plan_for(
        self, call: Call, x: Tensor, weights: Sequence[Any], h0: Maybe, c0: Maybe, values: Sequence[Tensor], taped: bool
    ) -> Plan | None:
        """None where this is not the way, or shapes do not fit each other, which the operator explains."""
        ...


def run(
    engine: Engine,
    call: Call,
    again: Callable[..., Made],
    x: Tensor,
    weights: Sequence[Any],  # w_ih, w_hh and, or None, b_ih, b_hh
    h0: Maybe,
    c0: Maybe,
    values: Sequence[Tensor],
) -> Made | None:
    """None where this is not the way. `again(x, *weights, h0, c0, *values)` computes the same by a table: for
    derivatives of derivatives."""
    if autocasting(x.device):  # as `gated_lstm` does: in the precision of the weights
        x, h0, c0 = (None if part is None else part.to(weights[1].dtype) for part in (x, h0, c0))  # pyright: ignore
    tensors: list[Any] = [*weights, h0, c0, *values]
    if not _usual(engine, x, call.times, tensors):
        return None
    wanted = torch.is_grad_enabled() and (
        x.requires_grad or any(part is not None and part.requires_grad for part in tensors)
    )
    plan = engine.plan_for(call, x, weights, h0, c0, values, wanted)
    if plan is None:
        return None
    times = call.times if isinstance(call.times, Tensor) else None
    if wanted:
        return Fused.apply(plan, again, times, x, *tensors)  # pyright: ignore[reportReturnType]
    return plan.forward(times, x, *tensors)[0]


def transformed() -> bool:
    """Whether torch.func, or forward mode, looks at what lies between."""
    return transforming() or forward_ad._current_level >= 0


def _usual(engine: Engine, x: Tensor, times: Tensor | range, tensors: Sequence[Maybe]) -> bool:
    """Plain float32 tensors of one device that the engine can use; nobody looks at what lies between."""
    if transformed():
        return False
    if x.dtype is not torch.float32 or not engine.fits(x):
        return False
    if isinstance(times, Tensor) and (
        times.requires_grad or type(times) is not Tensor or times.dtype not in TIME_TYPES
    ):
        return False
    device = x.device
    for part in tensors:
        if part is not None and (part.dtype is not torch.float32 or type(part) not in PLAIN or part.device != device):
            return False
    return type(x) in PLAIN


def match(shapes: Sequence, call: Call, steps: int) -> bool:
    """Whether the shapes of x, w_ih, w_hh, b_ih, b_hh, h0, c0 and the gate's values fit each other and the times."""
    x, w_ih, w_hh, b_ih, b_hh, h0, c0, *values = shapes
    if len(x) != 3 or len(w_hh) != 2:
        return False
    hidden = w_hh[1]
    right = [(w_ih, (4 * hidden, x[2])), (w_hh, (4 * hidden, hidden)), *((value, (hidden,)) for value in values)]
    right += [(part, (4 * hidden,)) for part in (b_ih, b_hh)] + [(part, (x[1], hidden)) for part in (h0, c0)]
    times = call.times
    timed = len(times) == steps and (isinstance(times, range) or times.shape[1:] in ((), (x[1],)))
    return timed and all(part is None or part == expected for part, expected in right)


def shape_of(tensor: Maybe):
    return None if tensor is None else tensor.shape


class Fused(torch.autograd.Function):
    """(plan, again, times, x, w_ih, w_hh, b_ih, b_hh, h0, c0, *values) -> all h or None, final h, final c"""

    # Without `setup_context`, which torch.func would need: torch would inspect the arguments at every call.
    @staticmethod
    def forward(ctx, plan: Plan, again: Callable[..., Made], times: Maybe, *tensors):  # pyright: ignore
        made, ctx.record, kept = plan.forward(times, *tensors)
        ctx.plan, ctx.again, ctx.kept = plan, again, len(kept)
        ctx.set_materialize_grads(False)  # an unused output needs no work in the backward pass
        ctx.save_for_backward(times, *tensors, *kept)
        return made

    @staticmethod
    def backward(ctx, *gradients):  # pyright: ignore[reportIncompatibleMethodOverride]
        saved, needs = ctx.saved_tensors, ctx.needs_input_grad[3:]
        if differentiable_wanted(gradients):
            return None, None, None, *recomputed(ctx.again, gradients, needs, saved[1 : len(saved) - ctx.kept])
        return None, None, None, *ctx.plan.backward(gradients, needs, ctx.record, saved)


def differentiable_wanted(gradients: Sequence[Maybe]) -> bool:
    """Whether the gradients that follow from these are differentiated in turn, or computed for many at once."""
    batched = any(part is not None and is_legacy_batchedtensor(part) for part in gradients)
    return batched or torch.is_grad_enabled() or transforming()


def recomputed(
    again: Callable[..., tuple[Maybe, ...]], gradients: Sequence[Maybe], needs: Sequence[bool], inputs: Sequence[Maybe]
) -> list[Maybe]:
    """The gradients by another forward pass, which torch can differentiate again."""
    create = torch.is_grad_enabled()
    with torch.enable_grad():
        # As views: one input may depend on another, and what flows there is not asked for here.
        inputs = [part.view_as(part) if need and part is not None else part for part, need in zip(inputs, needs)]
        arrived = [(out, part) for out, part in zip(again(*inputs), gradients) if out is not None and part is not None]
    if not arrived:
        return [None] * len(needs)
    wanted = [part for part, need in zip(inputs, needs) if need and part is not None]
    outputs, incoming = zip(*arrived)
    found = iter(torch.autograd.grad(outputs, wanted, incoming, create_graph=create, allow_unused=True))
    return [next(found) if need else None for need in needs]
