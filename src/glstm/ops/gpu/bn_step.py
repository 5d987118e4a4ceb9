"""All steps of a batch-normalised LSTM in training, on a GPU: at each step a product and one kernel, as one node of
autograd. A warp takes a unit with all samples, so no sum is shared by warps, and the bits are the same every time.

What is kept for backward: the products and the states; the gates are computed again. The gradient of R is one product
after the loop. `cells/bn_lstm.py` has the equations.

Networks that torch.vmap calls together have one product and one kernel at each step for all.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from glstm.ops import gpu
from glstm.ops.gpu.runtime import HERE, Kernels
from glstm.ops.recorded import transforming
from glstm.ops.side_by_side import batched, for_all, spread

LANES = 32
PER_LANE = (1, 2, 4, 8, 16)  # samples that a lane may take


def source() -> str:
    return "".join((HERE / name).read_text() for name in ("instructions.cuh", "cell.cuh", "bn_step.cu"))


def constants(per_lane: int) -> dict[str, int]:
    return {"PER_LANE": per_lane, "EXACT": 1, "LOGISTIC": 0}


@cache
def bn_kernels(per_lane: int) -> Kernels:
    """One for all numbers of units."""
    return Kernels(source(), constants(per_lane))


def per_lane_for(batch: int) -> int:
    return next(size for size in PER_LANE if batch <= LANES * size)


def usable(x: Tensor, *others: Tensor) -> bool:
    """Whether x (T, B, D) and the other tensors, of the same kind, can be computed here."""
    if torch.compiler.is_compiling() or x.shape[1] > LANES * PER_LANE[-1]:
        return False
    if transforming() and not batched(x, *others):
        return False
    alike = all(one.dtype == torch.float32 and one.device == x.device for one in (x, *others))
    return alike and gpu.usable(x, None)


def bn_steps(
    drive: Tensor, weight: Tensor, scales: Tensor, h: Tensor, c: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """All h (T, H, B), the last c (H, B), and the means and variances (T, 2, 5, H) of R h and c.

    drive (T, 4H, B): what is added to the normalised R h; weight R (4H, H); scales (6, H): gamma of the four gates,
    gamma and beta of c; h, c (H, B): before the first step.
    """
    tensors = drive, weight, scales, h, c
    if not batched(*tensors):
        found = _Steps.apply(*(tensor.unsqueeze(0) for tensor in tensors), epsilon)
        all_h, c, statistics = (part.squeeze(0) for part in found)  # pyright: ignore[reportGeneralTypeIssues]
        return all_h, c, statistics

    def run(size: int, shared: list[bool], *tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _Steps.apply(*spread(size, shared, tensors), epsilon)  # pyright: ignore[reportReturnType]

    return for_all(run, *tensors)  # pyright: ignore[reportReturnType]


class _Steps(torch.autograd.Function):
    """The same with the networks as the first axis of every tensor."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        *tensors, ctx.epsilon = arguments
        drive, weight, scales = map(_plain, tensors[:3])
        h0, c0 = tensors[3:]
        (networks, steps, _, batch), units = drive.shape, h0.shape[1]
        h, c = drive.new_empty(2, networks, steps + 1, units, batch)
        h[:, 0].copy_(h0)
        c[:, 0].copy_(c0)
        sums, found = torch.empty_like(drive), drive.new_empty(networks, steps, 2, 5, units)
        step = _prepared("bn_forward", (sums, drive, scales, c, h, found), ctx.epsilon)
        for n in range(steps):
            torch.bmm(weight, h[:, n], out=sums[:, n])
            step(n)
        ctx.save_for_backward(drive, weight, scales, h, c, sums, found)
        ctx.mark_non_differentiable(found)
        return h[:, 1:], c[:, -1], found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        drive, weight, scales, h, c, sums, found = ctx.saved_tensors
        (networks, steps), units = drive.shape[:2], scales.shape[-1]
        dh, dc = torch.empty_like(h), drive.new_empty(networks, *c.shape[2:])
        dh[:, 0].zero_()
        dh[:, 1:].copy_(gradients[0])  # the products add to what comes from outside
        dc.copy_(gradients[1])
        d_sums, d_drive = torch.empty_like(sums), torch.empty_like(drive)
        d_scales = drive.new_empty(networks, steps, 6, units)
        kept = (sums, drive, scales, c, found, dh, dc, d_sums, d_drive, d_scales)
        step, across = _prepared("bn_backward", kept, ctx.epsilon), weight.mT
        for n in reversed(range(steps)):
            step(n)
            dh[:, n].baddbmm_(across, d_sums[:, n])
        d_weight = None
        if ctx.needs_input_grad[1]:
            d_weight = d_sums.transpose(1, 2).flatten(2) @ h[:, :-1].transpose(1, 2).flatten(2).mT
        return d_drive, d_weight, d_scales.sum(1), dh[:, 0], dc, None


def _prepared(name: str, tensors: tuple[Tensor, ...], epsilon: float) -> Callable[[int], None]:
    """A launch of one step, whose number it is given. The first tensor is (M, T, 4H, B)."""
    networks, steps, rows, batch = tensors[0].shape
    kernels, units = bn_kernels(per_lane_for(batch)), rows // 4
    return kernels.prepare(name, (units, networks), LANES, *tensors, epsilon, steps, units, batch, 0)


def _plain(tensor: Tensor) -> Tensor:
    """As the kernels read them: contiguous, without torch's lazy negation."""
    return tensor.resolve_neg().contiguous()
