"""`glstm.train`: a task in, a trained network out."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glstm.errors import UserError
from glstm.models import SequenceModel

if TYPE_CHECKING:
    from glstm.data.task import Task
    from glstm.recipes import Recipe
    from glstm.training.display import Display


@dataclass(frozen=True)
class Trained:
    """What `glstm.train` returns.

    Attributes:
        model: The network of the best epoch.
        result: What it achieved, such as "epoch", "validation_error" and "test_error".
        history: A row for each epoch.
        folder: The run folder; None: there is none.
    """

    model: SequenceModel
    result: dict[str, Any]
    history: list[dict[str, Any]]
    folder: Path | None


def train(
    task: "Task", folder: Path | str | None = None, *, display: "Display | None" = None, **values: Any
) -> Trained:
    """Train a network on the task, as `glstm train FILE` does. Training ends after the last epoch or when validation
    says so.

    Args:
        task: Such as `Task.from_arrays(x, y)`.
        folder: Where everything about the run is kept; it can then be stopped and resumed, and all commands can use it.
            Data from arrays are kept there, too, up to 1 GiB. None: nothing is written.
        display: Shows how it goes: on a terminal `display_for(rich.console.Console())` from `glstm.training.display`.
        **values: Those of a `glstm.recipes.Recipe`, such as cell, units, lr, epochs, budget, seed or reads.

    Examples:
        ```python
        import numpy as np

        import glstm
        from glstm.data import Task

        x = np.random.default_rng(0).normal(size=(40, 30, 2))
        trained = glstm.train(Task.from_arrays(x, x[:, 8, 0] > 0), units=8, epochs=2)
        trained.model, trained.result["test_error"]
        ```
    """
    from glstm.data.task import Task
    from glstm.recipes import own_recipe, with_its_patience

    if not isinstance(task, Task):
        what = f"the text {task!r:.50}" if isinstance(task, str) else f"a {type(task).__name__}"
        raise UserError(
            f"glstm.train takes a task, not {what}: Task.from_arrays(x, y) makes one from arrays, Task.from_file(path) "
            "from a file (from glstm.data import Task)"
        )
    recipe = with_its_patience(own_recipe(task.name, **values), task, asked="patience" in values)
    if folder is not None:
        return _in_folder(task, recipe, folder, display)
    if display is not None:
        raise UserError("a display shows a run that has a folder: give a folder, too")
    return _in_memory(task, recipe)


def _in_folder(task: "Task", recipe: "Recipe", folder: Path | str, display: "Display | None") -> Trained:
    from glstm.data import ArrayTask
    from glstm.recipes import make_model
    from glstm.training.loop import Trainer
    from glstm.training.run import locked

    trainer = Trainer(task, lambda: make_model(recipe, task), recipe, folder)
    (run,) = trainer.runs
    source = getattr(task, "source", None)
    if source is None and type(task) is ArrayTask:  # a class of your own may do more than its data say
        source = run.folder.keep_data(task)
    run.folder.require_unused()  # before a lock makes a folder
    with locked([run.folder]):
        # With a source every command finds the task again.
        trainer.begin([recipe.changed(task="file", data=source).names_as_dict()] if source is not None else ())
        trainer.fit(display)
        trainer.finish()
    last = run.history[-1]
    result = run.result or _result(last.epoch, last.epoch, test_loss=last.test_loss, test_error=last.test_error)
    history = [asdict(row) for row in run.history]
    return Trained(SequenceModel.from_pretrained(run.folder.path), result, history, run.folder.path)


def _in_memory(task: "Task", recipe: "Recipe") -> Trained:
    from glstm.recipes import make_model
    from glstm.training.best import best_of, rule_for
    from glstm.training.evaluate import error_sums
    from glstm.training.in_memory import fit

    fitted = fit(task, lambda: make_model(recipe, task), recipe)
    if fitted.diverged and not fitted.found:
        raise UserError("the loss became nan or infinite, training diverged; lower lr or gate_lr, or clip harder")
    history = fitted.history
    best = best_of(history, rule_for(task, recipe)) if fitted.found else history[-1]
    test = [float(total) / task.test_size for total in error_sums(fitted.model, task)] if task.test_size else [None] * 2
    result = _result(
        best.epoch, len(history), validation_loss=best.validation_loss, validation_error=best.validation_error,
        test_loss=test[0], test_error=test[1],
    )  # fmt: skip
    return Trained(fitted.model, result, [asdict(row) for row in history], None)


def _result(epoch: int, epochs: int, **figures: float | None) -> dict[str, Any]:
    return {"epoch": epoch, "epochs": epochs, **figures}
