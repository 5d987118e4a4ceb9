"""The Gaussian gate on the C engine: its table of openness, and the gradients of its values.

torch would take a dozen operators on T x H numbers each, forward and backward. Here only what is open is computed.
"""

from collections.abc import Callable
from ctypes import byref
from math import ceil, exp, log, sqrt

import torch
from torch import Tensor

from glstm.ops import cpu
from glstm.ops.fused import TIME_TYPES, differentiable_wanted, recomputed, transformed
from glstm.ops.operator import watched

# The logarithm of k, in each dtype of times, below which it is 0 without any threshold: as in glstm/gates.py.
LEAST = {dtype: ceil(log(torch.finfo(dtype).tiny)) for dtype in TIME_TYPES}

Again = Callable[[Tensor, Tensor, Tensor], Tensor]  # moments, mu, sigma -> k (T, H)


def differentiable_table(
    moments: Tensor, mu: Tensor, sigma: Tensor, threshold: float, hidden_size: int, again: Again
) -> Tensor | None:
    """k (T, H) in float32, if gradients of mu or sigma are wanted; None if the engine cannot be used. `again` makes the
    same table by torch, for derivatives of derivatives."""
    values = (mu, sigma)
    if watched((moments, *values)) or transformed():
        return None
    if not torch.is_grad_enabled() or not any(value.requires_grad for value in values):
        return None
    if moments.requires_grad or not moments.is_cpu or moments.dtype not in TIME_TYPES:
        return None
    if not all(value.is_cpu and value.dtype is torch.float32 for value in values):
        return None
    if not 0 <= threshold < 1 or moments.dim() != 1 or {mu.shape, sigma.shape} != {(hidden_size,)}:
        return None
    if cpu.engine() is None or not _in_order(moments):
        return None
    return _Table.apply(cpu.plain(moments), threshold, again, mu, sigma)  # pyright: ignore[reportReturnType]


def _in_order(moments: Tensor) -> bool:
    """The engine searches in times that rise, or that fall."""
    steps = moments.diff()
    return bool(moments.isfinite().all()) and (bool((steps >= 0).all()) or bool((steps <= 0).all()))


class _Table(torch.autograd.Function):
    """(moments, threshold, again, mu, sigma) -> k (T, H)"""

    # Without `setup_context`, which torch.func would need: it never comes here.
    @staticmethod
    def forward(ctx, moments: Tensor, threshold: float, again: Again, mu: Tensor, sigma: Tensor):  # pyright: ignore
        k = table(moments, mu, sigma, threshold)
        ctx.again = again
        ctx.save_for_backward(moments, mu, sigma, k)
        return k

    @staticmethod
    def backward(ctx, dk: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        moments, mu, sigma, k = ctx.saved_tensors
        if differentiable_wanted((dk,)):
            by_torch, needs = lambda *values: (ctx.again(moments, *values),), ctx.needs_input_grad[3:]
            return None, None, None, *recomputed(by_torch, (dk,), needs, (mu, sigma))
        mu, sigma, dk = map(cpu.plain, (mu, sigma, dk))
        d_mu, d_sigma = torch.zeros_like(mu), torch.zeros_like(sigma)
        cpu.add_slopes(gaussian(moments, mu, sigma, d_mu, d_sigma), k, dk)
        return None, None, None, d_mu, d_sigma


def gaussian(moments: Tensor, mu: Tensor, sigma: Tensor, *gradients: Tensor) -> cpu.Gaussian:
    """The caller keeps the tensors: the engine has only their addresses."""
    at = [part.data_ptr() for part in (moments, mu, sigma, *gradients)]
    return cpu.Gaussian(*at, wide=moments.dtype is torch.float64)


def table(moments: Tensor, mu: Tensor, sigma: Tensor, threshold: float) -> Tensor:
    """k (T, H), bit for bit what `Gaussian.openness` and a threshold make, but computed where it may not be 0."""
    library = cpu.engine()
    assert library is not None
    mu, sigma = cpu.plain(mu), cpu.plain(sigma)
    k, ranges = mu.new_empty(len(moments), len(mu)), mu.new_empty(2 * len(mu), dtype=torch.int32)
    exponents = moments.new_empty(k.numel())  # memory not written to is never allocated
    values, least = gaussian(moments, mu, sigma), LEAST[moments.dtype]
    reach = sqrt(min(-log(threshold), -least) if threshold > 0 else -least)
    count = library.glstm_gaussian_exponents(
        byref(values), reach, least, *k.shape, ranges.data_ptr(), exponents.data_ptr()
    )
    exponentials = exponents[:count].exp_()
    limit = max(threshold, 1.01 * exp(least))
    library.glstm_gaussian_table(
        byref(values), ranges.data_ptr(), exponentials.data_ptr(), limit, *k.shape, k.data_ptr()
    )  # fmt: skip
    return k
