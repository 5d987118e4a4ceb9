"""Time in whole ticks, so that nothing drifts; `native/timed.h` says why it does not."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, ldexp, log2

import numpy as np
from numpy.typing import NDArray

from glstm.times import Frame

MODULUS = 2**64
NEAR = 2**62  # only differences of fewer ticks mean anything
FINE = 30  # bits: the smallest duration has at least 2^30 ticks, if that is possible
MOST = 60  # bits: the largest has fewer than 2^60

Ticks = NDArray[np.uint64]


@dataclass(frozen=True)
class Clock:
    """Where a time t, a whole number, lies: begin + t (ticks + fine / 2^64), in ticks. `longest`: so much may lie
    between two samples."""

    begin: int
    ticks: int
    fine: int
    longest: int

    def moment(self, t: int) -> int:
        """Not modulo 2^64, but for `begin`, which is the nearest to 0."""
        begin = self.begin if self.begin < MODULUS // 2 else self.begin - MODULUS
        return begin + t * self.ticks + (t * self.fine >> 64)


@dataclass(frozen=True)
class Scale:
    """1 in a layer's relative time is 2^bits ticks."""

    frame: Frame
    bits: int

    @classmethod
    def of(cls, frame: Frame, smallest: float, largest: float) -> "Scale":
        """For durations from `smallest` to `largest`, in relative time."""
        return cls(frame, min(FINE - floor(log2(smallest)), MOST - ceil(log2(largest))))

    def duration(self, relative: float) -> float:
        return ldexp(relative, self.bits)

    def moment(self, time: float) -> int:
        """Of a time as the user says it; not modulo 2^64."""
        return round(ldexp((time - self.frame.origin) / self.frame.unit, self.bits))

    def moments(self, times: NDArray[np.float64]) -> Ticks:
        """The same of many, modulo 2^64."""
        relative = (times - self.frame.origin) / self.frame.unit
        if self.bits <= 0:
            return np.rint(np.ldexp(relative, self.bits)).astype(np.int64).view(np.uint64)
        whole = np.floor(relative)
        parts = np.rint(np.ldexp(relative - whole, self.bits)).astype(np.int64)
        return ((whole.astype(np.int64) << self.bits) + parts).view(np.uint64)

    def clock(self, tick: float = 1.0, start: float = 0.0) -> Clock:
        """For times that are given as whole numbers of `tick`, in the user's time, counted from `start`."""
        step = Fraction(tick) / Fraction(self.frame.unit) * Fraction(2) ** self.bits
        ticks, fine = divmod(round(step * MODULUS), MODULUS)
        return Clock(self.moment(start) % MODULUS, ticks, fine, int(NEAR / step))

    @property
    def longest(self) -> float:
        """The longest time between two samples, in the user's time."""
        return ldexp(NEAR, -self.bits) * self.frame.unit


def signed(ticks: Ticks) -> NDArray[np.int64]:
    return ticks.view(np.int64)
