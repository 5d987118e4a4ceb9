"""Which of an arm's tries is trained on all data and tested: the one with the lowest validation error."""

from dataclasses import dataclass
from math import inf, isfinite
from statistics import mean
from typing import Any

from glstm.experiments.experiment import SEARCH_SEEDS, Arm
from glstm.experiments.store import Store
from glstm.recipes import Recipe

LAST = 5  # epochs whose mean decides: single epochs differ by chance


@dataclass(frozen=True)
class Outcome:
    """What validation says of each of the tries; None: it is not trained yet. Infinite: training diverged."""

    errors: list[float | None]
    operations: list[float | None]
    most_operations: float = inf

    @property
    def chosen(self) -> int | None:
        """The number of the best; of equal ones the first. None: not all are trained."""
        errors = [error for error in self.errors if error is not None]
        operations = [count for count in self.operations if count is not None]
        if len(errors) < len(self.errors):
            return None
        allowed = [number for number, count in enumerate(operations) if count <= self.most_operations]
        if not allowed:  # the cheapest is the nearest to what was wanted
            return min(range(len(errors)), key=lambda number: operations[number])
        return min(allowed, key=lambda number: errors[number])

    def as_dict(self, arm: Arm) -> dict[str, Any]:
        """For JSON, which has no infinite numbers."""
        tries = [
            {
                "change": change,
                "diverged": error == inf,
                "validation": _finite(error),
                "operations": _finite(operations),
            }
            for change, error, operations in zip(arm.tries, self.errors, self.operations, strict=True)
        ]
        return {"chosen": self.chosen, "seeds": SEARCH_SEEDS, "tries": tries}


def outcome(arm: Arm, store: Store) -> Outcome:
    errors: list[float | None] = []
    operations: list[float | None] = []
    for recipes in arm.searched():
        found = [one for one in map(store.summary, recipes) if one is not None]
        whole = len(found) == len(recipes)
        errors.append(mean(map(validation_error, found)) if whole else None)
        operations.append(mean(map(_operations, found)) if whole else None)
    return Outcome(errors, operations, arm.most_operations or inf)


def _operations(summary: dict[str, Any]) -> float:
    """Infinite if they are not known."""
    return inf if summary["operations"] is None else summary["operations"]


def validation_error(summary: dict[str, Any]) -> float:
    """Of the last epochs; infinite if training diverged, or the network's answers are no numbers."""
    errors = summary["curve"].get("validation_error", [])[-LAST:]
    return inf if summary["diverged"] or not errors or None in errors else mean(errors)


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def chosen_recipes(arm: Arm, store: Store) -> list[Recipe] | None:
    """What is to be tested; None: it is not known yet."""
    if not arm.tries:
        return arm.recipes()
    chosen = outcome(arm, store).chosen
    return None if chosen is None else arm.recipes(arm.tries[chosen])
