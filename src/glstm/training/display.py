"""How a run shows itself: live on a terminal, line by line elsewhere, not at all by default."""

import time
from dataclasses import dataclass
from datetime import timedelta

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from glstm.data import Task
from glstm.training.recipe import Recipe


@dataclass(frozen=True)
class EpochRow:
    """One line of metrics.csv."""

    epoch: int
    train_loss: float
    test_loss: float
    test_error: float
    mean_k: float
    open_share: float
    seconds: float


@dataclass(frozen=True)
class LossRow:
    """One line of losses.csv: the mean training loss since the line before."""

    epoch: int
    batch: int
    loss: float


class Display:
    """Shows nothing; what the training loop tells anybody who listens."""

    def start(self, recipe: Recipe, task: Task, history: list[EpochRow]) -> None: ...

    def batch(self, epoch: int, index: int, count: int) -> None: ...

    def loss(self, row: LossRow) -> None: ...

    def epoch(self, row: EpochRow) -> None: ...

    def stop(self) -> None: ...


class Lines(Display):
    """A line an epoch, and in a long epoch a line every half minute."""

    def __init__(self, console: Console, every: float = 30.0):
        self.console, self.every = console, every

    def start(self, recipe: Recipe, task: Task, history: list[EpochRow]) -> None:
        self.recipe, self.task = recipe, task
        self.started = self.spoke = time.monotonic()
        self.done_before = len(history)
        self.latest: LossRow | None = None

    def loss(self, row: LossRow) -> None:
        self.latest = row

    def batch(self, epoch: int, index: int, count: int) -> None:
        if time.monotonic() - self.spoke >= self.every:
            self._say(f"epoch {epoch}, batch {index}/{count}{_loss(self.latest)}")

    def epoch(self, row: EpochRow) -> None:
        share = (row.epoch - self.done_before) / (self.recipe.epochs - self.done_before)
        left = (time.monotonic() - self.started) * (1 - share) / share
        self._say(
            f"epoch {row.epoch}/{self.recipe.epochs}: loss {row.train_loss:.4g}, "
            f"{self.task.metric} {self.task.format_error(row.test_error)}, mean k {row.mean_k:.3f}, "
            f"{row.seconds:.1f} s, {timedelta(seconds=round(left))} left"
        )

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)
        self.spoke = time.monotonic()


def _loss(row: LossRow | None) -> str:
    return "" if row is None else f": loss {row.loss:.4g}"


class LiveTable(Display):
    """A progress bar with the latest figures above it."""

    def __init__(self, console: Console):
        self.console = console

    def start(self, recipe: Recipe, task: Task, history: list[EpochRow]) -> None:
        self.recipe, self.task = recipe, task
        self.last = history[-1] if history else None
        self.latest: LossRow | None = None
        self.count = task.batch_count("train", recipe.batch)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
        )
        total = recipe.epochs * self.count
        self.bar = self.progress.add_task("training", total=total, completed=len(history) * self.count)
        self.live = Live(self._view(), console=self.console, refresh_per_second=4)
        self.live.start()

    def _view(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for name in ("loss", f"test {self.task.metric}", "mean k", "open"):
            table.add_column(name, justify="right", min_width=10)
        loss = "" if self.latest is None else f"{self.latest.loss:.4g}"
        if self.last is None:
            table.add_row(loss, "", "", "")
        else:
            table.add_row(
                loss,
                self.task.format_error(self.last.test_error),
                f"{self.last.mean_k:.3f}",
                f"{100 * self.last.open_share:.1f} %",
            )
        return Group(table, self.progress)

    def loss(self, row: LossRow) -> None:
        self.latest = row
        self.live.update(self._view())

    def batch(self, epoch: int, index: int, count: int) -> None:
        description = f"epoch {epoch}/{self.recipe.epochs}"
        self.progress.update(self.bar, completed=(epoch - 1) * count + index, description=description)

    def epoch(self, row: EpochRow) -> None:
        self.last = row
        self.live.update(self._view())

    def stop(self) -> None:
        self.live.stop()


def display_for(console: Console) -> Display:
    return LiveTable(console) if console.is_terminal else Lines(console)
