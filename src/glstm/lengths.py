"""How many steps of each padded sequence count: one check for all that take `lengths`."""

from typing import Any

import torch
from torch import Tensor

from glstm.ndarrays import on_device, unlisted
from glstm.times import has_values

WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64)


def checked_lengths(lengths: Any, steps: int, batch: int, device: torch.device, least: int) -> Tensor:
    """A tensor, an array or a list as int64 on the device. What torch.compile and other transforms hide is not looked
    at, and what is on a GPU neither: that would wait for it."""
    lengths = unlisted(lengths)
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]
        return on_device(lengths, device)
    found = on_device(lengths, "cpu")
    right = f"lengths must be a whole number from {least} to {steps} for each of the {batch} sequences"
    if not isinstance(found, Tensor) or found.dtype not in WHOLE or found.shape != (batch,):
        what = f"{found.dtype} of shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"{found!r:.50}"
        raise ValueError(f"{right}, not {what}")
    found = found.to(torch.int64)
    if found.is_cpu and has_values(found):
        wrong = found[(found < least) | (found > steps)]
        if len(wrong):
            raise ValueError(f"{right}, and one is {int(wrong[0])}")
    return found.to(device)


def real_steps(steps: int, lengths: Tensor, device: torch.device) -> Tensor:
    """(T, B): where a sequence has not ended."""
    return torch.arange(steps, device=device)[:, None] < lengths.to(device)


def without_padding(x: Tensor, real: Tensor) -> Tensor:
    """x (T, B, D), or (B, T, D) as `real` is, with zeros for padding: a gradient there is 0, but 0 times NaN is NaN."""
    return torch.where(real.unsqueeze(-1), x, 0)
