"""What a sweep tries, from a TOML file.

    task = "smnist"               # as for `glstm train`: a task of the paper, or a file of your own
    preset = "smnist-budget"      # of a task of the paper, if it is not the first
    seeds = [0, 1]                # every recipe is trained from each; their mean counts

    [recipe]                      # what all have in common, by the names of a run's config.json
    epochs = 30

    [grid]                        # every value with every other
    lr = [5e-4, 1e-3]
    "gate.sigma" = [25.0, 250.0]

Instead of a grid, a search (by Optuna):

    [search]
    trials = 40
    together = 8                  # so many are trained before the next are chosen

    [search.values]
    lr = { low = 1e-4, high = 1e-2, log = true }
    units = { low = 16, high = 128, step = 16 }
    "gate.sigma" = [25.0, 50.0, 100.0]
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

from glstm.errors import UserError
from glstm.recipes import Recipe, names_in

NESTED = ("data", "gate", "options")
KNOWN = {"task", "preset", "seeds", "recipe", "grid", "search"}

Values = dict[str, Any]  # by names such as lr or gate.sigma


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`."""

    low: float
    high: float
    log: bool = False
    step: float | None = None


@dataclass(frozen=True)
class Search:
    trials: int
    values: dict[str, Range | list[Any]]
    together: int = 8
    seed: int = 0


@dataclass(frozen=True)
class Plan:
    task: str
    preset: str | None = None
    seeds: tuple[int, ...] = (0,)
    recipe: Values = field(default_factory=dict)
    grid: dict[str, list[Any]] = field(default_factory=dict)
    search: Search | None = None

    def in_grid(self) -> Iterator[Values]:
        for values in product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))

    def names(self) -> list[str]:
        """What it says of tasks, cells, heads and gates: names, some of which may stand for somebody's code."""
        return [self.task, *names_in([self.recipe, self.grid, self.search.values if self.search else {}])]


def read_plan(path: Path) -> Plan:
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not TOML: {error}") from None
    if unknown := sorted(set(content) - KNOWN):
        raise UserError(f"{path}: there is no entry {unknown[0]!r}; there are {', '.join(sorted(KNOWN))}")
    for name, kind in (("task", str), ("recipe", dict), ("grid", dict), ("search", dict), ("seeds", list)):
        if name in content and not isinstance(content[name], kind):
            raise UserError(f"{path}: {name} is {_kind(kind)}, not {content[name]!r:.50}")
    if "task" not in content:
        raise UserError(f"{path}: say what to train on, such as task = 'smnist', or a file of yours")
    if ("grid" in content) == ("search" in content):
        raise UserError(f"{path}: a sweep has a [grid] or a [search], one of the two")
    seeds = content.pop("seeds", [0])
    if not seeds or any(type(seed) is not int for seed in seeds):
        raise UserError(f"{path}: seeds are whole numbers, at least one, not {seeds!r:.50}")
    for name, values in content.get("grid", {}).items():
        if not isinstance(values, list) or not values:
            raise UserError(f"{path}: the values of {name} in the grid are a list, such as [1, 2], not {values!r:.50}")
    if "search" in content:
        content["search"] = _search(path, content["search"])
    return Plan(**content, seeds=tuple(seeds))


def _kind(kind: type) -> str:
    return {str: "a text", dict: "a table", list: "a list"}[kind]


def _search(path: Path, content: dict[str, Any]) -> Search:
    known = [one.name for one in fields(Search)]
    if unknown := sorted(set(content) - set(known)):
        raise UserError(f"{path}: [search] has no entry {unknown[0]!r}; it has {', '.join(known)}")
    for name in ("trials", "together", "seed"):
        if name in content and (type(content[name]) is not int or content[name] < (name != "seed")):
            raise UserError(f"{path}: {name} in [search] is a whole number of at least 1, not {content[name]!r:.50}")
    if "trials" not in content or not isinstance(content.get("values"), dict) or not content["values"]:
        raise UserError(f"{path}: [search] needs trials, and [search.values] with at least one name")
    values = {name: _range(path, name, one) for name, one in content.pop("values").items()}
    return Search(values=values, **content)


def _range(path: Path, name: str, said: Any) -> Range | list[Any]:
    if isinstance(said, list) and said:
        return said
    ends: dict[str, Any] = said if isinstance(said, dict) else {}
    numbers = {"low", "high"} <= set(ends) <= {"low", "high", "log", "step"}
    if not numbers or not all(isinstance(ends[end], int | float) for end in ("low", "high")):
        raise UserError(f"{path}: {name} in [search.values] is a list, or {{ low = 1, high = 9 }}, not {said!r:.50}")
    if not ends["low"] < ends["high"] or (ends.get("log") and not ends["low"] > 0):
        raise UserError(f"{path}: {name} goes from low to a larger high, above 0 if log = true, not {said!r:.60}")
    return Range(**ends)


def with_values(recipe: Recipe, values: Values) -> Recipe:
    """The recipe with values such as {"lr": 1e-3, "gate.sigma": 50.0}."""
    known = {one.name for one in fields(Recipe)}
    changes: dict[str, Any] = {}
    for name, value in values.items():
        first, _, rest = name.partition(".")
        if first not in known or bool(rest) != (first in NESTED and not isinstance(value, dict)):
            of_parts = ", ".join(f"{part}.NAME" for part in NESTED)
            raise UserError(
                f"a recipe has no value {name!r}; it has {', '.join(sorted(known - set(NESTED)))}, {of_parts}"
            )
        if rest:
            changes.setdefault(first, {})[rest] = value
        else:
            changes[first] = value
    if "cell" in changes:  # first: it drops the other cell's values
        recipe = recipe.changed(cell=changes.pop("cell"))
    if "steps" in changes.get("data", {}):  # the gates' times are scaled with it
        recipe = recipe.at_length(changes["data"]["steps"])
    return recipe.changed(**changes)
