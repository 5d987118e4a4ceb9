"""The Gaussian gate on the C engine: its table of openness, and the gradients of its values.

torch would take a dozen operators on T x H numbers each, forward and backward. Here only what is open is computed.
"""

from collections.abc import Callable
from ctypes import byref
from math import ceil, exp, log, sqrt

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as transforming
from torch._C._functorch import is_legacy_batchedtensor
from torch.autograd import forward_ad

from glstm.ops import cpu
from glstm.ops.fused import TIME_TYPES
from glstm.ops.operator import watched

# The logarithm of k, in each dtype of times, below which it is 0 without any threshold: as in glstm/gates.py.
LEAST = {dtype: ceil(log(torch.finfo(dtype).tiny)) for dtype in TIME_TYPES}

ByTorch = Callable[[Tensor, Tensor], Tensor]  # mu, sigma -> k (T, H)


def differentiable_table(
    moments: Tensor, mu: Tensor, sigma: Tensor, threshold: float, by_torch: ByTorch
) -> Tensor | None:
    """k (T, H), of which gradients of mu and sigma are wanted, in float32; None where this is not the way. `by_torch`
    makes the same table, for derivatives of derivatives."""
    values = (mu, sigma)
    if watched((moments, *values)) or transforming() or forward_ad._current_level >= 0:
        return None
    if not torch.is_grad_enabled() or not any(value.requires_grad for value in values):
        return None
    if moments.requires_grad or not moments.is_cpu or moments.dtype not in TIME_TYPES:
        return None
    if not all(value.is_cpu and value.dtype is torch.float32 for value in values):
        return None
    if isinstance(threshold, Tensor) or moments.dim() != 1 or mu.dim() != 1 or mu.shape != sigma.shape:
        return None
    if cpu.engine() is None or not _in_order(moments):
        return None
    return _Table.apply(moments, threshold, by_torch, mu, sigma)  # pyright: ignore[reportReturnType]


def _in_order(moments: Tensor) -> bool:
    """The engine searches in times that rise, or that fall."""
    steps = moments.diff()
    return bool((steps >= 0).all()) or bool((steps <= 0).all())


class _Table(torch.autograd.Function):
    """(moments, threshold, by_torch, mu, sigma) -> k (T, H)"""

    # Without `setup_context`, which torch.func would need: it never comes here.
    @staticmethod
    def forward(ctx, moments: Tensor, threshold: float, by_torch: ByTorch, mu: Tensor, sigma: Tensor):  # pyright: ignore
        moments = moments.contiguous()
        k = table(moments, mu, sigma, threshold)
        ctx.by_torch = by_torch
        ctx.save_for_backward(moments, mu, sigma, k)
        return k

    @staticmethod
    def backward(ctx, dk: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        moments, mu, sigma, k = ctx.saved_tensors
        if torch.is_grad_enabled() or transforming() or is_legacy_batchedtensor(dk):
            return None, None, None, *_by_torch(ctx.by_torch, dk, ctx.needs_input_grad[3:], mu, sigma)
        mu, sigma, k, dk = map(cpu.plain, (mu, sigma, k, dk))
        d_mu, d_sigma = torch.zeros_like(mu), torch.zeros_like(sigma)
        add_slopes(gaussian(moments, mu, sigma, d_mu, d_sigma), k, dk)
        return None, None, None, d_mu, d_sigma


def _by_torch(by_torch: ByTorch, dk: Tensor, needs: tuple[bool, ...], *values: Tensor) -> list[Tensor | None]:
    create = torch.is_grad_enabled()
    with torch.enable_grad():
        # As views: one value may depend on the other, and what flows there is not asked for here.
        own = [value.view_as(value) if need else value for value, need in zip(values, needs, strict=True)]
        k = by_torch(*own)
    wanted = [value for value, need in zip(own, needs, strict=True) if need]
    found = iter(torch.autograd.grad(k, wanted, dk, create_graph=create))
    return [next(found) if need else None for need in needs]


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


def add_slopes(gate: cpu.Gaussian, k: Tensor, dk: Tensor) -> None:
    """The gradients of mu and sigma from that of the table (T, H), added where the gate says."""
    library = cpu.engine()
    assert library is not None
    cpu.require_memory(library.glstm_gaussian_slopes(byref(gate), k.data_ptr(), dk.data_ptr(), *k.shape))
