"""Overlapping windows on a stream without an end, for networks whose gates open only once."""

import copy
from collections.abc import Iterable, Iterator
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from glstm.runtime.stream import Stream


class Window(NamedTuple):
    """One that has ended."""

    start: int  # the number of its first sample, counted from 0
    output: np.ndarray  # of the head, after its last sample


class Windows:
    """A window of `length` samples begins every `hop` samples. Each has a state of its own, so `count` of them are in
    memory, whatever the length of the stream. `ops` and `state_bytes` say what that costs.
    """

    def __init__(self, stream: "Stream", length: int, hop: int):
        self.length, self.hop = _at_least_one(length, "length"), _at_least_one(hop, "hop")
        self.plan = stream.network.plan
        self.plan.require_window(self.length)
        self.count = -(-self.length // self.hop)
        fresh = copy.copy(stream)
        fresh.reset()
        self._streams = [copy.copy(fresh) for _ in range(self.count)]
        self.reset()

    def __repr__(self) -> str:
        return (
            f"Windows({self.count} at once, of {self.length} samples, one every {self.hop}: {self.ops:,.0f} operations "
            f"a sample, {self.state_bytes:,} bytes of state)"
        )

    @property
    def ops(self) -> float:
        """Operations a sample through the layers, of all windows together, once they overlap as they will for ever."""
        return self.plan.ops_of(self.length) / self.hop

    @property
    def state_bytes(self) -> int:
        return self.count * self.plan.state_bytes

    def reset(self) -> None:
        """Back to the moment before the first sample."""
        self.position = 0  # samples taken

    def step(self, x_t: Any) -> Window | None:
        """Take one sample. Returns the window that ends with it, if one does."""
        first = self._streams[0]
        sample = first._sample(x_t)
        number, since = divmod(self.position, self.hop)
        if since == 0:
            self._streams[number % self.count].reset()
        self.position += 1
        ended = None
        for back in range(min(number + 1, self.count)):
            stream, start = self._streams[(number - back) % self.count], (number - back) * self.hop
            taken = self.position - start
            if taken <= self.length:
                stream.take_checked(sample)
            if taken == self.length:
                ended = Window(start, stream.output())
        return ended

    def feed(self, samples: Iterable[Any]) -> Iterator[Window]:
        """Take samples as they come; yields each window that ends."""
        for sample in samples:
            if (window := self.step(sample)) is not None:
                yield window


def _at_least_one(value: Any, name: str) -> int:
    try:
        number = index(value)
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number of samples, at least 1, not {value!r:.50}")
    return number
