"""Sequences of any lengths side by side in one tensor."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from glstm.data.sequences import Sequences
from glstm.data.task import Batch


def batches_of(sequences: Sequences, size: int, device: torch.device) -> Iterator[Batch]:
    """x, times and lengths of the sequences in turn, padded to the longest of a batch; y is empty."""
    for first in range(0, len(sequences), size):
        x = sequences.x[first : first + size]
        lengths = [len(one) for one in x]
        steps_first = padded(x, max(lengths)).transpose(0, 1).contiguous()
        times = None
        if sequences.times is not None:
            times = padded_times(sequences.times[first : first + size], max(lengths)).T.to(device)
        ends = None if len(set(lengths)) == 1 else torch.tensor(lengths, device=device)
        yield Batch(steps_first.to(device), torch.empty(0), times, ends)


def padded(each: list[np.ndarray], steps: int, fill: float = 0.0) -> Tensor:
    """(N, T, ...): after a sequence's end comes `fill`, whose type is the type of all."""
    whole = torch.full((len(each), steps, *each[0].shape[1:]), fill)
    for row, own in zip(whole, each, strict=True):
        row[: len(own)] = torch.from_numpy(own)
    return whole


def padded_times(each: list[np.ndarray], steps: int) -> Tensor:
    """(N, T): after a sequence's end, its time goes on by equal steps, so that every row increases."""
    times = torch.empty(len(each), steps, dtype=torch.float64)
    for row, own in zip(times, each, strict=True):
        row[: len(own)] = torch.from_numpy(own)
        gap = (own[-1] - own[0]) / max(1, len(own) - 1) or 1.0
        row[len(own) :] = own[-1] + gap * torch.arange(1, steps - len(own) + 1, dtype=torch.float64)
    return times
