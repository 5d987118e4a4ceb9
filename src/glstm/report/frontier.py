"""Error against operations on sequential MNIST, one count for all: who is cheapest at which error?"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from statistics import mean

from glstm.report.intervals import difference
from glstm.report.results import Arm, Result, Try

# The paper's operating point, 8.2 % open: its error, and its operations by the exact count and by the paper's own.
PAPER_ERROR, PAPER_EXACT, PAPER_OWN = 0.023, 0.92e6, 7.6e6

FRONTIER, SMALL, TABLE = "frontier", "small", "table1-smnist"
CLOSING = ("threshold", "truncated")  # experiments whose networks are tested with units closed
BUDGET, V_T = "budget", 0.01  # these are tested both ways: closed, they take the fewest operations


@dataclass(frozen=True)
class Point:
    """A finished network: means over its seeds, and each of them."""

    arm: Arm
    kind: str
    label: str

    @property
    def name(self) -> str:
        return NAMES[self.arm.cell]

    @property
    def error(self) -> float:
        return mean(self.arm.errors)

    @property
    def operations(self) -> float:
        return mean(self.arm.operations)


@dataclass(frozen=True)
class Searched:
    """A network that decided between recipes: its validation error, of one seed. It is never tested."""

    kind: str
    label: str
    error: float
    operations: float

    @property
    def name(self) -> str:
        return self.kind.partition(", ")[0]


NAMES = {"glstm": "g-LSTM", "lstm": "LSTM", "gru": "GRU"}  # of cells; networks of others are not compared
GATED, *RIVALS = NAMES.values()


def kind_of(name: str, moved: bool) -> str:
    return f"{name}, images {'that move' if moved else 'as they are'}"


KINDS = [kind_of(name, moved) for name in NAMES.values() for moved in (False, True)]


def points(results: dict[str, Result]) -> list[Point]:
    """Every network on this task whose operations are known; each once, even if several experiments show it."""
    found: list[Point] = []
    for name in (FRONTIER, SMALL, TABLE, *CLOSING, BUDGET):
        arms = results[name].arms if name in results else []
        for arm in (replace(arm, at_threshold=V_T) for arm in arms) if name == BUDGET else arms:
            known = arm.cell in NAMES and arm.errors and arm.operations
            if known and not any(_is_part(arm, point.arm) for point in found):
                found.append(Point(arm, kind_of(NAMES[arm.cell], arm.moved), _label(arm)))
    return found


def _is_part(arm: Arm, shown: Arm) -> bool:
    """Whether it is one that is shown already, or some of its seeds."""
    return arm.at_threshold == shown.at_threshold and set(arm.recipes) <= set(shown.recipes)


def _label(arm: Arm) -> str:
    """What tells it from others of its kind."""
    recipe = arm.runs[0].recipe
    charged = arm.at_threshold is not None and arm.most_operations is None  # by the paper's recipe, all of one size
    return f"lambda {recipe.get('budget', 0):g}" if charged else f"{recipe['units']} units"


def searched(results: dict[str, Result]) -> list[Searched]:
    """Of arms that are not finished: every network of the g-LSTM's searches once, and of each small network the best so
    far."""
    found: dict[str, Searched] = {}
    for arm in results[FRONTIER].untested if FRONTIER in results else ():
        for one in arm.search.tries if arm.search else ():
            found |= _one(one, GATED)
    for arm in results[SMALL].untested if SMALL in results else ():
        if arm.search and (best := arm.search.best_so_far):
            found |= _one(best, *_sized(arm.name))
    return list(found.values())


def _sized(arm: str) -> tuple[str, str]:
    """Of a small network's name, the cell's and its size."""
    name, _, size = arm.partition(", ")
    return name, size


def _one(one: Try, name: str, label: str = "") -> dict[str, Searched]:
    if one.validation is None or one.operations is None:
        return {}
    kind = kind_of(name, bool(one.change.get("data", {}).get("shift")))
    return {f"{kind} {label} {one.change}": Searched(kind, label, one.validation, one.operations)}


def cheapest(every: list[Point], wanted: Point) -> Point | None:
    """The network with the fewest operations that is as good: its error is not higher by more than chance."""
    able = [point for point in every if not _is_worse(point, wanted)]
    return min(able, key=lambda point: point.operations, default=None)


def _is_worse(point: Point, other: Point) -> bool:
    found = difference(point.arm.errors, other.arm.errors)
    return point.error > other.error and (found is None or found.higher)


def is_beaten(point: Point, others: list[Point]) -> bool:
    """Whether another takes no more operations and has no higher error."""
    return any(one.operations <= point.operations and one.error <= point.error for one in others)


def unbeaten(every: list[Point]) -> list[Point]:
    """Those of them that none of the others beats, the cheapest first; of equal ones, one."""
    found: list[Point] = []
    for point in sorted(every, key=lambda point: (point.operations, point.error)):
        if not found or point.error < found[-1].error:
            found.append(point)
    return found


def best_searched(every: list[Searched], kind: str, most: float = inf) -> Searched | None:
    """By validation, of those that take no more operations."""
    own = [one for one in every if one.kind == kind and one.operations <= most]
    return min(own, key=lambda one: one.error, default=None)


def among_rivals(names: Iterable[str]) -> list[str]:
    """Those of the g-LSTM's rivals that are among these; at least the LSTM."""
    there = set(names)
    return [name for name in RIVALS if name in there] or RIVALS[:1]


def tested_sizes(plain: list[Point]) -> str:
    """How many units the rivals have that were tested."""
    units: dict[str, set[int]] = {name: set() for name in RIVALS}
    for point in plain:
        units[point.name].add(point.arm.runs[0].recipe["units"])
    said = [f"{name}s with {', '.join(map(str, sorted(some)))} units" for name, some in units.items() if some]
    return " and ".join(said)


def untested_sizes(small: Result | None) -> str:
    """Which of the small networks are not tested; empty: all are. None: of none anything is known."""
    if small is None:
        return f"{RIVALS[0]}s of fewer units"
    untested = [_sized(arm.name) for arm in small.untested]
    sizes = {name: ", ".join(size for own, size in untested if own == name) for name in RIVALS}
    return " and ".join(f"{name}s of {some}" for name, some in sizes.items() if some)
