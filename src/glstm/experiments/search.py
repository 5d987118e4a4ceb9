"""Which of an arm's tries is trained on all data and tested: the one with the lowest validation error."""

from dataclasses import dataclass
from math import inf, isfinite
from statistics import mean
from typing import Any

from glstm.experiments.experiment import SEARCH_SEEDS, Arm
from glstm.experiments.store import Store, name_of
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
                "networks": [name_of(recipe) for recipe in recipes],
                "diverged": error == inf,
                "validation": _finite(error),
                "operations": _finite(operations),
            }
            for change, recipes, error, operations in zip(
                arm.tries, arm.searched(), self.errors, self.operations, strict=True
            )
        ]
        first = arm.searched()[0][0]
        lengths = {"epochs": first.epochs, "steps": first.data.get("steps")}  # such as fewer than what is tested
        if any("epochs" in change for change in arm.tries):
            lengths["epochs"] = None  # each of the tries says its own
        return {"chosen": self.chosen, "seeds": SEARCH_SEEDS, **lengths, "tries": tries}


def outcome(arm: Arm, store: Store) -> Outcome:
    errors: list[float | None] = []
    operations: list[float | None] = []
    for recipes in arm.searched():
        found = [one for recipe in recipes if (one := judged(recipe, store)) is not None]
        whole = len(found) == len(recipes)
        errors.append(mean(error for error, _ in found) if whole else None)
        operations.append(mean(count for _, count in found) if whole else None)
    return Outcome(errors, operations, arm.most_operations or inf)


def judged(recipe: Recipe, store: Store) -> tuple[float, float] | None:
    """Validation error and operations of one network; None: it is not trained yet.

    The error is that of the last epochs; infinite if training diverged, or the network's answers are no numbers.
    Operations are infinite if they are not known.
    """
    summary = store.summary(recipe)
    if summary is None:
        known = store.verdict(recipe)
        return None if known is None else (_or_infinite(known["validation"]), _or_infinite(known["operations"]))
    errors = summary["curve"].get("validation_error", [])[-LAST:]
    lost = summary["diverged"] or not errors or None in errors
    return inf if lost else mean(errors), _or_infinite(summary["operations"])


def _or_infinite(value: float | None) -> float:
    return inf if value is None else value


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def chosen_recipes(arm: Arm, store: Store) -> list[Recipe] | None:
    """What is to be tested; None: it is not known yet."""
    if not arm.tries:
        return arm.recipes()
    chosen = outcome(arm, store).chosen
    return None if chosen is None else arm.recipes(arm.tries[chosen])
