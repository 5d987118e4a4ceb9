"""A scan over time of units that do not hear each other: h_n = act(a_n * h_{n-1} + b_n), element by element.

Every unit of every sample is a sequence by itself. So a GPU computes all of them in parallel, one thread each, with one
kernel for all steps, forward and backward (`gpu/unit_scan.py`); elsewhere it is a loop over the steps.

Backward, with dh_n the gradient that reaches h_n from outside:

    db_n = act'(h_n) * (dh_n + a_{n+1} * db_{n+1})        da_n = db_n * h_{n-1}        dh_0 = a_1 * db_1

act' follows from h_n, so nothing else is stored.
"""

from typing import Any

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as transforming
from torch._C._functorch import is_legacy_batchedtensor

from glstm.errors import ShapeError
from glstm.ops import gpu
from glstm.ops.gpu import unit_scan as kernels

ACTIVATIONS = ("linear", "relu", "tanh")


def unit_scan(a: Tensor, b: Tensor, h0: Tensor, activation: str = "linear") -> Tensor:
    """All h (T, B, H) of b (T, B, H) and h0 (B, H). a is whatever broadcasts to b, such as (H,) or (T, 1, H)."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {activation!r:.50}")
    if b.dim() != 3 or h0.shape != b.shape[1:]:
        raise ShapeError(
            f"b must be (T, B, H) and h0 (B, H), but they have shapes {tuple(b.shape)} and {tuple(h0.shape)}"
        )
    fits = a.dim() <= 3 and all(own in (1, full) for own, full in zip(reversed(a.shape), reversed(b.shape)))
    if not fits:
        raise ShapeError(f"a must broadcast to b's shape {tuple(b.shape)}, but has {tuple(a.shape)}")
    dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), h0.dtype)  # under autocast, b alone is narrow
    a = a[(None,) * (3 - a.dim())]
    run = scan_by_steps if torch.compiler.is_compiling() else _UnitScan.apply
    return run(a.to(dtype), b.to(dtype), h0.to(dtype), activation)  # pyright: ignore[reportReturnType]


def scan_by_steps(a: Tensor, b: Tensor, h0: Tensor, activation: str) -> Tensor:
    """The definition, as a loop of torch's operators. a has three axes here, each as long as b's or 1."""
    h, found = h0, []
    for a_n, b_n in zip(a.expand(len(b), -1, -1).unbind(), b.unbind(), strict=True):
        h = torch.addcmul(b_n, a_n, h)
        if activation != "linear":
            h = torch.relu(h) if activation == "relu" else torch.tanh(h)
        found.append(h)
    return torch.stack(found) if found else torch.empty_like(b)


def gradients_by_steps(dh: Tensor, a: Tensor, h0: Tensor, h: Tensor, activation: str) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a, b and h0. Torch can differentiate them again."""
    if not len(h):
        return torch.zeros_like(a), torch.zeros_like(h), torch.zeros_like(h0)
    carried = total = torch.zeros_like(h0)
    by, slopes, of_steps = a.expand(len(h), -1, -1), [], []
    for n in reversed(range(len(h))):
        slope = dh[n] + carried
        if activation == "relu":
            slope = torch.ops.aten.threshold_backward(slope, h[n], 0)
        elif activation == "tanh":
            slope = torch.ops.aten.tanh_backward(slope, h[n])
        carried, before = by[n] * slope, h[n - 1] if n else h0
        slopes.append(slope)
        if len(a) > 1:
            of_steps.append(slope * before)
        else:
            total = torch.addcmul(total, slope, before)  # as it grows, it stays in the cache
    da = torch.stack(of_steps[::-1]) if of_steps else total.unsqueeze(0)
    return _summed(da, a), torch.stack(slopes[::-1]), carried


def _summed(da: Tensor, a: Tensor) -> Tensor:
    """da, summed over the axes along which a is the same."""
    same = [axis for axis in range(3) if a.shape[axis] == 1 and da.shape[axis] != 1]
    return da.sum(same, keepdim=True) if same else da


class _UnitScan(torch.autograd.Function):
    """(a, b, h0, activation) -> all h. a has three axes, each as long as b's or 1."""

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        a, b, h0, activation = arguments
        if gpu.usable(b, None):
            return kernels.forward(a, b, h0, ACTIVATIONS.index(activation))
        return scan_by_steps(a, b, h0, activation)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        a, _, h0, ctx.activation = inputs
        ctx.save_for_backward(a, h0, output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (dh,), (a, h0, h) = gradients, ctx.saved_tensors
        unusual = torch.is_grad_enabled() or transforming() or is_legacy_batchedtensor(dh)
        if unusual or not gpu.usable(h, None):
            return *gradients_by_steps(dh, a, h0, h, ctx.activation), None
        da, db, dh0 = kernels.backward(dh, a, h0, h, ACTIVATIONS.index(ctx.activation))
        return _summed(da, a), db, dh0, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, a: Tensor, b: Tensor, h0: Tensor, activation: str):  # pyright: ignore
        """Networks side by side are more samples."""
        size = info.batch_size
        samples = (h0 if in_dims[2] is None else h0.movedim(in_dims[2], 0)[0]).shape[0]

        def folded(part: Tensor, dim: int | None, axis: int) -> Tensor:
            """The networks' axis in front of that of the samples, and both as one."""
            part = part.unsqueeze(axis) if dim is None else part.movedim(dim, axis)
            shape = list(part.shape)
            shape[axis : axis + 2] = size, samples
            return part.expand(shape).flatten(axis, axis + 1)

        a = a if in_dims[0] is None and a.shape[1] == 1 else folded(a, in_dims[0], 1)
        h = _UnitScan.apply(a, folded(b, in_dims[1], 1), folded(h0, in_dims[2], 0), activation)
        return h.unflatten(1, (size, samples)), 1  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
