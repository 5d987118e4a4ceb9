"""The training loop: runs of one shape that train together, stop, and go on; each keeps its own folder."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from glstm.errors import UserError
from glstm.models import SequenceModel
from glstm.pretrained import save_values
from glstm.training.build import build_task
from glstm.training.checkpoint import load_checkpoint, save_checkpoint
from glstm.training.display import Display, EpochRow, LossRow
from glstm.training.evaluate import openness_in_use
from glstm.training.fabric import Fabric
from glstm.training.population import Population
from glstm.training.recipe import Recipe, check_together
from glstm.training.run import RunFolder

SAVE_EVERY = 60.0  # seconds, inside an epoch
SAVE_GAP = 5.0  # seconds at least between two saves at the ends of epochs ...
SAVE_SHARE = 20  # ... and so many times as long as the last one took
LOSS_ROWS = 10  # an epoch

Place = tuple[int, int]  # epoch, and batch in it, to train on next


@dataclass(eq=False)
class Run:
    """One member of the population, and what is known of it."""

    recipe: Recipe
    folder: RunFolder
    model: SequenceModel
    gates_before: Tensor  # k (T, H) on the CPU
    resumed_at: Place = (1, 0)  # where its checkpoint stood
    history: list[EpochRow] = field(default_factory=list)
    losses: list[LossRow] = field(default_factory=list)

    def check_epochs(self, before: Recipe, done: int) -> None:
        """Of a recipe that goes on, only the number of epochs may have changed, and not always that."""
        epochs, path = self.recipe.epochs, self.folder.path
        if epochs < done:
            raise UserError(f"{path} has been trained for {done} epochs already: --epochs {epochs} is less")
        if epochs == before.epochs:
            return
        if before.curriculum and done > before.epochs - before.open_epochs:
            raise UserError(f"the curriculum of {path} has opened its gates: its epochs cannot change now")
        if before.schedule != "constant" and done:
            raise UserError(f"the {before.schedule} schedule of {path} has begun: its epochs cannot change now")


class Trainer:
    """One run, or several that share a shape. `fit` trains until the recipes' last epoch or until `should_stop` says
    so, and saves either way."""

    def __init__(
        self,
        recipes: Recipe | Sequence[Recipe],
        folders: RunFolder | Sequence[RunFolder],
        fabric: Fabric,
        data: Path | str | None = None,
        precision: str = "32-true",
    ):
        recipes = [recipes] if isinstance(recipes, Recipe) else list(recipes)
        folders = [folders] if isinstance(folders, RunFolder) else list(folders)
        check_together(recipes, [folder.path for folder in folders] if len(folders) > 1 else ())
        paths = [folder.path.resolve() for folder in folders]
        if twice := {path for path in paths if paths.count(path) > 1}:
            raise UserError(f"{min(twice)} was given more than once: each run needs a folder of its own")
        self.fabric, self.data, self.precision = fabric, data, precision
        with fabric.rank_zero_first():  # where the data must be fetched, one process does it
            self.task = build_task(recipes[0], data, fabric.device)
        self.population = Population(recipes, self.task, precision=precision, fabric=fabric)
        self.runs = [
            Run(recipe, folder, model, openness_in_use(model.layer, self.task.steps)[0].float())
            for recipe, folder, model in zip(recipes, folders, self.population.models, strict=True)
        ]
        self.epochs = recipes[0].epochs
        self.epoch, self.batch = 1, 0  # the next batch to train on
        self.seconds = 0.0  # spent in the present epoch
        self.saved_at, self.save_gap = -math.inf, SAVE_GAP
        self.diverged: set[int] = set()  # members whose loss is no number any more

    @property
    def place(self) -> Place:
        return self.epoch, self.batch

    def begin(self, **where: object) -> None:
        """Make the runs' folders and save their very start, so that from now on they can be resumed."""
        for run in self.runs:
            if run.gates_before.max() < 1e-3:
                steps, name = self.task.steps, self.task.name
                raise UserError(
                    f"no gate opens within the {steps} steps of {name}: mu lies outside of them, or sigma is too small"
                )
        if self.fabric.is_global_zero:
            for run in self.runs:
                run.folder.require_unused()
            for run in self.runs:
                run.folder.create(run.recipe, self.task, run.model, where)
        self._save()

    def resume(self) -> None:
        """Go on where the folders' checkpoints stand; of the recipes, only the number of epochs may have changed."""
        for run in self.runs:
            run.folder.check_artifacts(self.task)
            before = run.folder.recipe()
            self._load(run)
            run.check_epochs(before, done=len(run.history))
        if self.fabric.is_global_zero:
            for run in self.runs:
                run.folder.update_recipe(run.recipe)

    def _load(self, run: Run) -> None:
        row = self.runs.index(run)
        extra, progress = load_checkpoint(run.folder.checkpoint, run.model, self._optimizer_state(row))
        run.resumed_at = self.epoch, self.batch = progress["epoch"], progress["batch"]
        self.seconds = progress["seconds"]
        run.history = [EpochRow(**row) for row in progress["history"]]
        run.losses = [LossRow(**row) for row in progress["losses"]]
        self.population.sums[row].copy_(extra["sums"])
        run.gates_before.copy_(extra["gates_before"])

    def _optimizer_state(self, row: int) -> dict[str, Tensor]:
        """What it remembers of one member; how long the rows are depends on the company."""
        own = self.population.stack.own_size(row)
        return {name: rows[row, :own] for name, rows in self.population.optimizer.state.items()}

    def fit(self, display: Display | None = None, should_stop: Callable[[], bool] = lambda: False) -> bool:
        """True when the last epoch is done, False when stopped before.

        A run whose loss is no number any more is left as it was last saved, the others go on, and the end says so.
        """
        display = display if display is not None and self.fabric.is_global_zero else Display()
        if not self._catch_up(display, should_stop):
            return False
        display.start([run.recipe for run in self.runs], self.task, [run.history for run in self.runs])
        finished = True
        try:
            while finished and self.epoch <= self.epochs:
                finished = self._train_epoch(display, should_stop)
        finally:
            display.stop()
        if self.diverged:
            self._report_divergence()
        return finished

    def _catch_up(self, display: Display, should_stop: Callable[[], bool]) -> bool:
        """A kill between two saves leaves runs at different places: those behind train on until all stand together.

        False when stopped before that.
        """
        while len(places := sorted({run.resumed_at for run in self.runs})) > 1:
            behind = [run for run in self.runs if run.resumed_at == places[0]]
            recipes, folders = [run.recipe for run in behind], [run.folder for run in behind]
            others = Trainer(recipes, folders, self.fabric, self.data, self.precision)
            others.resume()

            def should_pause(others: Trainer = others, target: Place = places[1]) -> bool:
                return should_stop() or others.place >= target

            others.fit(display, should_pause)
            self.fabric.barrier()  # what one process has written, all read
            for run in self.runs:
                self._load(run)
            if others.place < places[1]:
                self.epoch, self.batch = others.place
                return False
        return True

    def finish(self) -> None:
        """Draw the runs' pictures."""
        if self.fabric.is_global_zero:
            for run in self.runs:
                run.folder.draw(self.task, run.model.layer, run.gates_before.numpy(), run.history)

    def _train_epoch(self, display: Display, should_stop: Callable[[], bool]) -> bool:
        clock = saved = time.monotonic()
        self.population.start(self.epoch, self.batch)
        count = self.population.batches
        row_every = math.ceil(count / LOSS_ROWS)
        while self.batch < count:
            self.population.step()
            self.batch += 1
            if self.batch % row_every == 0 or self.batch == count:
                self._record_losses(display, row_every)
            display.batch(self.epoch, self.batch, count)
            stop = self._agreed(should_stop()) and self.batch < count
            if stop or time.monotonic() - saved > SAVE_EVERY:
                self.population.wait()
                self.seconds += time.monotonic() - clock
                self._save()
                clock = saved = time.monotonic()
            if stop:
                return False
        self.population.wait()
        self.seconds += time.monotonic() - clock
        self._end_epoch()
        display.epoch([run.history[-1] for run in self.runs])
        stop = self._agreed(should_stop())
        if stop or self.epoch > self.epochs or time.monotonic() - self.saved_at > self.save_gap:
            self._save()
        return not stop or self.epoch > self.epochs

    def _record_losses(self, display: Display, row_every: int) -> None:
        batches = self.batch % row_every or row_every
        size, until = self.population.batch_size, min(self.batch * self.population.batch_size, self.task.train_size)
        samples = until - (self.batch - batches) * size
        rows = [LossRow(self.epoch, self.batch, total / samples) for total in self._sums()[:, 1].tolist()]
        self.population.sums[:, 1] = 0
        self.diverged |= {index for index, row in enumerate(rows) if not math.isfinite(row.loss)}
        for run, row in zip(self.runs, rows, strict=True):
            run.losses.append(row)
        if len(self.diverged) == len(self.runs):
            self._report_divergence()
        display.loss(rows)

    def _end_epoch(self) -> None:
        clock = time.monotonic()
        scores = self.population.test()
        test_seconds = time.monotonic() - clock
        for run, score, total in zip(self.runs, scores, self._sums()[:, 0].tolist(), strict=True):
            row = EpochRow(
                epoch=self.epoch,
                train_loss=total / self.task.train_size,
                test_loss=score.loss,
                test_error=score.error,
                mean_k=score.mean_k,
                open_share=score.open_share,
                seconds=self.seconds,
                test_seconds=test_seconds,
                together=len(self.runs),
            )
            run.history.append(row)
        self.epoch, self.batch, self.seconds = self.epoch + 1, 0, 0.0
        self.population.sums.zero_()

    def _sums(self) -> Tensor:
        """The members' sums of losses, over all processes."""
        return self.population.over_processes(self.population.sums, "mean")

    def _agreed(self, stop: bool) -> bool:
        """Whether any process was asked to stop: all must leave at the same batch."""
        if self.fabric.world_size == 1:
            return stop
        return float(self.population.over_processes(torch.tensor(float(stop), device=self.fabric.device), "sum")) > 0

    def _save(self) -> None:
        """Save every run that is worth going on from."""
        began = time.monotonic()
        finite = self.population.stack.flat.isfinite().all(1).tolist()
        self.diverged |= {index for index, good in enumerate(finite) if not good}
        if len(self.diverged) == len(self.runs):
            self._report_divergence()
        sums = self._sums()
        for row, run in enumerate(self.runs):
            if row in self.diverged or not self.fabric.is_global_zero:
                continue
            progress = {
                "epoch": self.epoch,
                "batch": self.batch,
                "seconds": self.seconds,
                "history": [vars(row) for row in run.history],
                "losses": [vars(row) for row in run.losses],
            }
            extra = {"sums": sums[row], "gates_before": run.gates_before}
            save_checkpoint(run.folder.checkpoint, run.model, self._optimizer_state(row), extra, progress)
            save_values(run.folder.model, run.model)
            run.folder.write_metrics(run.history, run.losses)
        self.saved_at = time.monotonic()
        self.save_gap = max(SAVE_GAP, SAVE_SHARE * (self.saved_at - began))

    def _report_divergence(self) -> None:
        lost = [self.runs[index] for index in sorted(self.diverged)]
        names = ", ".join(f"{run.folder.path} (seed {run.recipe.seed})" for run in lost)
        text = f"{names}: the loss became nan or infinite, training diverged; lower lr or gate_lr, or clip harder"
        others = [run for run in self.runs if run not in lost]
        if others and self.epoch <= self.epochs:
            text += f"; the others go on with {' '.join(f'--resume {run.folder.path}' for run in others)}"
        elif others:
            text += f"; the other {len(others)} are finished"
        raise UserError(text)
