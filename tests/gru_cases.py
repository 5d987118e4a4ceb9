"""Calls of the GRU, and what they must return: from a plain loop, in float64."""

from typing import Any

import torch

from glstm import ops
from helpers import relative_error

gated_gru: Any = ops.gated_gru  # for a type checker: it is called with lists


def loop(x, w_ih, w_hh, b_ih, b_hh, h, *, k=None, sequence=True):
    """The equations, written once more, with torch's derivatives."""
    outputs = []
    for n, x_n in enumerate(x):
        given, own = x_n @ w_ih.T, h @ w_hh.T
        given, own = (given, own) if b_ih is None else (given + b_ih, own + b_hh)
        (r, z, of_x), (r_h, z_h, of_h) = given.chunk(3, -1), own.chunk(3, -1)
        z = (z + z_h).sigmoid()
        new = (1 - z) * (of_x + (r + r_h).sigmoid() * of_h).tanh() + z * h
        h = new if k is None else torch.where(k[n] == 0, h, k[n] * new + (1 - k[n]) * h)
        outputs.append(h)
    return torch.stack(outputs) if sequence else None, h


def operands(steps, batch, inputs, hidden, *, table=None, bias=True, models=(), large=1.0):
    """`table`: of openness, "shared" or "own" of each sample. `large`: how large h and its sums are."""
    draw = torch.Generator().manual_seed(3)

    def normal(*shape, scale=0.6):
        return scale * torch.randn(*models, *shape, generator=draw)

    k = torch.rand(*models, steps, *((batch,) if table == "own" else ()), hidden, generator=draw)
    k[..., : hidden // 2] *= torch.rand(*k.shape[:-1], 1, generator=draw) < 0.5
    biases = [normal(3 * hidden) for _ in range(2)] if bias else [None, None]
    return {
        "x": torch.randn(steps, batch, inputs, generator=draw),
        "w_ih": normal(3 * hidden, inputs),
        "w_hh": normal(3 * hidden, hidden, scale=large / hidden**0.5),
        **dict(zip(("b_ih", "b_hh"), biases, strict=True)),
        "h0": normal(batch, hidden, scale=0.3 * large),
        "k": None if table is None else torch.where(k < 0.3, 0, k),
    }


def results(run, tensors, sequence=True, **options):
    """Outputs, and the gradients of a sum that every output has a share in."""
    leaves = {name: part.detach().clone().requires_grad_() for name, part in tensors.items() if part is not None}
    *given, k = (leaves.get(name) for name in tensors)
    outputs = dict(zip(("h", "h_n"), run(*given, k=k, sequence=sequence, **options), strict=True))
    draw, loss = torch.Generator().manual_seed(4), torch.zeros(())
    for part in (part for part in outputs.values() if part is not None):
        loss = loss + (part * torch.randn(part.shape, generator=draw).to(part)).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return outputs, dict(zip(leaves, gradients, strict=True))


def errors(tensors, sequence=True, **options):
    """Of outputs and of gradients, by name, relative to float64."""
    right = results(loop, {name: part if part is None else part.double() for name, part in tensors.items()}, sequence)
    found = results(gated_gru, tensors, sequence, **options)
    return [
        {name: relative_error(ours[name], part) for name, part in exact.items() if part is not None and part.numel()}
        for ours, exact in zip(found, right, strict=True)
    ]


def check(tensors, sequence=True, outputs=2e-6, gradients=2e-5, **options):
    for values, limit in zip(errors(tensors, sequence, **options), (outputs, gradients), strict=True):
        assert all(value < limit for value in values.values()), values
