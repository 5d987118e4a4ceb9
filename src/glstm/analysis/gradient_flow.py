"""How much of the loss's gradient reaches each step: the paper's Gamma."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from glstm.layers import gated_layers
from glstm.times import as_times


def gradient_flow(model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """How much of the loss reaches each step: the mean over samples and units of |dL/dh_n|, a total derivative of each
    sample's own loss.

    Args:
        model: With one gated layer, fed (T, B, D) or (B, T, D), not bidirectional; of a stack, h is the top layer's.
        loss: `loss(model(x), y)` must be a mean over the batch, as torch's losses are; that mean is undone here.
        x: The model's input.
        y: What the loss compares with.

    Returns:
        Gamma (T,).
    """
    layers = gated_layers(model)
    if len(layers) != 1:
        raise ValueError(f"gradient_flow needs a model with exactly one gated layer, but this one has {len(layers)}")
    if layers[0].bidirectional:
        raise ValueError("gradient_flow is not defined for a bidirectional layer: its steps have no common order")
    hidden: list[Tensor] = []

    def in_single_steps(layer, args, kwargs, _):
        output, state, states = _step_by_step(layer, *args, **kwargs)
        hidden.extend(states)
        return output, state

    hook = layers[0].register_forward_hook(in_single_steps, with_kwargs=True)
    try:
        with torch.enable_grad():
            value = loss(model(x), y)
            gradients = torch.autograd.grad(value, hidden, materialize_grads=True)
    finally:
        hook.remove()
    return torch.stack([gradient[-1].abs().mean() * gradient.shape[1] for gradient in gradients])


def _step_by_step(layer, input: Tensor, hx=None, times: Tensor | None = None, *, sequence: bool = True):
    """The layer's result, built from calls of one step so that each step's h (layers, B, H) is a tensor of its own."""
    x = input.transpose(0, 1) if layer.batch_first else input
    t = as_times(times, x.shape[0], x.shape[1], layer.batch_first, x.device)
    if len(x) == 0:
        raise ValueError("gradient_flow needs at least one step of input")
    states = []
    for n in range(len(x)):
        step, time = x[n : n + 1], t[n : n + 1]
        if layer.batch_first:
            step, time = step.transpose(0, 1), time.T if time.dim() == 2 else time
        # Not `layer(...)`: that would call this function again.
        _, (h, c) = layer.forward(step, hx, time, sequence=False)
        h = h if h.requires_grad else h.requires_grad_()
        hx = (h, c)
        states.append(h)
    output = None
    if sequence:
        output = torch.stack([h[-1] for h in states], 1 if layer.batch_first else 0)
    return output, hx, states
