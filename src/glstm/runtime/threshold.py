"""The largest threshold that costs no more accuracy than somebody is willing to give."""

from collections.abc import Callable

import numpy as np

# From most closed, where testing costs least, to hardly any difference.
CANDIDATES = tuple(float(f"{value:.2g}") for value in np.geomspace(0.9, 1e-4, 48))


def largest_threshold(
    error_at: Callable[[float], float], allowed: float, candidates: tuple[float, ...] = CANDIDATES
) -> float:
    """The largest candidate at which the error is at most `allowed` above the error at 0; 0 if there is none."""
    limit = error_at(0.0) + allowed
    return next((value for value in sorted(candidates, reverse=True) if error_at(value) <= limit), 0.0)
