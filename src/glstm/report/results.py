"""The results that experiments wrote, and the figures that tables quote."""

from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from glstm.errors import UserError
from glstm.forms import read_json
from glstm.report import result_form

Rows = list[list[str]]  # a table: a head, and its rows

LAST = 5  # epochs whose mean is quoted beside the last one
MOST_CURVES = 10  # in one figure
EARLY = 100  # steps at the start of a sequence, for the gradient that reaches them


@dataclass(frozen=True)
class Run:
    """One network: its curve and what was measured in it."""

    summary: dict[str, Any]

    @property
    def curve(self) -> dict[str, list[float]]:
        return self.summary["curve"]

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

    def after(self, epochs: int) -> float:
        """The test error after so many epochs."""
        return self.curve["test_error"][epochs - 1]

    def at_threshold(self, threshold: float) -> dict[str, float]:
        rows = self.summary["probes"]["thresholds"]
        return next(row for row in rows if row["threshold"] == threshold)


@dataclass(frozen=True)
class Arm:
    key: str
    name: str
    twin: str | None
    paper: float | None
    at_epoch: int | None
    at_threshold: float | None
    runs: list[Run]

    @property
    def errors(self) -> list[float]:
        return [run.error(self.at_epoch, self.at_threshold) for run in self.runs]

    @property
    def last_epochs(self) -> float | None:
        """The mean error of the last epochs; None if the figure is not of the network as it was trained."""
        if self.at_threshold is not None or "as an LSTM" in self.runs[0].summary["probes"]:
            return None
        return mean(run.last_epochs(self.at_epoch) for run in self.runs)

    @property
    def at_the_end(self) -> float:
        """Mean over seeds of the last epoch's error, with the units as open as they were in training."""
        return mean(run.curve["test_error"][-1] for run in self.runs)

    @property
    def recipes(self) -> tuple[str, ...]:
        return tuple(repr(sorted(run.summary["recipe"].items())) for run in self.runs)

    @property
    def cell(self) -> str:
        """The kind of network."""
        return self.runs[0].summary["recipe"]["cell"]

    @property
    def epochs(self) -> int:
        return self.at_epoch or self.runs[0].summary["recipe"]["epochs"]


@dataclass(frozen=True)
class Result:
    name: str
    title: str
    question: str
    small: bool
    arms: list[Arm]
    missing: list[str]  # arms that are not trained yet

    @property
    def as_percent(self) -> bool:
        return self.arms[0].runs[0].summary["as_percent"]

    @property
    def metric(self) -> str:
        return self.arms[0].runs[0].summary["metric"]

    @property
    def is_frontier(self) -> bool:
        """Many recipes tested at thresholds: the question is not which is best, but how many operations they need."""
        return len(self.arms) > MOST_CURVES and all(
            "thresholds" in run.summary["probes"] for arm in self.arms for run in arm.runs
        )

    def arm(self, key: str) -> Arm:
        found = next((arm for arm in self.arms if arm.key == key), None)
        if found is None:
            known = ", ".join(arm.key for arm in self.arms)
            raise UserError(f"the result {self.name} has no arm with the key {key!r}, only {known}")
        return found

    def twins(self) -> list[tuple[Arm, Arm]]:
        """Networks with gates, each with the plain network that it is compared with."""
        return [(arm, self.arm(arm.twin)) for arm in self.arms if arm.twin is not None]

    def form(self, value: float) -> str:
        return f"{100 * value:.2f} %" if self.as_percent else f"{value:.1e}"


def load(folder: Path, order: list[str]) -> list[Result]:
    """Every result in the folder, in the order given."""
    found = {path.stem: _read(path) for path in sorted(folder.glob("*.json"))}
    if not found:
        raise UserError(f"there are no results in {folder}: glstm reproduce makes them")
    names = [name for name in order if name in found] + [name for name in found if name not in order]
    return [found[name] for name in names]


def _read(path: Path) -> Result:
    content = read_json(path, "a result of glstm reproduce", result_form.result)
    parts = ("key", "name", "twin", "paper", "at_epoch", "at_threshold")
    arms = [Arm(**{part: arm[part] for part in parts}, runs=list(map(Run, arm["runs"]))) for arm in content["arms"]]
    about = {part: content[part] for part in ("name", "title", "question", "small", "missing")}
    result = Result(**about, arms=arms)
    _check_keys(result, path)
    _check_frontier(result, path)
    return result


def _check_frontier(result: Result, path: Path) -> None:
    """Many recipes are also compared with an LSTM of their size."""
    for arm in result.arms if result.is_frontier else ():
        for run in arm.runs:
            if any("lstm_ops" not in row for row in run.summary["probes"]["thresholds"]):
                raise UserError(
                    f"{path} is not a result of glstm reproduce: a threshold of {arm.key!r} has no lstm_ops"
                )


def _check_keys(result: Result, path: Path) -> None:
    """Claims find arms by their keys, so keys must be unique."""
    keys = [arm.key for arm in result.arms]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise UserError(f"{path} has two arms with the key {twice[0]!r}; each must have its own")
    for arm in result.arms:
        if arm.twin is not None and arm.twin not in keys and not result.missing:
            raise UserError(f"{path} compares {arm.key!r} with {arm.twin!r}, which is no arm's key there")
