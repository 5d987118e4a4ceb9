"""The results that experiments wrote, and the figures that tables quote."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from math import inf
from statistics import mean, median, stdev
from typing import Any

from glstm.errors import UserError
from glstm.report.intervals import Difference, difference

Rows = list[list[str]]  # a table: a head, and its rows

LAST = 5  # epochs whose mean is quoted beside the last one
EARLY = 100  # steps at the start of a sequence, for the gradient that reaches them

# By whose rules networks were trained, in the order of the report. Networks of two tracks are never compared.
TRACKS = {
    "paper": "By the paper's recipe",
    "best": "Each network at its best",
    "given": "Given recipes, nothing chosen here",
}

# The error at which a network counts as having learnt the task. An LSTM of the paper gets there, or nearly.
LEARNT = {"adding": 0.01, "smnist": 0.05, "pmnist": 0.12, "scifar": 0.5}


def listed(parts: Sequence[str], last: str = "and") -> str:
    """In words: a, b and c."""
    *first, end = parts or [""]
    return f"{', '.join(first)} {last} {end}" if first else end


def percent(value: float) -> str:
    return f"{_hundredths(value)} %"


def spread(values: Sequence[float], form: Callable[[float], str] = percent) -> str:
    """Mean and standard deviation."""
    if not values:
        return "diverged"
    if len(values) == 1:
        return form(values[0])
    return f"{form(mean(values)).removesuffix(' %')} ± {form(stdev(values))}"  # one sign for both


def _hundredths(value: float) -> Decimal:
    """100 times the value with two digits, rounded as on paper: binary numbers would make 1.525 a 1.52."""
    return Decimal(f"{100 * value:.10g}").quantize(Decimal("0.01"), ROUND_HALF_UP)


def millions(operations: float) -> str:
    return f"{operations / 1e6:.3g} M"


@dataclass(frozen=True)
class Run:
    """One network: its curve and what was measured in it."""

    summary: dict[str, Any]

    @property
    def curve(self) -> dict[str, list[float]]:
        return self.summary["curve"]

    @property
    def recipe(self) -> dict[str, Any]:
        return self.summary["recipe"]

    @property
    def diverged(self) -> bool:
        return self.summary["diverged"]

    def error(self, at_epoch: int | None, at_threshold: float | None) -> float:
        """The figure to quote: of the last epoch, of another epoch, with units closed, or of the opened LSTM."""
        if at_threshold is not None:
            return self.at_threshold(at_threshold)["error"]
        if "as an LSTM" in self.summary["probes"]:
            return self.summary["probes"]["as an LSTM"]["error"]
        return self.curve["test_error"][(at_epoch or 0) - 1]

    def last_epochs(self, at_epoch: int | None) -> float:
        return mean(self.curve["test_error"][:at_epoch][-LAST:])

    @property
    def early_gradient(self) -> float:
        """Gamma, mean over the first steps."""
        return mean(self.summary["probes"]["gradient flow"][:EARLY])

    def at_threshold(self, threshold: float) -> dict[str, float]:
        rows = self.summary["probes"]["thresholds"]
        return next(row for row in rows if row["threshold"] == threshold)

    def learnt_after(self, epochs: int) -> float:
        """The first of so many epochs at which the task counts as learnt by its test error; infinite: at none."""
        level = LEARNT.get(self.recipe["task"], 0.0)
        return next((n for n, error in enumerate(self.curve["test_error"][:epochs], 1) if error <= level), inf)


@dataclass(frozen=True)
class Try:
    """A change of a recipe, and what validation said of it; None: it is not trained yet."""

    change: dict[str, Any]
    diverged: bool
    validation: float | None
    operations: float | None


@dataclass(frozen=True)
class Search:
    tries: list[Try]
    chosen: int | None  # None: not all of the tries are trained
    epochs: int | None = None  # of its networks; None: not known, or each of the tries says its own
    steps: int | None = None  # of its sequences, where a task may have any length

    @property
    def best_so_far(self) -> Try | None:
        """By validation, of those that are trained."""
        known = [one for one in self.tries if one.validation is not None]
        return min(known, key=lambda one: one.validation or 0.0, default=None)


@dataclass(frozen=True)
class Missing:
    """An arm that is not finished, with what is known of its search, and the networks that are finished."""

    key: str
    name: str
    track: str
    search: Search | None
    seeds: int = 0  # so many there will be
    runs: list[Run] = field(default_factory=list)


@dataclass(frozen=True)
class Arm:
    key: str
    name: str
    twin: str | None
    paper: float | None
    at_epoch: int | None
    at_threshold: float | None
    runs: list[Run]
    track: str = "given"
    search: Search | None = None
    most_operations: float | None = None

    @property
    def finished(self) -> list[Run]:
        """Those that did not diverge."""
        return [run for run in self.runs if not run.diverged]

    @property
    def errors(self) -> list[float]:
        return [run.error(self.at_epoch, self.at_threshold) for run in self.finished]

    @property
    def last_epochs(self) -> float | None:
        """The mean error of the last epochs; None if the figure is not of the network as it was trained."""
        if self.at_threshold is not None or not self.finished or self.has("as an LSTM"):
            return None
        return mean(run.last_epochs(self.at_epoch) for run in self.finished)

    @property
    def at_the_end(self) -> list[float]:
        """The last epoch's errors, with the units as open as they were in training."""
        return [run.curve["test_error"][-1] for run in self.finished]

    @property
    def recipes(self) -> tuple[str, ...]:
        return tuple(repr(sorted(run.recipe.items())) for run in self.runs)

    @property
    def task(self) -> str:
        return self.runs[0].recipe["task"]

    @property
    def cell(self) -> str:
        """The kind of network."""
        return self.runs[0].recipe["cell"]

    @property
    def moved(self) -> bool:
        """Whether its training images move."""
        return bool(self.runs[0].recipe["data"].get("shift"))

    @property
    def epochs(self) -> int:
        return self.at_epoch or self.runs[0].recipe["epochs"]

    @property
    def learnt(self) -> list[float]:
        """For each seed the epoch at which it has learnt the task; infinite: it has not."""
        return [run.learnt_after(self.epochs) for run in self.runs]

    @property
    def learnt_typically(self) -> float:
        """The epoch by which half of the seeds have learnt the task; infinite: fewer than half do."""
        return median(self.learnt)

    @property
    def learnt_count(self) -> str:
        """'never' is said only where no seed learns."""
        count = sum(epoch < inf for epoch in self.learnt)
        seeds = f"{len(self.runs)} seed" + ("" if len(self.runs) == 1 else "s")
        return f"{count} of {seeds}" if count else f"never ({seeds})"

    @property
    def operations(self) -> list[float]:
        """Of a sequence, counted exactly, for each seed that is finished; none if they are not known."""
        if self.at_threshold is not None:
            return [run.at_threshold(self.at_threshold)["cached_ops"] for run in self.finished]
        known = [run.summary["operations"] for run in self.finished]
        return [] if None in known else known

    def has(self, probe: str) -> bool:
        """Whether this was measured in all networks that are finished."""
        return bool(self.finished) and all(probe in run.summary["probes"] for run in self.finished)

    def minus(self, other: "Arm") -> Difference | None:
        """Difference of the errors; None if it is not known, as where a network diverged."""
        if any(run.diverged for run in (*self.runs, *other.runs)):
            return None
        return difference(self.errors, other.errors)


@dataclass(frozen=True)
class Result:
    name: str
    title: str
    question: str
    small: bool
    arms: list[Arm]
    missing: list[Missing]  # arms that are not finished as they are asked for now
    metric: str = "error"
    as_percent: bool = True

    def find(self, key: str) -> Arm | None:
        """None: it is not finished."""
        return next((arm for arm in self.arms if arm.key == key), None)

    @property
    def untested(self) -> list[Missing]:
        """Arms that are missing, but for those that were tested as they were asked for before."""
        return [arm for arm in self.missing if self.find(arm.key) is None]

    def arm(self, key: str) -> Arm:
        found = self.find(key)
        if found is None:
            known = ", ".join(arm.key for arm in self.arms)
            raise UserError(f"the result {self.name} has no arm with the key {key!r}, only {known}")
        return found

    def twins(self, track: str | None = None) -> list[tuple[Arm, Arm]]:
        """Networks with gates, each with the plain network that it is compared with, if both are finished."""
        pairs = [(arm, self.find(arm.twin)) for arm in self.arms if arm.twin and track in (None, arm.track)]
        return [(arm, twin) for arm, twin in pairs if twin is not None]

    def tracks(self) -> list[str]:
        used = {one.track for one in (*self.arms, *self.missing)}
        return [track for track in TRACKS if track in used]

    def form(self, value: float) -> str:
        return percent(value) if self.as_percent else f"{value:.1e}"

    def spread(self, values: Sequence[float]) -> str:
        return spread(values, self.form)

    def interval(self, found: Difference | None) -> str:
        """In points of a percentage, or in the unit of the error."""
        if found is None:
            return ""
        low, value, high = (
            f"{_hundredths(one):+}" if self.as_percent else f"{one:+.1e}"
            for one in (found.low, found.value, found.high)
        )
        return f"{value} ({low} to {high})"
