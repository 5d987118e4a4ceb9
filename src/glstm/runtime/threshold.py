"""Finds the largest threshold whose loss of accuracy is within a given limit."""

from collections.abc import Callable

import numpy as np

# From the largest, at which testing is fastest, down to one that hardly changes anything.
CANDIDATES = tuple(float(f"{value:.2g}") for value in np.geomspace(0.9, 1e-4, 48))


def largest_threshold(
    error_at: Callable[[float], float],
    allowed: float,
    as_trained: float = 0.0,
    candidates: tuple[float, ...] = CANDIDATES,
) -> float:
    """The largest candidate at which the error is at most `allowed` above the error at the threshold of training; that
    one, if there is none above it."""
    limit = error_at(as_trained) + allowed
    larger = sorted((value for value in candidates if value > as_trained), reverse=True)
    return next((value for value in larger if error_at(value) <= limit), as_trained)
