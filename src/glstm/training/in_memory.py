"""Training without a folder: a task and a network in, the trained network and its history out."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch

from glstm.data.task import Task
from glstm.training.best import is_over, last_is_best, rule_for, values_of
from glstm.training.population import Model, Population, Score
from glstm.training.settings import Settings

NOTHING = Score(None, None, None, None)


@dataclass(frozen=True)
class EpochScore:
    epoch: int
    train_loss: float
    validation_loss: float | None  # None: there is no validation set
    validation_error: float | None
    mean_k: float | None  # on the validation set; None: there is none, or the network has no gates


@dataclass(frozen=True)
class Fitted:
    model: Any  # a module of any class, in evaluation mode, with the values of its best epoch
    history: list[EpochScore]
    diverged: bool  # after the last epoch, its loss or some value is not a finite number
    found: bool  # whether the values are of an epoch before that


def fit(
    task: Task,
    model: Model,
    settings: Settings,
    on_epoch: Callable[[EpochScore], object] = lambda row: None,
) -> Fitted:
    """Train until the last epoch, or until patience is at an end; without a validation set, the last epoch counts.

    torch's generator is afterwards as it was before. A loss or a value that is no longer a finite number ends training.
    """
    on_cuda = task.device.type == "cuda"
    with torch.random.fork_rng(devices=[task.device] if on_cuda else []):
        population = Population(task, model, settings)
        (own,) = population.models
        history: list[EpochScore] = []
        best, diverged, rule = None, False, rule_for(task, settings)
        for epoch in range(1, settings.epochs + 1):
            (loss,) = population.train(epoch)
            score = population.test("validation")[0] if task.validation_size else NOTHING
            history.append(EpochScore(epoch, loss, score.loss, score.error, score.mean_k))
            on_epoch(history[-1])
            sound = isfinite(loss) and isfinite(score.loss or 0.0)
            diverged = not (sound and bool(population.stack.flat.isfinite().all()))
            if diverged:
                break
            if last_is_best(history, rule):
                best = values_of(own)
            if is_over(history, rule, settings.patience):
                break
    if best is not None:
        own.load_state_dict(best)
    return Fitted(own.eval(), history, diverged, found=best is not None)
