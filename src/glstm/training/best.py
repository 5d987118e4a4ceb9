"""Which epoch is the best by validation, and when it is time to stop waiting for a better one."""

from collections.abc import Sequence
from math import inf, isfinite
from typing import Protocol, TypeVar

from torch import Tensor, nn

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


def best_of(history: Sequence[Row], budget: float) -> Row:
    """The epoch with the lowest error on the validation set; of equal ones that with the lowest loss, then the first.
    With a budget, that with the lowest loss and charge together: openness is wanted less, too."""

    def rank(row: Row) -> tuple[float, float]:
        error, loss = row.validation_error or 0.0, row.validation_loss or 0.0
        if not isfinite(error + loss):
            return inf, inf
        return (loss + budget * (row.mean_k or 0.0), error) if budget else (error, loss)

    return min(history, key=rank)


def last_is_best(history: Sequence[Row], budget: float) -> bool:
    """Whether the values that the network has now are to be kept; never without a validation set."""
    last = history[-1]
    if last.validation_error is None or not isfinite(last.validation_error + (last.validation_loss or 0.0)):
        return False
    return best_of(history, budget) is last


def is_over(history: Sequence[Row], settings: Settings) -> bool:
    """Whether patience is at an end."""
    if not settings.patience or not history or history[-1].validation_error is None:
        return False
    return history[-1].epoch - best_of(history, settings.budget).epoch >= settings.patience


def values_of(model: nn.Module) -> dict[str, Tensor]:
    """A copy of everything that the model learned."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
