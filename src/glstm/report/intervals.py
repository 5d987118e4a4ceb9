"""How sure a difference between two networks is: Welch's interval of the difference of their means over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, variance

LEVEL = 0.95
PARTS = 400  # of the integral, by Simpson's rule
HALVINGS = 60  # of the interval in which the quantile lies


@dataclass(frozen=True)
class Difference:
    """Of two means, and the interval in which it lies with a probability of `LEVEL`."""

    value: float
    low: float
    high: float

    @property
    def lower(self) -> bool:
        """Whether the first is surely lower."""
        return self.high < 0

    @property
    def higher(self) -> bool:
        return self.low > 0


def difference(first: Sequence[float], second: Sequence[float]) -> Difference | None:
    """The first mean minus the second; None if one of them has a single value, whose spread is not known."""
    if min(len(first), len(second)) < 2:
        return None
    value = mean(first) - mean(second)
    own, other = variance(first) / len(first), variance(second) / len(second)
    if own + other == 0:
        return Difference(value, value, value)
    freedom = (own + other) ** 2 / (own**2 / (len(first) - 1) + other**2 / (len(second) - 1))
    half = t_quantile(freedom) * math.sqrt(own + other)
    return Difference(value, value - half, value + half)


def t_quantile(freedom: float, level: float = LEVEL) -> float:
    """The t that Student's distribution exceeds on either side with a probability of 1 - `level` in all.

    With t = sqrt(freedom) tan(angle) the density becomes a power of a cosine, which is easy to integrate.
    """
    scale = 2 * math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    low, high = 0.0, math.pi / 2
    for _ in range(HALVINGS):
        angle = (low + high) / 2
        inside = scale * _integral(angle, freedom - 1)
        low, high = (angle, high) if inside < level else (low, angle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _integral(end: float, power: float) -> float:
    """Of cos(x) ** power from 0 to `end`, by Simpson's rule."""
    step = end / PARTS
    heights = [math.cos(step * number) ** power for number in range(PARTS + 1)]
    return step / 3 * (heights[0] + heights[-1] + 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2]))
