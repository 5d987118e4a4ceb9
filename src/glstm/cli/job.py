"""Runs to train, in this process and those that it starts, or on the workers of a Ray cluster."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import Progress

from glstm import registry
from glstm.data import ArrayTask, Task
from glstm.errors import UserError
from glstm.recipes import Recipe, check_same_task, make_task, model_maker, with_its_patience
from glstm.stopping import INTERRUPTED, StopOnSignal
from glstm.storage import LOCK, lock

if TYPE_CHECKING:
    from glstm.training.display import Display
    from glstm.training.fabric import Processes
    from glstm.training.loop import Trainer
    from glstm.training.record import Run
    from glstm.training.run import RunFolder

WAIT = 2.0  # seconds between two attempts at a lock
SPEAK = 30.0  # seconds between two lines about a fleet, where there is no terminal


@dataclass(frozen=True)
class Job:
    recipes: list[Recipe]
    paths: list[Path]  # a run folder for each
    resuming: bool
    again: list[Path]  # the arguments for --resume after a stop
    data: Path | None
    where: dict[str, Any]
    patience_asked: bool = False
    base: Path = Path()  # where relative paths begin: on other machines, the folder in which the command was given

    def folders(self) -> "list[RunFolder]":
        from glstm.training.run import RunFolder

        return [RunFolder(self.base / path) for path in self.paths]

    def modules(self) -> list[str]:
        """Modules of the user's own, which a later command must be told to trust."""
        return [name.partition(":")[0] for recipe in self.recipes for name in recipe.code()]

    def one(self, number: int) -> "Job":
        """The job of one of its runs, which has begun."""
        return replace(self, recipes=[self.recipes[number]], paths=[self.paths[number]], resuming=True)

    def task(self, fabric: "Processes") -> Task:
        return make_task(self.recipes[0], self.data, fabric.device, again=self.resuming)

    def trainer(self, task: Task, fabric: "Processes") -> "Trainer":
        from glstm.training.loop import Trainer

        recipes = [with_its_patience(recipe, task, self.patience_asked) for recipe in self.recipes]
        makers = [model_maker(recipe, task) for recipe in recipes]
        return Trainer(task, makers, recipes, self.folders(), fabric=fabric, precision=self.where["precision"])

    def begin(self, trainer: "Trainer", begin: Callable[..., None]) -> None:
        """`begin` is one of the trainer's functions."""
        data = str(Path(self.data).resolve()) if self.data else None
        begin([recipe.names_as_dict() for recipe in self.recipes], **self.where, data=data)

    def require_unused(self) -> None:
        if not self.resuming:
            for folder in self.folders():
                folder.require_unused()


def train_here(job: Job) -> None:
    from glstm.training.fabric import leave, make_fabric, set_matmul
    from glstm.training.run import locked

    console, where = Console(), job.where
    check_same_task(job.recipes)
    fabric = make_fabric(where["device"], where["devices"], where["nodes"])
    if fabric.global_rank == 0:
        job.require_unused()
    fabric.launch()
    set_matmul(fabric, where["matmul"])
    with fabric.rank_zero_first():  # where the data must be fetched, one process does it
        task = job.task(fabric)
    if fabric.global_rank == 0:
        _say_data(console, task)
    trainer = job.trainer(task, fabric)
    if fabric.is_global_zero:
        job.require_unused()  # before a lock makes a folder
    alone = locked([run.folder for run in trainer.runs]) if fabric.is_global_zero else nullcontext()
    with alone, StopOnSignal() as should_stop:
        if job.resuming:
            trainer.resume()
        else:
            job.begin(trainer, trainer.begin)
        before = [len(run.history) for run in trainer.runs]
        finished = trainer.fit(_display(console, trainer, bool(where.get("tensorboard"))), should_stop)
        trainer.finish()
    leave(fabric)
    if fabric.is_global_zero:
        _say_end(console, job, _results(job, trainer, task, before) if finished else None, trainer.epoch)


def _say_data(console: Console, task: Task) -> None:
    if isinstance(task, ArrayTask):
        console.print(task.summary(), highlight=False, soft_wrap=True, markup=False)


def _display(console: Console, trainer: "Trainer", tensorboard: bool) -> "Display":
    from glstm.training.display import display_for

    return _with_curves(trainer, tensorboard, display_for(console))


def _with_curves(trainer: "Trainer", tensorboard: bool, display: "Display") -> "Display":
    if not tensorboard:
        return display
    from glstm.training.tensorboard import TensorBoard

    return TensorBoard(trainer.runs, display)


def _say_end(console: Console, job: Job, results: Sequence[str] | None, epoch: int) -> None:
    """`results`: a sentence about each run; None: they are stopped."""
    from glstm.training.run import resume_options

    if results is None:
        trust = "".join(f"--trust {module} " for module in dict.fromkeys(job.modules()))
        results = [f"stopped in epoch {epoch}; go on with: glstm {trust}train {resume_options(job.again)}"]
        stopped = True
    else:
        stopped = False
    for result in results:
        console.print(result, highlight=False, soft_wrap=True, markup=False)
    if stopped:
        raise typer.Exit(INTERRUPTED)  # so that 'train && evaluate' does not go on


def _results(job: Job, trainer: "Trainer", task: Task, before: list[int]) -> list[str]:
    return [_result(*one, task) for one in zip(job.paths, trainer.runs, before, strict=True)]


def _result(path: Path, run: "Run", before: int, task: Task) -> str:
    """One sentence about a finished run that had so many epochs when it was taken up."""
    if len(run.history) == before:
        more = "; give more --epochs to go on" if run.settings.schedule == "constant" else ""
        return f"{path} is finished, after {before} epochs{more}"
    last = run.history[-1]
    count = sum(row.left_out for row in run.history)
    left_out = f"; {count} update{'s' * (count > 1)} left out, which would have made a number nan" if count else ""
    if run.result is None:
        error = "" if last.error is None else f"{task.metric} {task.format_error(last.error)} "
        return f"{path}: {error}in epoch {last.epoch}{left_out}"
    best = run.result
    on_test = "" if best["test_error"] is None else f", test {task.metric} {task.format_error(best['test_error'])}"
    return (
        f"{path}: best in epoch {best['epoch']} of {best['epochs']}, validation {task.metric} "
        f"{task.format_error(best['validation_error'])}{on_test}{left_out}"
    )


def train_on_fleet(job: Job) -> None:
    """Each population is a task: on CUDA all runs, which train together; on a CPU, where they would train one after the
    other, each run. The folders are made here, so that nothing is lost if no task ever begins."""
    from glstm.fleet import Fleet
    from glstm.training.fabric import make_fabric
    from glstm.training.run import locked

    console, device = Console(), job.where["device"]
    if job.where["devices"] * job.where["nodes"] > 1:
        raise UserError("--engine ray trains each population on one device: leave out --devices and --nodes")
    check_same_task(job.recipes)
    job.require_unused()
    fabric = make_fabric("cpu")  # the networks are made here once, to see whether they can be; there need not be a GPU
    task = job.task(fabric)
    _say_data(console, task)
    trainer = job.trainer(task, fabric)
    with Fleet() as fleet:
        if device == "auto":
            device = "cuda" if fleet.has_gpus() else "cpu"
        job = replace(job, where={**job.where, "device": device}, base=Path.cwd())
        with locked(job.folders()):  # nobody else is training there
            if not job.resuming:
                job.begin(trainer, trainer.prepare)
        tasks = [replace(job, resuming=True)] if device == "cuda" else [job.one(n) for n in range(len(job.paths))]
        failures: list[str] = []
        with StopOnSignal() as should_stop, _Watch(console, job) as watch:

            def on_end(_: int, outcome: _Outcome) -> None:
                for sentence in outcome.results:
                    console.print(sentence, highlight=False, soft_wrap=True, markup=False)
                failures.extend([outcome.failure] if outcome.failure else [])

            finished = fleet.run(_train, [(one,) for one in tasks], device, on_end, should_stop, watch.look)
    if failures:
        raise UserError("; ".join(failures))
    _say_end(console, job, [] if finished else None, 1 + min(folder.epochs_done() for folder in job.folders()))


@dataclass(frozen=True)
class _Outcome:
    results: list[str] = field(default_factory=list)
    failure: str = ""


def _train(job: Job) -> _Outcome:
    """On a worker: runs whose folders exist, to their end. If an earlier attempt has died, they go on from what it has
    saved."""
    from glstm.training.display import Display
    from glstm.training.fabric import make_fabric, set_matmul

    registry.look_in(job.base)
    try:
        with StopOnSignal() as should_stop, ExitStack() as held:
            fabric = make_fabric(job.where["device"])
            set_matmul(fabric, job.where["matmul"])
            task = job.task(fabric)
            if not _wait_for(job.folders(), held, should_stop):
                return _Outcome()
            trainer = job.trainer(task, fabric)
            trainer.resume()
            before = [len(run.history) for run in trainer.runs]
            display = _with_curves(trainer, bool(job.where.get("tensorboard")), Display())
            finished = trainer.fit(display, should_stop)
            trainer.finish()
            return _Outcome(_results(job, trainer, task, before) if finished else [])
    except UserError as error:  # as text: the other tasks go on
        return _Outcome(failure=str(error))


def _wait_for(folders: "list[RunFolder]", held: ExitStack, should_stop: Callable[[], bool]) -> bool:
    """Lock the folders: an earlier attempt, which Ray believes dead, may be at its last save."""
    while not should_stop():
        with ExitStack() as stack:
            if all(lock(folder.path / LOCK, stack) for folder in folders):
                held.enter_context(stack.pop_all())
                return True
        time.sleep(WAIT)
    return False


class _Watch:
    """Shows how many epochs are saved, in all runs together."""

    def __init__(self, console: Console, job: Job):
        self.console, self.folders, self.spoke = console, job.folders(), time.monotonic()
        self.total = sum(recipe.epochs for recipe in job.recipes)
        self.progress = Progress(console=console, transient=True, disable=not console.is_terminal)
        self.bar = self.progress.add_task("epochs that are saved", total=self.total)

    def __enter__(self) -> "_Watch":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def look(self) -> None:
        done = sum(folder.epochs_done() for folder in self.folders)
        self.progress.update(self.bar, completed=done)
        if not self.console.is_terminal and time.monotonic() - self.spoke > SPEAK:
            self.console.print(f"{done} of {self.total} epochs are saved", highlight=False)
            self.spoke = time.monotonic()
