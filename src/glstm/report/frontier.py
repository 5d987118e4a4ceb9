"""Error against operations on sequential MNIST, one count for all: who is cheapest at which error?"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from statistics import mean
from typing import NamedTuple

from glstm.report.intervals import difference
from glstm.report.results import Arm, Missing, Result, Try, listed

# The paper's operating point, 8.2 % open: its error, and its operations by the exact count and by the paper's own.
PAPER_ERROR, PAPER_EXACT, PAPER_OWN = 0.023, 0.92e6, 7.6e6

FRONTIER, SMALL, THRIFTY, TABLE = "frontier", "small", "thrifty", "table1-smnist"
DROPPING, APART = "weight-drop", "no-recurrence"
NARROW = 0.5  # gates are narrow if units are open for a smaller share of the sequence
# What the rivals of an experiment are called of which there are no results at all.
OF_AN_EXPERIMENT = {SMALL: "smaller LSTMs and GRUs", THRIFTY: "networks that save operations in another way"}
CLOSING = ("threshold", "truncated")  # experiments whose networks are tested with units closed
BUDGET, V_T = "budget", 0.01  # these are tested both ways: closed, they take the fewest operations


class Kind(NamedTuple):
    """What networks are, which is their colour; whether their training images moved, which fills their mark; and
    whether updates left out weights, which makes it a star."""

    name: str
    moved: bool
    dropped: bool = False


@dataclass(frozen=True)
class Point:
    """A finished network: means over its seeds, and each of them."""

    arm: Arm
    kind: Kind
    label: str

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def error(self) -> float:
        return mean(self.arm.errors)

    @property
    def operations(self) -> float:
        return mean(self.arm.operations)


@dataclass(frozen=True)
class Searched:
    """A network that decided between recipes: its validation error, of one seed. It is never tested."""

    kind: Kind
    label: str
    error: float
    operations: float

    @property
    def name(self) -> str:
        return self.kind.name


def is_narrow(point: Point) -> bool:
    """At the threshold that it is tested at; without one, no unit is ever closed."""
    v_t = point.arm.at_threshold
    return v_t is not None and mean(run.at_threshold(v_t)["open_share"] for run in point.arm.finished) < NARROW


def in_words(one: Point | Searched) -> str:
    """Which network it is."""
    how = "of" if "units" in one.label else "with"
    return f"{one.name} {how} {one.label}" if one.label else one.name


# Networks that are compared, by what `sort_of` says of them.
SIZED = {"lstm": "LSTM", "gru": "GRU"}  # which save operations by being small
SAVING = {"pruned": "pruned LSTM", "plstm": "Phased LSTM", "clockwork": "Clockwork LSTM"}  # and in other ways
NOT_RECURRENT = {"glstm.cells.feed_forward:FeedForward": "feed-forward"}  # beside them
NAMES = {"glstm": "g-LSTM", **SIZED, **SAVING, **NOT_RECURRENT}
GATED, RIVALS = NAMES["glstm"], (*SIZED.values(), *SAVING.values())


def sort_of(arm: Arm) -> str:
    """Its cell, or what was done to it."""
    recipe = arm.runs[0].recipe
    if recipe.get("sparsity"):
        return "pruned" if arm.cell == "lstm" else ""
    return recipe["gate"]["kind"] if arm.cell == "gated" else arm.cell


def points(results: dict[str, Result]) -> list[Point]:
    """Every network on this task whose operations are known, even if several experiments show it."""
    arms: list[Arm] = []
    for name in (FRONTIER, SMALL, THRIFTY, TABLE, *CLOSING, BUDGET):
        own = results[name].arms if name in results else []
        arms += [replace(arm, at_threshold=V_T) for arm in own] if name == BUDGET else own
    return _each_once(arms)


def with_weight_drop(results: dict[str, Result]) -> list[Point]:
    """Networks that were trained with weight drop. Most others were not offered it, so they answer no claim."""
    arms = results[DROPPING].arms if DROPPING in results else []
    return [point for point in _each_once(arms) if point.kind.dropped]


def without_recurrence(results: dict[str, Result]) -> list[Point]:
    """What knowing the step alone is worth. Our claim is of recurrent networks, so these do not answer it."""
    return _each_once(results[APART].arms if APART in results else [])


def _each_once(arms: Iterable[Arm]) -> list[Point]:
    found: list[Point] = []
    for arm in arms:
        known = sort_of(arm) in NAMES and arm.errors and arm.operations
        if known and not any(_is_part(arm, point.arm) for point in found):
            kind = Kind(NAMES[sort_of(arm)], arm.moved, bool(arm.runs[0].recipe.get("weight_drop")))
            found.append(Point(arm, kind, _label(arm)))
    return found


def _is_part(arm: Arm, shown: Arm) -> bool:
    """Whether it is one that is shown already, or some of its seeds."""
    return arm.at_threshold == shown.at_threshold and set(arm.recipes) <= set(shown.recipes)


def _label(arm: Arm) -> str:
    """What tells it from others of its kind."""
    recipe = arm.runs[0].recipe
    if sort_of(arm) == "pruned":
        return f"{recipe['units']} units, {100 * (1 - recipe['sparsity']):.3g} % of the weights"
    charged = arm.at_threshold is not None and arm.most_operations is None  # by the paper's recipe, all of one size
    return f"lambda {recipe.get('budget', 0):g}" if charged else f"{recipe['units']} units"


def searched(results: dict[str, Result]) -> list[Searched]:
    """Of arms that are not finished: every network of the g-LSTM's searches once, and of each other network the best so
    far."""
    found: dict[str, Searched | None] = {}
    for arm in _untested(results, FRONTIER):
        found |= {str(one.change): _searched(one, GATED) for one in (arm.search.tries if arm.search else ())}
    for arm in _untested(results, SMALL, THRIFTY):
        if arm.search and (best := arm.search.best_so_far):
            found[arm.key] = _searched(best, *_sized(arm.name))
    return [one for one in found.values() if one]


def _untested(results: dict[str, Result], *names: str) -> list[Missing]:
    return [arm for name in names if name in results for arm in results[name].untested]


def _sized(arm: str) -> tuple[str, str]:
    """Of a network's name, the cell's and its size."""
    name, _, size = arm.partition(", ")
    return name, size


def _searched(one: Try, name: str, label: str = "") -> Searched | None:
    if one.validation is None or one.operations is None:
        return None
    return Searched(Kind(name, bool(one.change.get("data", {}).get("shift"))), label, one.validation, one.operations)


def cheapest(every: list[Point], wanted: Point) -> Point | None:
    """The network with the fewest operations whose error is not clearly higher: by more than chance."""
    able = [point for point in every if not _is_worse(point, wanted)]
    return min(able, key=lambda point: point.operations, default=None)


def _is_worse(point: Point, other: Point) -> bool:
    found = difference(point.arm.errors, other.arm.errors)
    return point.error > other.error and (found is None or found.higher)


def is_beaten(point: Point, others: list[Point]) -> bool:
    """Whether another takes no more operations and has no higher error."""
    return cheapest_beater(point, others) is not None


def cheapest_beater(point: Point, others: list[Point]) -> Point | None:
    """The one with the fewest operations that takes no more of them and has no higher error."""
    able = [one for one in others if one.operations <= point.operations and one.error <= point.error]
    return min(able, key=lambda one: one.operations, default=None)


def unbeaten(every: list[Point]) -> list[Point]:
    """Those of them that none of the others beats, the cheapest first; of equal ones, one."""
    found: list[Point] = []
    for point in sorted(every, key=lambda point: (point.operations, point.error)):
        if not found or point.error < found[-1].error:
            found.append(point)
    return found


def best_searched(every: list[Searched], kind: Kind, most: float = inf) -> Searched | None:
    """By validation, of those that take no more operations."""
    own = [one for one in every if one.kind == kind and one.operations <= most]
    return min(own, key=lambda one: one.error, default=None)


def among_rivals(names: Iterable[str]) -> str:
    """Those of the g-LSTM's rivals that are among these, in words; at least the LSTM."""
    there = set(names)
    small = [name for name in SIZED.values() if name in there] or [SIZED["lstm"]]
    return listed([*small, "other recurrent network"] if there & {*SAVING.values()} else small, "or")


def tested_sizes(plain: list[Point]) -> str:
    """Which rivals were tested, and how many units they have."""
    return _sizes((point.name, point.arm.runs[0].recipe["units"]) for point in plain)


def lacking(results: dict[str, Result], what: str) -> str:
    """Which rivals are not "tested" yet, or of those the ones that are not "searched": no try is trained."""
    arms = [
        arm
        for arm in _untested(results, SMALL, THRIFTY)
        if what == "tested" or not (arm.search and arm.search.best_so_far)
    ]
    named = _sizes((name, int(size.split()[0])) for name, size in (_sized(arm.name) for arm in arms))
    whole = [words for name, words in OF_AN_EXPERIMENT.items() if name not in results]
    return " and ".join(filter(None, [named, *whole]))


def _sizes(networks: Iterable[tuple[str, int]]) -> str:
    """Names and units, as a list of lists."""
    units: dict[str, set[int]] = {name: set() for name in RIVALS}
    for name, count in networks:
        units[name].add(count)
    said = [f"{name}s of {listed([*map(str, sorted(some))])} units" for name, some in units.items() if some]
    return listed(said)
