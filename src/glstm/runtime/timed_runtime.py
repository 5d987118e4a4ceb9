"""A deployed network that knows nothing of its samples but that their times increase."""

from typing import Any

import numpy as np
from torch import Tensor

from glstm.errors import UserError
from glstm.runtime.runtime import Runtime, increasing_times
from glstm.runtime.timed_plan import TimedPlan
from glstm.runtime.timed_stream import TimedNetwork, TimedStream


class TimedRuntime(Runtime):
    """`stream()` takes samples at any times, and without an end if the gates come back.

    Whole sequences may be of any length, at the times given. `ops`, `lstm_ops` and `openness` are about `plan.steps`
    steps: one period of the unit with the longest; all steps up to the last at which a unit is open, if gates open only
    once; one step, if they never close.
    """

    plan: TimedPlan  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self, plan: TimedPlan, reads: tuple[int, ...] | None = None, batch_first: bool = False, *, every: bool
    ):
        """`every`: the head reads after every sample of a stream."""
        self.plan, self.reads, self.batch_first, self.every = plan, reads, batch_first, every
        self._timed: TimedNetwork | None = None
        self._whole: tuple[Any, Runtime] | None = None  # for the last sequences' times

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.plan, self.reads, self.batch_first, self.every)

    def __repr__(self) -> str:
        units, share = "-".join(map(str, self.units)), f"{100 * self.openness:.2f} % open"
        when = "until the last gate closes" if self.plan.ends else "without an end"
        return f"Runtime({when}, {units} units, {share}, {self.ops / self.plan.steps:,.0f} operations a step)"

    def stream(self) -> TimedStream:
        if self._timed is None:
            self._timed = TimedNetwork(self.plan)
        return TimedStream(self._timed, None if self.every else frozenset(self.reads or ()))

    def __call__(self, x, times: Any = None):  # pyright: ignore[reportIncompatibleMethodOverride]
        """Whole sequences x (T, B, D), or one (T, D), at times (T,); None: 1, 2, ...

        A network whose layer has batch_first takes (B, T, D). The head reads as the model does, or where `reads` says.
        """
        axis = 1 if self.batch_first and getattr(x, "ndim", 0) == 3 else 0
        steps = x.shape[axis] if isinstance(x, Tensor | np.ndarray) and x.ndim > axis else 1
        if times is None:
            self.plan.require_counted()
            known = np.arange(1, steps + 1, dtype=np.float64)
        else:
            known = increasing_times(times).double().numpy()
            if len(known) != steps:
                raise UserError(f"times must be {steps} increasing numbers, one for each step, but are {len(known)}")
        if self._whole is None or not np.array_equal(self._whole[0], known):
            self._whole = known, Runtime(self.plan.at(known), self._read_of(steps), self.batch_first)
        return self._whole[1](x)

    def _read_of(self, steps: int) -> tuple[int, ...] | None:
        return tuple(range(1, steps + 1)) if self.plan.every else self.reads


def _again(plan: TimedPlan, reads: tuple[int, ...] | None, batch_first: bool, every: bool) -> TimedRuntime:
    return TimedRuntime(plan, reads, batch_first, every=every)
