"""The thresholds at which the page's slider can stand, and tables of openness as places among them.

A page that computed k itself would round it otherwise than Python, and some unit would be open on one side and closed
on the other. So Python compares k with every threshold of the slider, and the page gets only the result: for each unit
and step, how many of the thresholds lie below k. That is one byte, it is exact, and it is all that counting needs.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Levels = NDArray[np.uint8]

# Where the error is measured, too: measuring takes time, so there are few.
MEASURED = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
PER_DECADE = 20
SMALLEST, TURN, LARGEST = -6, 0.1, 0.99  # a power of ten; from TURN on the steps are equal


def positions(own: Iterable[float] = ()) -> list[float]:
    """0, then from 1e-6 to 0.1 by equal ratios, then to 0.99 by equal steps; with the networks' own thresholds."""
    ratios = [float(f"{10 ** (place / PER_DECADE):.3g}") for place in range(SMALLEST * PER_DECADE, -PER_DECADE)]
    equal = [round(TURN + 0.01 * step, 2) for step in range(round((LARGEST - TURN) / 0.01) + 1)]
    return sorted({0.0, *ratios, *equal, *MEASURED, *own})


def levels(k: NDArray, thresholds: list[float]) -> Levels:
    """How many of the thresholds are below each k: at position p a unit is open where its level is above p.

    Thresholds are rounded to the type of k, as torch does before it compares.
    """
    if len(thresholds) > np.iinfo(np.uint8).max:
        raise ValueError(f"a level is one byte, and there are {len(thresholds)} thresholds")
    return np.searchsorted(np.asarray(thresholds, k.dtype), k, side="left").astype(np.uint8)
