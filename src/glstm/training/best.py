"""Which epoch is the best by validation, and when it is time to stop waiting for a better one."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Protocol, TypeVar

from torch import Tensor, nn

from glstm.data.arrays import ArrayTask
from glstm.data.task import Task
from glstm.errors import UserError
from glstm.training.settings import Settings


class Epoch(Protocol):
    """What must be known about an epoch; None: there is no validation set, or the network has no gates."""

    @property
    def epoch(self) -> int: ...
    @property
    def validation_loss(self) -> float | None: ...
    @property
    def validation_error(self) -> float | None: ...
    @property
    def mean_k(self) -> float | None: ...


Row = TypeVar("Row", bound=Epoch)


@dataclass(frozen=True)
class Rule:
    """Which figures of the validation set decide between epochs."""

    by_loss: bool = False  # else by the error
    budget: float = 0.0  # lambda: openness is wanted less, too, and its charge is added to the loss
    first: int = 1  # epochs before this one have weights that are yet to be pruned: their errors do not count

    def rank(self, row: Epoch) -> tuple[float, float]:
        """The lower, the better."""
        error, loss = row.validation_error or 0.0, row.validation_loss or 0.0
        if not isfinite(error + loss):
            return inf, inf
        if row.epoch < self.first:
            return inf, -row.epoch  # nothing is best yet, so a run that stops here keeps its latest network
        if self.by_loss or self.budget:
            return loss + self.budget * (row.mean_k or 0.0), error
        return error, loss


def rule_for(task: Task, settings: Settings) -> Rule:
    return Rule(chosen_by_loss(task), settings.budget, settings.pruned_in)


def chosen_by_loss(task: Task) -> bool:
    """Whether the mean error of a task says little: several values can have very different units, and the largest would
    decide alone. In the loss each is in its own standard deviations."""
    return isinstance(task, ArrayTask) and not task.has_classes and task.outputs > 1


def best_of(history: Sequence[Row], rule: Rule) -> Row:
    """The epoch with the lowest error on the validation set; of equal ones that with the lowest loss, then the first.
    With a budget that with the lowest loss and charge together, and with several target values the lowest loss. As long
    as weights are yet to be pruned, the latest."""
    return min(history, key=rule.rank)


def last_is_best(history: Sequence[Row], rule: Rule) -> bool:
    """Whether the values that the network has now are to be kept; never without a validation set."""
    last = history[-1]
    if last.validation_error is None or not isfinite(last.validation_error + (last.validation_loss or 0.0)):
        return False
    return best_of(history, rule) is last


def is_over(history: Sequence[Row], rule: Rule, patience: int) -> bool:
    """Whether patience is at an end."""
    if not patience or not history or history[-1].validation_error is None:
        return False
    return history[-1].epoch - max(best_of(history, rule).epoch, rule.first) >= patience


def check_patience(task: Task, settings: Settings) -> None:
    if settings.patience and not task.validation_size:
        raise UserError(f"patience waits for a better validation error, and {task.name} has no validation part")


def values_of(model: nn.Module) -> dict[str, Tensor]:
    """A copy of everything that the model learned."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
