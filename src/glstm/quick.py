"""`glstm.train`: a task and a folder in, a trained network out."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glstm.models import SequenceModel

if TYPE_CHECKING:
    from glstm.data.task import Task
    from glstm.training.display import Display


@dataclass(frozen=True)
class Trained:
    """The network of the best epoch, what it achieved, and the run folder that holds it."""

    model: SequenceModel
    result: dict[str, Any]
    folder: Path


def train(
    task: "Task", folder: Path | str, *, display: "Display | None" = None, precision: str = "32-true", **values: Any
) -> Trained:
    """Train a network on the task, as `glstm train FILE` does, and keep everything about it in a new run folder.

    `values` are those of a `glstm.recipes.Recipe`, such as cell, units, lr, epochs, budget, seed or reads. Training
    ends after the last epoch or when validation says so. On a terminal, `display=display_for(rich.console.Console())`
    from `glstm.training.display` shows how it goes.
    """
    from glstm.recipes import make_model, own_recipe
    from glstm.training.loop import Trainer

    recipe = own_recipe(task.name, **values)
    if not task.validation_size and "patience" not in values:
        recipe = recipe.changed(patience=0)
    trainer = Trainer(task, lambda: make_model(recipe, task), recipe, folder, precision=precision)
    trainer.begin()
    trainer.fit(display)
    trainer.finish()
    run = trainer.runs[0]
    last = run.history[-1]
    found = run.result or {
        "epoch": last.epoch,
        "epochs": last.epoch,
        "test_loss": last.test_loss,
        "test_error": last.error,
    }
    return Trained(SequenceModel.from_pretrained(run.folder.path), found, run.folder.path)
