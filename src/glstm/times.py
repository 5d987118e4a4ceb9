"""Timestamps: what the caller gives is checked and becomes one floating tensor (T,) or (T, B)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_known_to_increase = False


@contextmanager
def known_to_increase() -> Iterator[None]:
    """Inside it, times are not checked: on a GPU every check waits for the device."""
    global _known_to_increase
    before, _known_to_increase = _known_to_increase, True
    try:
        yield
    finally:
        _known_to_increase = before


def count_up(steps: int | range, device: torch.device) -> Tensor:
    """The paper's times, used if none are given: 1, 2, ..., T; or the part of these in a range."""
    start, stop = (steps.start, steps.stop) if isinstance(steps, range) else (1, steps + 1)
    return torch.arange(start, stop, dtype=torch.float32, device=device)


def as_times(
    times: Tensor | None,
    steps: int,
    batch: int,
    batch_first: bool,
    device: torch.device,
    valid: Tensor | None = None,
) -> Tensor:
    """The caller's times as (T,) or (T, B), which must be finite and increase; `valid` (T, B) marks real steps.

    Whole numbers become float64 and float64 stays: timestamps in a large unit must not lose their last digits.
    Where values are not known yet only the shape is checked: inside torch.compile, torch.export and torch.vmap, while a
    CUDA graph is captured, and of tensors without values.
    """
    if times is None:
        return count_up(steps, device)
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
    if times.dim() == 2 and batch_first:
        times = times.T
    if not _known_to_increase and _has_values(times):
        _check(times, valid)
    # Padding may hold anything, even NaN, and must not reach a gradient.
    return times if valid is None or times.dim() == 1 else torch.where(valid, times, 0)


def _has_values(times: Tensor) -> bool:
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    if times.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    return not times.is_meta and type(times) is Tensor


def _check(times: Tensor, valid: Tensor | None) -> None:
    if valid is None or times.dim() == 1:
        valid = torch.ones_like(times, dtype=torch.bool)
    broken = ~times.isfinite() & valid
    if broken.any():
        where = tuple(broken.nonzero()[0].tolist())
        raise ValueError(f"times must be finite, but {_place(where)} (counted from 0) is at {times[where].item()}")
    falls = (times.diff(dim=0) <= 0) & valid[1:]
    if falls.any():
        where = tuple(falls.nonzero()[0].tolist())
        after = (where[0] + 1, *where[1:])
        raise ValueError(
            f"times must increase from step to step, but {_place(after)} (counted from 0) is at "
            f"{times[after].item():g}, after {times[where].item():g}"
        )


def _place(where: tuple[int, ...]) -> str:
    return f"step {where[0]}" + "".join(f" of sample {sample}" for sample in where[1:])
