"""Which of an arm's tries is trained on all data and tested: the one with the lowest validation error."""

from dataclasses import dataclass
from math import inf, isfinite
from statistics import mean
from typing import Any

from glstm.experiments.experiment import Arm
from glstm.experiments.store import Store
from glstm.recipes import Recipe

LAST = 5  # epochs whose mean decides: single epochs differ by chance


@dataclass(frozen=True)
class Outcome:
    """What validation says of each of the tries, and which one is chosen."""

    errors: list[float]
    operations: list[float]
    chosen: int

    def as_dict(self, arm: Arm) -> dict[str, Any]:
        """For JSON, which has no infinite numbers."""
        tries = [
            {"change": change, "validation": _finite(error), "operations": _finite(operations)}
            for change, error, operations in zip(arm.tries, self.errors, self.operations, strict=True)
        ]
        return {"chosen": self.chosen, "tries": tries}


def outcome(arm: Arm, store: Store) -> Outcome | None:
    """None: not all of the tries are trained yet. Of equal ones the first is chosen."""
    errors, operations = [], []
    for recipes in arm.searched():
        summaries = [store.summary(recipe) for recipe in recipes]
        if any(one is None for one in summaries):
            return None
        found = [one for one in summaries if one is not None]
        errors.append(mean(validation_error(one) for one in found))
        operations.append(mean(inf if one["operations"] is None else one["operations"] for one in found))
    most = arm.most_operations or inf
    allowed = [number for number, count in enumerate(operations) if count <= most]
    # If all take too much, the cheapest is the nearest to what was wanted.
    chosen = min(allowed, key=lambda n: errors[n]) if allowed else min(range(len(errors)), key=lambda n: operations[n])
    return Outcome(errors, operations, chosen)


def validation_error(summary: dict[str, Any]) -> float:
    """Of the last epochs; infinite if training diverged."""
    if summary["diverged"]:
        return inf
    return mean(summary["curve"]["validation_error"][-LAST:])


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def chosen_recipes(arm: Arm, store: Store) -> list[Recipe] | None:
    """What is to be tested; None: it is not known yet."""
    if not arm.tries:
        return arm.recipes()
    found = outcome(arm, store)
    return None if found is None else arm.recipes(arm.tries[found.chosen])
