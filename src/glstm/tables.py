"""A cache of the tables of openness: a layer reuses them between calls, in evaluation on the CPU."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from glstm.ops import cpu


class Table(NamedTuple):
    """k, with everything it was made from: options by `key`, tensors as copies."""

    key: tuple
    sources: list[Tensor]
    k: Tensor


class TableCache:
    """One table for each layer and direction, used only as long as making it again would give the same.

    Values are compared, because torch's version counters do not see changes through `.data`. On other devices than the
    CPU a comparison would wait for the device. A copy of the layer starts with an empty cache.
    """

    def __init__(self):
        self._tables: dict[str, Table] = {}

    def __reduce__(self):
        return TableCache, ()

    def get(self, suffix: str, key: tuple, sources: Sequence[Tensor], make: Callable[[], Tensor]) -> Tensor:
        """The table, which the caller must not change. `make` makes it from the tensors `sources` and options `key`."""
        known = self._tables.get(suffix)
        if known is None or known.key != key or not all(map(_same, known.sources, sources)):
            copies = [source.detach().clone() for source in sources]
            known = Table(key, copies, make().contiguous())
            cpu.never_changes(known.k)
            self._tables[suffix] = known
        return known.k


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype is b.dtype and b.is_cpu and torch.equal(a, b)
