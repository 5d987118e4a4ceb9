"""Timestamps: from whatever the caller gives to one floating tensor (T,) or (T, B), checked."""

import torch
from torch import Tensor


def as_times(times: Tensor | None, steps: int, batch: int, batch_first: bool, device: torch.device) -> Tensor:
    """The caller's times as (T,) or (T, B); without any, the paper's 1, 2, ..., T.

    Whole numbers become float64 and float64 stays: timestamps in a large unit must not lose their last digits.
    """
    if times is None:
        return torch.arange(1, steps + 1, dtype=torch.float32, device=device)
    times = torch.as_tensor(times, device=device)
    if times.is_complex() or times.dtype == torch.bool:
        raise ValueError(f"times must be real numbers, not {times.dtype}")
    per_sample = (batch, steps) if batch_first else (steps, batch)
    if times.shape not in ((steps,), per_sample):
        layout = "(B, T)" if batch_first else "(T, B)"
        raise ValueError(
            f"times must have shape (T,) = ({steps},) shared by all samples or {layout} = {per_sample} per sample, "
            f"but has {tuple(times.shape)}"
        )
    if not times.is_floating_point():
        times = times.double()
    elif times.element_size() < 4:
        times = times.float()
    return times.T if times.dim() == 2 and batch_first else times


def check_times(times: Tensor, valid: Tensor | None = None) -> None:
    """Refuse times that are not finite or do not increase from step to step; `valid` (T, B) marks real steps."""
    if torch.compiler.is_compiling():
        return  # values are not known while a graph is traced
    if valid is None or times.dim() == 1:
        valid = torch.ones_like(times, dtype=torch.bool)
    broken = ~times.isfinite() & valid
    if broken.any():
        where = tuple(broken.nonzero()[0].tolist())
        raise ValueError(f"times must be finite, but times[{_index(where)}] is {times[where].item()}")
    falls = (times.diff(dim=0) <= 0) & valid[1:]
    if falls.any():
        where = tuple(falls.nonzero()[0].tolist())
        after = (where[0] + 1, *where[1:])
        raise ValueError(
            f"times must increase from step to step, but times[{_index(after)}] = {times[after].item():g} "
            f"follows times[{_index(where)}] = {times[where].item():g}"
        )


def _index(where: tuple[int, ...]) -> str:
    return ", ".join(map(str, where))
