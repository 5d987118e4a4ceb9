"""Sequences as a file or a caller has them: raw numbers, any lengths, missing values as NaN."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sequences:
    """N sequences with their targets and times. It is what a reader of files returns, and what a task is made from.

    `y` is one of these:
    - None: no targets are known.
    - labels, (N,) str: the class of each sequence.
    - values, (N, K) float64: K numbers of each sequence; NaN is a missing one.
    - a list of N arrays: targets of each step, (T_n,) str with "" for a missing label, or (T_n, K) float64 with NaN.
    """

    x: list[Floats]  # (T_n, D) each; NaN is a missing value
    y: NDArray[np.str_] | Floats | list[NDArray[np.str_]] | list[Floats] | None = None
    times: list[Floats] | None = None  # (T_n,) each, increasing; None: steps are counted, 1, 2, ...
    classes: tuple[str, ...] | None = None  # all class names, in the order of the outputs; None: no classes
    channels: tuple[str, ...] | None = None  # names of the D inputs
    targets: tuple[str, ...] | None = None  # names of the K target values
    names: tuple[str, ...] | None = None  # of the sequences, such as ids
    time_unit: str | None = None  # what one unit of `times` is, such as "seconds"; None: nobody said

    def __len__(self) -> int:
        return len(self.x)

    @property
    def per_step(self) -> bool:
        """Whether each step has a target, not each sequence."""
        return isinstance(self.y, list)

    def take(self, numbers: Sequence[int] | NDArray[np.int64]) -> "Sequences":
        """These sequences, by their numbers from 0."""

        def of(values):
            if values is None:
                return None
            chosen = [values[number] for number in numbers]
            if isinstance(values, np.ndarray):
                return values[np.asarray(numbers, dtype=np.int64)]
            return tuple(chosen) if isinstance(values, tuple) else chosen

        return Sequences(
            of(self.x) or [], of(self.y), of(self.times), self.classes, self.channels, self.targets, of(self.names),
            self.time_unit,
        )  # fmt: skip
