"""The display of a run: live on a terminal, line by line elsewhere, none by default."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from glstm.data.task import Task
from glstm.extras import needed_by
from glstm.training.settings import Settings

with needed_by("showing how training goes"):
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.table import Table


@dataclass(frozen=True)
class EpochRow:
    """One line of metrics.csv."""

    epoch: int
    train_loss: float
    test_loss: float | None  # None: there is a validation set, and the test set is for the end; or there is none
    test_error: float | None
    mean_k: float | None  # None: it has no gates
    open_share: float | None  # the share of all updates of units that is made; None: it is not counted
    seconds: float  # of training; that of the test comes next
    test_seconds: float
    together: int = 1  # networks that shared these seconds
    validation_loss: float | None = None  # None: there is no validation set
    validation_error: float | None = None
    left_out: int = 0  # updates that were left out, because they would have made a number nan or infinite

    @property
    def error(self) -> float | None:
        """That on sequences it was not trained on: of the validation set, if there is one."""
        return self.test_error if self.validation_error is None else self.validation_error

    @property
    def seen_on(self) -> str:
        return "test" if self.validation_error is None else "validation"


@dataclass(frozen=True)
class LossRow:
    """One line of losses.csv: the mean training loss since the line before."""

    epoch: int
    batch: int
    loss: float


class Display:
    """The interface that the training loop calls; this one shows nothing. Rows: one per run, in the runs' order."""

    def start(self, settings: list[Settings], task: Task, histories: list[list[EpochRow]]) -> None: ...

    def batch(self, epoch: int, index: int, count: int) -> None: ...

    def loss(self, rows: list[LossRow]) -> None: ...

    def epoch(self, rows: list[EpochRow]) -> None: ...

    def stop(self) -> None: ...


class Lines(Display):
    """A line an epoch, and in a long epoch a line every half minute; of several runs, the mean and the range."""

    def __init__(self, console: Console, every: float = 30.0):
        self.console, self.every = console, every

    def start(self, settings: list[Settings], task: Task, histories: list[list[EpochRow]]) -> None:
        self.epochs, self.task = settings[0].epochs, task
        self.started = self.spoke = time.monotonic()
        self.done_before = len(histories[0])
        self.latest: list[LossRow] = []

    def loss(self, rows: list[LossRow]) -> None:
        self.latest = rows

    def batch(self, epoch: int, index: int, count: int) -> None:
        if time.monotonic() - self.spoke >= self.every:
            loss = f": loss {_spread([row.loss for row in self.latest], _four)}" if self.latest else ""
            self._say(f"epoch {epoch}, batch {index}/{count}{loss}")

    def epoch(self, rows: list[EpochRow]) -> None:
        now = rows[0]
        share = (now.epoch - self.done_before) / (self.epochs - self.done_before)
        left = (time.monotonic() - self.started) * (1 - share) / share
        self._say(
            f"epoch {now.epoch}/{self.epochs}: loss {_spread([row.train_loss for row in rows], _four)}, "
            f"{self._errors(rows)}{_openness_of(rows)}{_left_out_of(rows)}"
            f"{now.seconds + now.test_seconds:.1f} s, {timedelta(seconds=round(left))} left"
        )

    def _errors(self, rows: list[EpochRow]) -> str:
        errors = [row.error for row in rows if row.error is not None]
        if not errors:
            return ""
        kind = "validation " if rows[0].seen_on == "validation" else ""
        return f"{kind}{self.task.metric} {_spread(errors, self.task.format_error)}, "

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)
        self.spoke = time.monotonic()


def _openness_of(rows: list[EpochRow]) -> str:
    """For networks with gates, their mean openness; for others that skip updates, the share of updates made."""
    for name, label, form in (("mean_k", "mean k", _three), ("open_share", "updates", _percent)):
        values = [value for row in rows if (value := getattr(row, name)) is not None]
        if values:
            return f"{label} {_spread(values, form)}, "
    return ""


def _left_out_of(rows: list[EpochRow]) -> str:
    count = sum(row.left_out for row in rows)
    return f"{count} update{'s' * (count > 1)} left out (nan), " if count else ""


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _four(value: float) -> str:
    return f"{value:.4g}"


def _three(value: float) -> str:
    return f"{value:.3f}"


def _spread(values: list[float], form: Callable[[float], str]) -> str:
    mean = form(sum(values) / len(values))
    return mean if len(values) == 1 else f"{mean} ({form(min(values))} to {form(max(values))})"


class LiveTable(Display):
    """A progress bar and the latest figures; several runs have a line each."""

    def __init__(self, console: Console):
        self.console = console

    def start(self, settings: list[Settings], task: Task, histories: list[list[EpochRow]]) -> None:
        self.settings, self.task, self.epochs = settings, task, settings[0].epochs
        self.last: list[EpochRow | None] = [history[-1] if history else None for history in histories]
        self.latest: list[LossRow | None] = [None] * len(settings)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
        )
        count = task.batch_count("train", settings[0].batch)
        done = len(histories[0]) * count
        self.bar = self.progress.add_task("training", total=self.epochs * count, completed=done)
        self.live = Live(self._view(), console=self.console, refresh_per_second=4)
        self.live.start()

    def _view(self) -> Group:
        table = Table(box=None, pad_edge=False)
        several = len(self.settings) > 1
        seen_on = "validation" if self.task.validation_size else "test"
        for name in (*["seed"] * several, "loss", f"{seen_on} {self.task.metric}", "mean k", "open"):
            table.add_column(name, justify="right", min_width=4 if name == "seed" else 10)
        for setting, latest, last in zip(self.settings, self.latest, self.last, strict=True):
            loss = "" if latest is None else _four(latest.loss)
            figures = ["", "", ""]
            if last is not None:
                openness = "" if last.mean_k is None else _three(last.mean_k)
                share = "" if last.open_share is None else _percent(last.open_share)
                error = "" if last.error is None else self.task.format_error(last.error)
                figures = [error, openness, share]
            table.add_row(*[str(setting.seed)] * several, loss, *figures)
        return (
            Group(self.progress, table) if several else Group(table, self.progress)
        )  # a bar that many rows cannot hide

    def loss(self, rows: list[LossRow]) -> None:
        self.latest = list(rows)
        self.live.update(self._view())

    def batch(self, epoch: int, index: int, count: int) -> None:
        description = f"epoch {epoch}/{self.epochs}"
        self.progress.update(self.bar, completed=(epoch - 1) * count + index, description=description)

    def epoch(self, rows: list[EpochRow]) -> None:
        self.last = list(rows)
        self.live.update(self._view())

    def stop(self) -> None:
        self.live.stop()


def display_for(console: Console) -> Display:
    return LiveTable(console) if console.is_terminal else Lines(console)
