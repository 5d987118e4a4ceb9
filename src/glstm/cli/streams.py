"""Exports for streams: their options, and sequences for networks whose steps nobody knows beforehand."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch

from glstm.cli.folders import ScheduleOptions, Subject
from glstm.cli.options import option
from glstm.errors import UserError

STREAMS = "Streams"
FEWEST, MOST = 50, 4000  # steps of a sequence that is made up


@dataclass(frozen=True)
class StreamOptions:
    stream: Annotated[
        bool,
        option("For a stream of which no step is the last: samples are counted, at 1, 2, ...", STREAMS, "--stream"),
    ] = False
    tick: Annotated[
        float | None,
        option(
            "For a stream whose samples come with times: whole numbers of this, in the unit of the times of training.",
            STREAMS,
        ),
    ] = None
    start: Annotated[float | None, option("With --tick: the time from which ticks count; without it, 0.", STREAMS)] = (
        None
    )

    @property
    def without_steps(self) -> bool:
        """Whether the network is for samples of which neither number nor times are known."""
        return self.stream or self.tick is not None

    def times(self) -> Any:
        """As `export_c` takes them."""
        from glstm.runtime.export_c import Times

        return Times(self.tick, self.start or 0.0)

    def check(self, given: ScheduleOptions, *, int8_states: bool = False) -> None:
        if self.start is not None and self.tick is None:
            raise UserError("--start says from when on ticks count: give --tick, too")
        if not self.without_steps:
            return
        if given.steps is not None:
            raise UserError("--steps says how long a sequence is, and --stream and --tick that nobody knows: give one")
        if given.times is not None and self.tick is None:
            raise UserError("--times says when samples come, and --stream that they are counted: give --tick instead")
        if int8_states:
            raise UserError("--int8-states is for sequences with known steps: with --stream and --tick, take --int8")
        self.times()


def parse_windows(text: str | None) -> tuple[int, int] | None:
    """'200,50'"""
    if text is None:
        return None
    try:
        length, hop = (int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--windows takes LENGTH,HOP in samples, such as 200,50, not {text!r:.50}") from None
    return length, hop


def require_times(subject: Subject, plan: Any, stream: StreamOptions) -> None:
    """Samples are counted only where a network was trained so."""
    if stream.tick is None and not plan.counts:
        raise UserError(
            f"{subject.path} was trained at times from {plan.trained.in_words}, so its samples are not counted: give "
            "--tick, a duration of which their times are whole numbers"
        )


def made_up_times(plan: Any, stream: StreamOptions, given: Any) -> np.ndarray:
    """Times (T,) for sequences that nobody gave, as the network's own; with --tick they are irregular."""
    if given is not None:
        return on_ticks(given.numpy(), stream)[1]
    _, times = plan.counted_times
    steps = min(max(len(times), FEWEST), MOST)
    gaps = np.ones(steps) if stream.tick is None else np.random.default_rng(0).exponential(1.0, steps)
    return on_ticks(times[0] + plan.pace * (gaps.cumsum() - gaps[0]), stream)[1]


def tested_sequences(task: Any, count: int, stream: StreamOptions) -> tuple[Any, np.ndarray]:
    """Some of the test part, x (T, N, inputs), and their times (T,); one sequence, if each has its own times."""
    from glstm.data import Batch

    batch = Batch(*task.test_samples(slice(0, count)))
    x, steps = batch.x, len(batch.x)
    at = torch.arange(1.0, steps + 1) if batch.times is None else batch.times
    if at.dim() == 2:
        steps = steps if batch.lengths is None else int(batch.lengths[0])
        x, at = x[:steps, :1], at[:steps, 0]
    kept, at = on_ticks(at.double().numpy(), stream)
    return x[kept], at


def calibrated_times(task: Any, count: int) -> np.ndarray:
    """Times (T,) at which training sequences are read where int8 scales are chosen. If each has its own, those of the
    longest: scales depend on which inputs come together, which is much the same."""
    from glstm.data import Batch

    if not task.own_times:
        return np.arange(1.0, task.steps + 1) if task.times is None else task.times.double().numpy()
    batch = Batch(*task.cut(task.stage(0, 0), slice(0, min(count, task.train_size))))
    assert batch.times is not None
    longest, steps = 0, len(batch.x)
    if batch.lengths is not None:
        longest, steps = int(batch.lengths.argmax()), int(batch.lengths.max())
    return batch.times[:steps, longest].double().numpy()


def on_ticks(times: np.ndarray, stream: StreamOptions) -> tuple[np.ndarray, np.ndarray]:
    """Which of these times are there in whole ticks, and when: none before the start, and no two at once."""
    if stream.tick is None:
        return np.arange(len(times)), times
    start = stream.start or 0.0
    ticks = np.rint((times - start) / stream.tick)
    kept = np.flatnonzero((ticks >= 0) & (np.diff(ticks, prepend=-np.inf) > 0))
    if not len(kept):
        raise UserError(f"--start {start:g} is after the last time at which the export would be tested, {times[-1]:g}")
    return kept, start + stream.tick * ticks[kept]
