"""Sequences as a file or a caller has them: raw numbers, any lengths, missing values as NaN."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glstm.data.parsing import counted
from glstm.errors import DataError

Floats = NDArray[np.float64]
PARTS = ("train", "validation", "test")
LARGEST = float(np.finfo(np.float32).max)


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
    doubts: tuple[str, ...] = ()  # what may be meant otherwise, in sentences: a task made from these warns of it

    def __len__(self) -> int:
        return len(self.x)

    @property
    def per_step(self) -> bool:
        """Whether each step has a target, not each sequence."""
        return isinstance(self.y, list)

    def take(self, numbers: Sequence[int] | NDArray[np.int64]) -> "Sequences":
        """These sequences, by their numbers from 0."""

        def of(values: Any) -> Any:
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
        """These sequences, if everything in them agrees; otherwise a sentence that says what does not.

        A sequence without steps is an error, and so is a number that is infinite as float32; NaN means missing.
        """
        if not self.x:
            raise DataError("there are no sequences")
        inputs = self.x[0].shape[-1]
        for number, x in enumerate(self.x):
            if x.ndim != 2 or x.dtype != np.float64:
                raise DataError(f"{self.named(number)} is {x.dtype} of shape {x.shape}, not float64 (steps, inputs)")
            if not len(x):
                raise DataError(f"{self.named(number)} has no steps")
            if x.shape[1] != inputs or not inputs:
                raise DataError(
                    f"{self.named(number)} has {counted(x.shape[1], 'input')} where {max(inputs, 1)} belong"
                )
            self._refuse_infinite(number, x, "input")
        self._check_names("channels", self.channels, inputs, "input")
        self._check_names("names", self.names, len(self), "sequence")
        if self.times is not None:
            self._check_times(self.times)
        if self.y is not None:
            self._check_targets()
        return self

    def named(self, number: int) -> str:
        """What a sentence calls the sequence with this number, which counts from 0: it counts from 1."""
        return f"sequence {number + 1}" + (f" ({self.names[number]!r})" if self.names else "")

    def _refuse_infinite(self, number: int, values: Floats, what: str) -> None:
        """Networks compute in float32."""
        if (steps := np.argwhere(np.abs(values) > LARGEST)).size:
            step = int(steps[0][0])
            how = "infinite" if np.isinf(values[step]).any() else "too large for float32"
            raise DataError(f"{self.named(number)}: its {what} at step {step + 1} is {how}")

    def _check_names(self, field: str, given: tuple[str, ...] | None, count: int, what: str) -> None:
        if given is not None and len(given) != count:
            raise DataError(f"{field} has {counted(len(given), 'name')} for {counted(count, what)}")

    def _check_times(self, times: list[Floats]) -> None:
        if len(times) != len(self):
            raise DataError(f"times are given for {counted(len(times), 'sequence')} where there are {len(self)}")
        for number, (own, x) in enumerate(zip(times, self.x)):
            if own.shape != (len(x),):
                raise DataError(f"{self.named(number)} has {counted(len(x), 'step')} and times of shape {own.shape}")
            if (wrong := np.flatnonzero(~np.isfinite(own))).size:
                raise DataError(f"{self.named(number)}: the time of step {wrong[0] + 1} is not a finite number")
            if (wrong := np.flatnonzero(np.diff(own) <= 0)).size:
                raise DataError(f"{self.named(number)}: the time of step {wrong[0] + 2} is not after the one before it")

    def _check_targets(self) -> None:
        y: Any = self.y
        if len(y) != len(self):
            raise DataError(f"targets are given for {counted(len(y), 'sequence')} where there are {len(self)}")
        kinds = {(each.dtype.kind, each.ndim, each.shape[1:]) for each in (y if isinstance(y, list) else [y])}
        labels, values = ("U", 1, ()), next(iter(kinds))
        if len(kinds) > 1 or (values != labels and (values[:2] != ("f", 2) or not values[2][0])):
            raise DataError("targets must be all labels or all rows of equally many float64 values")
        for number, each in enumerate(y):
            steps = len(self.x[number])
            if self.per_step and len(each) != steps:
                raise DataError(f"{self.named(number)} has {counted(steps, 'step')} and {counted(len(each), 'target')}")
            if values != labels:
                self._refuse_infinite(number, each if self.per_step else each[None], "target")
        if values != labels:
            self._check_names("targets", self.targets, values[2][0], "target value")
            return
        known = set(self.classes or ())
        if self.classes is None or len(known) < len(self.classes):
            raise DataError("classes must name each class of the labels once")
        used = set(np.unique(np.concatenate(y) if isinstance(y, list) else y).tolist())
        if isinstance(y, list):
            used.discard("")
            if "" in known:
                raise DataError("an empty text cannot be the name of a class: at a step it is a missing label")
        if unknown := sorted(used - known):
            raise DataError(f"the label {unknown[0]!r} is not one of the classes")


def same_times(each: list[Floats]) -> bool:
    """Whether these are one row of times, from its beginning; of sequences of unequal lengths, too. Times that were
    computed differ in their last digits: equal are those within a thousandth of a step."""
    longest = max(each, key=len)
    near = 1e-3 * float(np.diff(longest).min()) if len(longest) > 1 else 0.0
    return all(np.allclose(own, longest[: len(own)], rtol=0, atol=near) for own in each)


def any_known(targets: np.ndarray) -> bool:
    return bool((targets != "").any() if targets.dtype.kind == "U" else (~np.isnan(targets)).any())
