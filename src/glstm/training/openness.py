"""Mean openness, by one definition: over all real steps of all sequences and all units. Padding does not count.

A batch has a sum and a count. Over batches and processes sums and counts are added, and divided at the end: so the mean
does not depend on how sequences are divided into batches.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def mean_openness(tables: Sequence[Tensor], lengths: Tensor | None = None) -> Tensor:
    """Of one batch, differentiable: `tables` are k (T, H) for all sequences or (T, B, H), and `lengths` (B,) is where
    the sequences end; None: all are T steps long."""
    size = next((table.shape[1] for table in tables if table.dim() == 3), 1) if lengths is None else len(lengths)
    return openness_sum(tables, size, lengths) / openness_count(tables, size, lengths)


def openness_sum(tables: Sequence[Tensor], size: int, lengths: Tensor | None) -> Tensor:
    """The sum of k over all real steps of `size` sequences, and all units of all tables."""
    sums = [_sum(table, size, lengths) for table in tables]
    return sums[0] if len(sums) == 1 else torch.stack(sums).sum()


def openness_count(tables: Sequence[Tensor], size: int, lengths: Tensor | None) -> Tensor:
    """How many (step, sequence, unit) there are. The sequences may be more than those that the tables are of."""
    counts = [_steps(table, size, lengths) * table.shape[-1] for table in tables]
    return counts[0] if len(counts) == 1 else torch.stack(counts).sum()


def _sum(table: Tensor, size: int, lengths: Tensor | None) -> Tensor:
    if lengths is not None:
        real = _real(table, lengths)
        weights = real if table.dim() == 3 else real.sum(1)  # how many real steps a row stands for
        return (table * weights.unsqueeze(-1).to(table.dtype)).sum()
    return table.sum() if table.dim() == 3 or size == 1 else table.sum() * size


def _steps(table: Tensor, size: int, lengths: Tensor | None) -> Tensor:
    if lengths is not None:
        return _real(table, lengths).sum().to(table.dtype)
    return torch.full((), len(table) * size, dtype=table.dtype, device=table.device)


def _real(table: Tensor, lengths: Tensor) -> Tensor:
    """(T, B): which steps are no padding."""
    return torch.arange(len(table), device=table.device)[:, None] < lengths
