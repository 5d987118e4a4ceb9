"""Sequences as a file or a caller has them: raw numbers, any lengths, missing values as NaN."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from glstm.errors import UserError

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

    def from_start(self) -> "Sequences":
        """With times counted from each sequence's first step."""
        return self if self.times is None else replace(self, times=[own - own[0] for own in self.times])

    def checked(self) -> "Sequences":
        """Itself, if everything fits together; else an error says what does not."""
        if not self.x:
            raise UserError("there is no sequence")
        inputs = self.x[0].shape[1]
        for number, one in enumerate(self.x):
            name = f"sequence {self.names[number] if self.names else number}"
            if not len(one):
                raise UserError(f"{name} has no steps: leave it out")
            if one.shape[1] != inputs:
                raise UserError(f"{name} has {one.shape[1]} channels, and others have {inputs}")
            if self.times is not None:
                _check_times(self.times[number], len(one), name)
            if isinstance(self.y, list) and len(self.y[number]) != len(one):
                raise UserError(f"{name} has {len(one)} steps, and {len(self.y[number])} targets")
        for what in ("y", "times", "names"):
            values = getattr(self, what)
            if values is not None and len(values) != len(self.x):
                raise UserError(f"there are {len(self.x)} sequences, and {what} has {len(values)}")
        return self


def _check_times(times: Floats, steps: int, name: str) -> None:
    if len(times) != steps:
        raise UserError(f"{name} has {steps} steps, and {len(times)} times")
    if not np.isfinite(times).all():
        raise UserError(f"{name} has a time that is not a finite number, at step {np.argmin(np.isfinite(times)) + 1}")
    if len(falls := np.flatnonzero(np.diff(times) <= 0)):
        step = falls[0]
        raise UserError(
            f"{name}: times must increase from step to step, but step {step + 2} is at {times[step + 1]:.10g}, after "
            f"{times[step]:.10g}"
        )
