"""The training loop: runs that train together, stop and continue; each has its own folder."""

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glstm.data.task import Task
from glstm.errors import UserError
from glstm.pretrained import serialized
from glstm.training.best import check_patience, rule_for
from glstm.training.display import Display, EpochRow, LossRow
from glstm.training.evaluate import first_gates
from glstm.training.fabric import LostProcess, Processes, make_fabric
from glstm.training.guard import SAMPLES, SINCE_ROW, UPDATES, mean, what_failed
from glstm.training.population import Model, Population, Score
from glstm.training.record import Place, Run, divergence
from glstm.training.run import RunFolder, locked, resume_options
from glstm.training.saved import load_run, save_run
from glstm.training.settings import Settings, check_together

SAVE_EVERY = 60.0  # seconds, inside an epoch
SAVE_GAP = 5.0  # seconds at least between two saves at the ends of epochs ...
SAVE_SHARE = 20  # ... and so many times as long as the last one took
LOSS_ROWS = 10  # an epoch


class Trainer:
    """One run, or several that train together, each with its own folder. `fit` trains until the last epoch or until
    `should_stop` says so, and saves either way.

    Args:
        task: What to learn.
        model: A network, something that makes a fresh one, or one for each run; as for `Population`.
        settings: How to train it, or a list with those of each run.
        folders: The run folder, or one for each run.
        fabric: Several devices or machines, of Lightning.
        precision: "32-true", "64-true" or "bf16-mixed".
        tests: False: a task with a validation set is never tested on.
    """

    def __init__(
        self,
        task: Task,
        model: Model | Sequence[Model],
        settings: Settings | Sequence[Settings],
        folders: RunFolder | Path | str | Sequence[RunFolder | Path | str],
        *,
        fabric: Processes | None = None,
        precision: str = "32-true",
        tests: bool = True,
    ):
        settings = [settings] if isinstance(settings, Settings) else list(settings)
        folders = [folders] if isinstance(folders, RunFolder | Path | str) else list(folders)
        folders = [one if isinstance(one, RunFolder) else RunFolder(one) for one in folders]
        if len(folders) != len(settings):
            raise UserError(f"each run needs a folder of its own, but there are {len(settings)} and {len(folders)}")
        check_together(settings, [folder.path for folder in folders] if len(folders) > 1 else ())
        paths = [folder.path.resolve() for folder in folders]
        if twice := {path for path in paths if paths.count(path) > 1}:
            raise UserError(f"{min(twice)} was given more than once: each run needs a folder of its own")
        self.task, self.model, self.precision, self.tests = task, model, precision, tests
        self.fabric = fabric or make_fabric(task.device.type)
        self.population = Population(task, model, settings, precision=precision, fabric=self.fabric)
        self.runs = [
            Run(own, folder, model, first_gates(model, task), rule_for(task, own))
            for own, folder, model in zip(settings, folders, self.population.models, strict=True)
        ]
        self.epochs = settings[0].epochs
        self.epoch, self.batch = 1, 0  # the next batch to train on
        self.seconds = 0.0  # spent in the current epoch
        self.saved_at, self.save_gap = -math.inf, SAVE_GAP
        self.diverged: set[int] = set()  # members whose loss is not a finite number any more

    @property
    def place(self) -> Place:
        """The epoch and the batch that come next."""
        return self.epoch, self.batch

    def begin(self, recipes: Sequence[dict[str, Any] | None] = (), **where: object) -> None:
        """Make the runs' folders and save their initial state, so that from now on they can be resumed.

        `recipes`, one per run, are the names that task and model were made from: with them a later process can make
        both again. `where` says where it runs.
        """
        with self._locked_anew():
            self._make_folders(recipes, where)
            self._save()

    def prepare(self, recipes: Sequence[dict[str, Any] | None] = (), **where: object) -> None:
        """As `begin`, but without any state: another process, perhaps on another machine, begins them by `resume`."""
        with self._locked_anew():
            self._make_folders(recipes, where)

    @contextmanager
    def _locked_anew(self) -> Iterator[None]:
        for run in self.runs:
            check_patience(self.task, run.settings)
        if self.fabric.is_global_zero:
            for run in self.runs:
                run.folder.require_unused()  # before a lock makes a folder
        with self._locked():
            yield

    def _make_folders(self, recipes: Sequence[dict[str, Any] | None], where: dict[str, object]) -> None:
        if not self.fabric.is_global_zero:
            return
        parents = {run.folder.path.parent for run in self.runs}
        seeds = {run.folder.path.name: run.settings.seed for run in self.runs}
        together = seeds if len(self.runs) > 1 and len(parents) == 1 else None
        for run, recipe in zip(self.runs, recipes or [None] * len(self.runs), strict=True):
            run.folder.tidy()
            run.folder.create(run.settings, self.task, run.model, where, recipe, together)

    def resume(self) -> None:
        """Continue from the folders' checkpoints. Of the settings, only the number of epochs may have changed.

        A run that was stopped before its first checkpoint begins anew.
        """
        with self._locked():
            before = [run.folder.settings() for run in self.runs]
            for row, run in enumerate(self.runs):
                run.check_settings(before[row])
                if self.fabric.is_global_zero:
                    run.folder.tidy()
                    run.folder.take_up()
                    if not run.folder.checkpoint.exists():
                        run.folder.begin_anew(self.task, run.model)
                        save_run(run, row, self.population, self.population.sums[row], self.place, self.seconds)
            self.fabric.barrier()  # all processes read what one has written
            for row, run in enumerate(self.runs):
                run.folder.check_artifacts(self.task)
                self._load(run)
                run.check_epochs(before[row], done=len(run.history))
            self.fabric.barrier()  # all have read it: it may be replaced
            if self.fabric.is_global_zero:
                for run in self.runs:
                    run.folder.update_settings(run.settings)

    def _locked(self) -> AbstractContextManager[None]:
        """No other process may train in the runs' folders meanwhile."""
        return locked(run.folder for run in self.runs) if self.fabric.is_global_zero else nullcontext()

    def _load(self, run: Run) -> None:
        """All runs are at the same place, unless the process was killed between two saves: see `_catch_up`."""
        progress = load_run(run, self.runs.index(run), self.population, self.epochs)
        self.epoch, self.batch, self.seconds = progress["epoch"], progress["batch"], progress["seconds"]

    def fit(self, display: Display | None = None, should_stop: Callable[[], bool] = lambda: False) -> bool:
        """True when the last epoch is done, False when stopped before.

        A run whose loss is no longer a finite number stays as it was last saved, unless its settings say that such
        updates are skipped. The others continue, and an error at the end names it.
        """
        shown = display if display is not None and self.fabric.is_global_zero else Display()
        with self._locked():
            try:
                return self._fit(shown, should_stop)
            except LostProcess as error:
                again = resume_options(run.folder.path for run in self.runs)
                raise LostProcess(f"{error}; what was saved is intact, and {again} goes on from there") from error

    def _fit(self, display: Display, should_stop: Callable[[], bool]) -> bool:
        if not self._catch_up(display, should_stop):
            return False
        self._note_done()
        display.start([run.settings for run in self.runs], self.task, [run.history for run in self.runs])
        finished = True
        try:
            while finished and not self.at_the_end:
                finished = self._train_epoch(display, should_stop)
        finally:
            display.stop()
        if finished and not self.diverged:
            self._test_the_best()
        if self.diverged:
            self._report_divergence()
        return finished

    @property
    def at_the_end(self) -> bool:
        """Whether no run trains any more."""
        return self.epoch > self.epochs or len(self.population.done) == len(self.runs)

    def _note_done(self) -> None:
        self.population.done = self.diverged | {row for row, run in enumerate(self.runs) if run.is_done}

    def _test_the_best(self) -> None:
        """With a validation set, the test set is used once: by the best epoch's network of each run that has ended."""
        over = self.epoch > self.epochs
        ended = [over or row in self.diverged or run.is_done for row, run in enumerate(self.runs)]
        if not any(end and run.best is not None for end, run in zip(ended, self.runs, strict=True)):
            return
        with ExitStack() as stack:
            for run in self.runs:
                stack.enter_context(run.at_its_best())
            tested = self.tests and self.task.test_size
            scores = self.population.test() if tested else [None] * len(self.runs)
        for row, (run, score) in enumerate(zip(self.runs, scores, strict=True)):
            if run.best is None or not ended[row]:
                continue
            best = run.best_row
            run.result = {
                "epoch": best.epoch, "epochs": len(run.history), "metric": self.task.metric,
                "validation_loss": best.validation_loss, "validation_error": best.validation_error,
                "test_loss": score.loss if score else None, "test_error": score.error if score else None,
                "mean_k": score.mean_k if score else best.mean_k,
                "open_share": score.open_share if score else best.open_share,
            }  # fmt: skip
            if self.fabric.is_global_zero:
                # Of one that diverged, nothing else is saved any more.
                run.folder.save_result(run.result, serialized(run.best) if row in self.diverged else None)

    def _catch_up(self, display: Display, should_stop: Callable[[], bool]) -> bool:
        """If the process was killed between two saves, runs are at different places: those behind train until all are
        at the same place.

        False when stopped before that.
        """
        ended: list[Run] = []  # their patience was at an end, or they diverged: they stay where they are
        while len(places := sorted({run.resumed_at for run in self.runs if run not in ended})) > 1:
            behind = [run for run in self.runs if run.resumed_at == places[0] and run not in ended]
            others = Trainer(
                self.task,
                [self._maker(run) for run in behind],
                [run.settings for run in behind],
                [run.folder for run in behind],
                fabric=self.fabric,
                precision=self.precision,
                tests=self.tests,
            )
            others.resume()

            def should_pause(others: Trainer = others, target: Place = places[1]) -> bool:
                return should_stop() or others.place >= target

            try:
                others.fit(display, should_pause)
            except UserError:
                if not others.diverged:
                    raise
                for row in others.diverged:  # they stay where they are, and the rest goes on without them
                    behind[row].failure = others.runs[row].failure
                    self.diverged.add(self.runs.index(behind[row]))
                    ended.append(behind[row])
            self.fabric.barrier()  # all processes read what one has written
            for run in self.runs:
                self._load(run)
            if others.at_the_end:
                ended += behind
            elif others.place < places[1] and not all(run in ended for run in behind):
                self.epoch, self.batch = others.place
                return False
        if ended:
            self.epoch, self.batch = max(run.resumed_at for run in self.runs)
        return True

    def _maker(self, run: Run) -> Model:
        """What makes this run's network again, whose values come from its checkpoint."""
        maker = self.population.makers[self.runs.index(run)]
        return copy.deepcopy(maker) if isinstance(maker, nn.Module) else maker

    def finish(self) -> None:
        """Draw the runs' pictures."""
        if self.fabric.is_global_zero:
            for run in self.runs:
                with run.at_its_best():
                    run.folder.draw(self.task, run.model, run.gates_before, run.history)

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
            stop, due = self._agreed(should_stop(), time.monotonic() - saved > SAVE_EVERY)
            stop = stop and self.batch < count
            if stop or due:
                self.population.wait()
                self.seconds += time.monotonic() - clock
                self._save()
                clock = saved = time.monotonic()
            if stop:
                return False
        self.population.wait()
        self.seconds += time.monotonic() - clock
        self._end_epoch()
        display.epoch([run.history[-1] for run in self.runs if run.history])
        self._note_done()
        stop, due = self._agreed(should_stop(), time.monotonic() - self.saved_at > self.save_gap)
        if stop or self.at_the_end or due:
            self._save()
        return not stop or self.at_the_end

    def _record_losses(self, display: Display, row_every: int) -> None:
        batches = self.batch % row_every or row_every
        size, until = self.population.batch_size, min(self.batch * self.population.batch_size, self.task.train_size)
        samples = until - (self.batch - batches) * size
        self._look_for_failures()
        left_out = self.population.guard.left_out
        used = [samples - left for left in left_out[:, SINCE_ROW].tolist()]
        totals = self._sums()[:, 1].tolist()
        rows = [LossRow(self.epoch, self.batch, mean(*one)) for one in zip(totals, used, strict=True)]
        self.population.sums[:, 1] = 0
        left_out[:, SINCE_ROW] = 0
        for number, (run, row) in enumerate(zip(self.runs, rows, strict=True)):
            if number not in self.population.done | self.diverged and used[number]:
                run.losses.append(row)
        display.loss(rows)

    def _look_for_failures(self) -> None:
        """Networks that have stopped by themselves, because a number was no longer finite, are reported; the others go
        on."""
        for row, batch in self.population.guard.failures(self.batch).items():
            if row not in self.diverged:
                update = (self.epoch - 1) * self.population.batches + batch + 1
                why = what_failed(self.population, row, batch)
                self.runs[row].failure = f"in epoch {self.epoch}, batch {batch + 1} (update {update}), {why}"
                self.diverged.add(row)
        if len(self.diverged) == len(self.runs):
            self._report_divergence()

    def _end_epoch(self) -> None:
        clock, totals = time.monotonic(), self._sums()[:, 0].tolist()
        left_out = self.population.guard.left_out.tolist()
        for row, left in enumerate(left_out):
            if left[UPDATES] == self.population.batches and row not in self.diverged | self.population.done:
                self.runs[row].failure = f"in epoch {self.epoch}, no update was possible"
                self.diverged.add(row)
        if len(self.diverged) == len(self.runs):
            self._report_divergence()
        part = "validation" if self.task.validation_size else "test"
        unknown = Score(None, None, None, None)
        scores = self.population.test(part) if self.task.size(part) else [unknown] * len(self.runs)
        test_seconds = time.monotonic() - clock
        for number, (run, score) in enumerate(zip(self.runs, scores, strict=True)):
            if number in self.population.done:
                continue
            if number in self.diverged:  # its values are those before
                score = Score(math.nan, math.nan, None, None)
            row = EpochRow(
                epoch=self.epoch,
                train_loss=mean(totals[number], self.task.train_size - left_out[number][SAMPLES]),
                test_loss=score.loss if part == "test" else None,
                test_error=score.error if part == "test" else None,
                mean_k=score.mean_k,
                open_share=score.open_share,
                seconds=self.seconds,
                test_seconds=test_seconds,
                together=len(self.runs),
                validation_loss=score.loss if part == "validation" else None,
                validation_error=score.error if part == "validation" else None,
                left_out=round(left_out[number][UPDATES]),
            )
            run.history.append(row)
            run.keep_if_best()
        self.epoch, self.batch, self.seconds = self.epoch + 1, 0, 0.0
        self.population.guard.start_epoch()

    def _sums(self) -> Tensor:
        """The members' sums of losses, over all processes."""
        return self.population.over_processes(self.population.sums, "mean")

    def _agreed(self, stop: bool, due: bool) -> tuple[bool, bool]:
        """Whether any process was asked to stop, and whether for any it is time to save. All must do both at the same
        batch, for they exchange numbers then, and each has a clock of its own."""
        if self.fabric.world_size == 1:
            return stop, due
        asked = torch.tensor([float(stop), float(due)], device=self.fabric.device)
        stop, due = (self.population.over_processes(asked, "sum") > 0).tolist()
        return stop, due

    def _save(self) -> None:
        """Save every run that has not diverged."""
        began = time.monotonic()
        self._look_for_failures()
        sums = self._sums()
        for row, run in enumerate(self.runs):
            if row not in self.diverged and self.fabric.is_global_zero:
                save_run(run, row, self.population, sums[row], self.place, self.seconds)
        self.saved_at = time.monotonic()
        self.save_gap = max(SAVE_GAP, SAVE_SHARE * (self.saved_at - began))

    def _report_divergence(self) -> None:
        self._test_the_best()
        lost = [self.runs[index] for index in sorted(self.diverged)]
        others = [run for run in self.runs if run not in lost]
        raise UserError(divergence(lost, others, self.epoch > self.epochs))
