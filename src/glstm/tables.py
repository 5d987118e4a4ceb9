"""Tables of openness that a layer keeps between calls, in evaluation on the CPU."""

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
    """One table for each layer and direction, handed out only while it is what would be made afresh.

    Values are compared, because no count of versions sees what is written through `.data`. Elsewhere than on the CPU a
    comparison would wait for the device. A copy of the layer starts with nothing.
    """

    def __init__(self):
        self._tables: dict[str, Table] = {}

    def __reduce__(self):
        return TableCache, ()

    def get(self, suffix: str, key: tuple, sources: Sequence[Tensor], make: Callable[[], Tensor]) -> Tensor:
        """The table, which nobody may change; `make` makes it from `sources`, tensors, as the options in `key` say."""
        known = self._tables.get(suffix)
        if known is None or known.key != key or not all(map(_same, known.sources, sources)):
            copies = [source.detach().clone() for source in sources]
            known = Table(key, copies, make().contiguous())
            cpu.never_changes(known.k)
            self._tables[suffix] = known
        return known.k


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype is b.dtype and b.is_cpu and torch.equal(a, b)
