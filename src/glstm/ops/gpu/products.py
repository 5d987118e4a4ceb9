"""Products over all steps at once, along a leading model axis."""

import torch
from torch import Tensor


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """In float32, also of 16-bit operands."""
    return torch.bmm(a, b) if a.dtype == torch.float32 else torch.bmm(a, b, out_dtype=torch.float32)


def rows_of(x: Tensor, models: int) -> Tensor:
    """x (T, B, D), or (M, T, B, D), as (M, T * B, D)."""
    return x.reshape(-1, x.shape[-3] * x.shape[-2], x.shape[-1]).expand(models, -1, -1)


def finite(x: Tensor) -> Tensor:
    """With zeros for what is not a finite number. At a step at which every unit is closed it must not reach a gradient;
    at other steps it does so through the slopes."""
    return x.nan_to_num(0.0, 0.0, 0.0)


def share_of(x: Tensor, w_ih: Tensor) -> Tensor:
    """The contribution of the input to the gates' sums, (M, T, B, 4H), without the bias, which torch would write there
    first, and read again."""
    models = len(w_ih)
    return torch.bmm(rows_of(x, models), w_ih.transpose(1, 2)).view(models, *x.shape[-3:-1], -1)


def drive_of(x: Tensor, w_ih: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """The same with the bias; in memory that is there, if `out` is given."""
    models, rows, _ = w_ih.shape
    out = None if out is None else out.view(models, -1, rows)
    drive = torch.baddbmm(b.unsqueeze(1), rows_of(x, models), w_ih.transpose(1, 2), out=out)
    return drive.view(models, *x.shape[-3:-1], -1)
