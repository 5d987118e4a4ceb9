"""Curves for TensorBoard: a display that also writes every epoch's figures, into RUN/tensorboard for each run."""

import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from glstm import plots
from glstm.data.task import Task
from glstm.extras import needed_by
from glstm.layers import gated_layers
from glstm.training.display import Display, EpochRow, LossRow
from glstm.training.evaluate import openness_in_use
from glstm.training.settings import Settings

with needed_by("logging for TensorBoard"):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

if TYPE_CHECKING:
    from glstm.training.loop import Run

FOLDER = "tensorboard"
NO_CURVES = ("epoch", "together")  # the step itself, and how many runs shared the seconds
GATES = "gates"


class TensorBoard(Display):
    """Shows what `display` shows, and writes one curve for each figure of an epoch; a step is an epoch.

    `runs` are the trainer's: `trainer.fit(TensorBoard(trainer.runs, display))`. A resumed run continues its curves:
    epochs that were written and then trained again are replaced, and epochs that were not written are added.
    """

    def __init__(self, runs: "Sequence[Run]", display: Display | None = None):
        self.runs, self.display = list(runs), display or Display()

    def start(self, settings: list[Settings], task: Task, histories: list[list[EpochRow]]) -> None:
        """Also called for some of the runs only, if these must catch up with the others."""
        self.task = task
        self.active = [next(run for run in self.runs if run.settings is one) for one in settings]
        self.done = [len(history) for history in histories]
        self.writers = [
            _continued(run.folder.path / FOLDER, history) for run, history in zip(self.active, histories, strict=True)
        ]
        self.display.start(settings, task, histories)

    def batch(self, epoch: int, index: int, count: int) -> None:
        self.display.batch(epoch, index, count)

    def loss(self, rows: list[LossRow]) -> None:
        self.display.loss(rows)

    def epoch(self, rows: list[EpochRow]) -> None:
        for writer, row in zip(self.writers, rows, strict=True):
            _write(writer, row)
        self.done = [row.epoch for row in rows]
        self.display.epoch(rows)

    def stop(self) -> None:
        try:
            # While some runs catch up, their networks are others than those that are known here.
            if len(self.active) == len(self.runs):
                for run, writer, done in zip(self.active, self.writers, self.done, strict=True):
                    self._draw_gates(run, writer, done)
        finally:
            for writer in self.writers:
                writer.close()
            self.display.stop()

    def _draw_gates(self, run: "Run", writer: SummaryWriter, done: int) -> None:
        if run.gates_before is None:
            return
        layer = next(layer for layer in gated_layers(run.model) if layer.gate.names)
        after = openness_in_use(layer, self.task.steps)[0].float()
        writer.add_figure(GATES, plots.gates(run.gates_before.numpy(), after.numpy()), done)


def _continued(folder: Path, history: list[EpochRow]) -> SummaryWriter:
    """A writer after which the curves are exactly those of `history`, whatever the folder holds."""
    _wait_for_a_new_second(folder)
    written = _written(folder)
    first = next((row.epoch for row in history if row.epoch not in written), len(history) + 1)
    writer = SummaryWriter(str(folder), purge_step=first if written else None)
    for row in history[first - 1 :]:
        _write(writer, row)
    return writer


def _written(folder: Path) -> set[int]:
    """Epochs that are in the folder already."""
    if not folder.is_dir():
        return set()
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    tags = found.Tags()["scalars"]
    return {event.step for event in found.Scalars("train_loss")} if "train_loss" in tags else set()


def _write(writer: SummaryWriter, row: EpochRow) -> None:
    for field in fields(row):
        value = getattr(row, field.name)
        if field.name not in NO_CURVES and isinstance(value, int | float):
            writer.add_scalar(field.name, value, row.epoch)
    writer.flush()


def _wait_for_a_new_second(folder: Path) -> None:
    """Files of events are read in the order of their names, which begin with the second they were made in."""
    made = [int(path.name.split(".")[3]) for path in folder.glob("events.out.tfevents.*")]
    while made and int(time.time()) <= max(made):
        time.sleep(0.05)
