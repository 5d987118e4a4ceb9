"""Which figures an experiment gets, from the results of its networks."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import mean

import numpy as np

from glstm.plots import COLOURS, SHORT_CURVE, Axis, Curve, Level, draw_curves, draw_gates, new_figure
from glstm.report import svg
from glstm.report.frontier import cheapest, points
from glstm.report.results import Arm, Result

WIDTH, HEIGHT = 420 / 72, 280 / 72  # inches, at 72 units: about what fits on a page
GATES_HEIGHT = 190 / 72
GATE_COLUMNS = 200  # steps that a picture of gates shows

ZERO = 3e-5  # where a threshold of 0 is drawn on a log axis
WORST = 0.04  # error that the frontier is drawn up to
PAPER_POINT = (7.6, 0.023)  # M operations and error, at 8.2 % open

ERROR = Axis("test error", log=True, percent=True)
OPERATIONS = Axis("operations a sequence, M", log=True)
THRESHOLD = Axis("threshold v_T", log=True, zero=ZERO)


@dataclass(frozen=True)
class Chart:
    caption: str
    curves: Sequence[Curve]
    x: Axis
    y: Axis
    levels: Sequence[Level] = ()


def of(result: Result) -> list[tuple[str, str]]:
    """(caption, HTML) of each figure."""
    found = []
    for chart in _charts(result):
        with svg.style(f"{result.name} {len(found)}"):
            found.append((chart.caption, drawn(chart, f"{result.title}: {chart.caption}")))
    for arm in result.arms:
        if not result.is_frontier and "gates" in arm.runs[0].summary["probes"]:
            with svg.style(f"{result.name} {len(found)}"):
                found.append((f"Gates of {arm.name}, first seed: black is closed, white is open.", _gates(arm)))
    return found


def _charts(result: Result) -> Iterator[Chart]:
    if result.is_frontier:
        yield _frontier(result)
        return
    if any(arm.epochs >= SHORT_CURVE for arm in result.arms):
        yield _learning(result)
    if tested := [arm for arm in result.arms if all("thresholds" in run.summary["probes"] for run in arm.runs)]:
        yield from _thresholds(result, tested)
    if flows := [arm for arm in result.arms if all("gradient flow" in run.summary["probes"] for run in arm.runs)]:
        yield _flow(flows)


def drawn(chart: Chart, label: str) -> str:
    """The figure and its legend, without curves that have no name."""
    figure = new_figure(WIDTH, HEIGHT)
    draw_curves(figure.add_subplot(), chart.curves, chart.x, chart.y, chart.levels)
    names = "".join(_legend(curve, number) for number, curve in enumerate(chart.curves) if curve.name)
    return f'{svg.inline(figure, label)}<ul class="legend">{names}</ul>'


def _legend(curve: Curve, number: int) -> str:
    colour = (number if curve.colour is None else curve.colour) % len(COLOURS)
    return f'<li class="c{colour}{"" if curve.line else " mark"}">{escape(curve.name)}</li>'


def _frontier(result: Result) -> Chart:
    """Every arm as a point, grouped by whether its recipe moves images; the best of all; and the paper."""
    every = points(result)
    groups: dict[str, list[tuple[float, float]]] = {"images that move": [], "images as they are": []}
    for point in every:
        if point.threshold == point.arm.at_threshold:
            moving = point.arm.runs[0].summary["recipe"]["data"].get("shift", 0)
            name = "images that move" if moving else "images as they are"
            groups[name].append((point.operations / 1e6, point.error))
    groups["the paper, by its own count"] = [PAPER_POINT]
    curves = [Curve(name, *zip(*found), line=False, marks=True) for name, found in groups.items() if found]
    if best := [point for point in cheapest(every) if point.error <= WORST]:
        costs, errors = [one.operations / 1e6 for one in best], [one.error for one in best]
        curves.append(Curve("cheapest at any threshold", costs, errors))
    caption = "Error against operations: each point a recipe at the threshold of training, the line the best at any."
    return Chart(caption, curves, OPERATIONS, ERROR)


def _learning(result: Result) -> Chart:
    shown = [arm for arm in result.arms if arm.epochs >= SHORT_CURVE]
    curves = []
    for arm in shown:
        columns = [*zip(*(run.curve["test_error"][: arm.epochs] for run in arm.runs))]
        epochs = arm.runs[0].curve["epoch"][: arm.epochs]
        low, high = ([pick(column) for column in columns] for pick in (min, max))
        curves.append(Curve(arm.name, epochs, [mean(column) for column in columns], low, high))
    y = Axis(f"test {result.metric}", log=True, percent=result.as_percent)
    # The paper's figure with units closed does not belong to these curves, whose units are as open as in training.
    levels = _paper(result, [None if arm.at_threshold is not None else arm.paper for arm in shown])
    caption = f"Test {result.metric} against epochs: mean over seeds, and their range."
    return Chart(caption, curves, Axis("epoch", whole=True), y, levels)


def _paper(result: Result, figures: Sequence[float | None]) -> list[Level]:
    """The paper's figures for curves, each once."""
    first = {value: number for number, value in reversed([*enumerate(figures)]) if value is not None}
    return [Level(value, f"paper {result.form(value)}", number) for value, number in first.items()]


def _thresholds(result: Result, arms: list[Arm]) -> Iterator[Chart]:
    """Error and operations against the threshold, if there are enough points for a curve; and one against the other."""
    levels = [row["threshold"] for row in arms[0].runs[0].summary["probes"]["thresholds"]]
    shown = [max(level, ZERO) for level in levels]
    error, cost, both = [], [], []
    for arm in arms:
        tested = [*zip(*(run.summary["probes"]["thresholds"] for run in arm.runs))]
        errors = [mean(row["error"] for row in column) for column in tested]
        operations = [mean(row["cached_ops"] for row in column) / 1e6 for column in tested]
        error.append(Curve(arm.name, shown, errors, marks=True))
        cost.append(Curve(arm.name, shown, operations, marks=True))
        both.append(Curve(arm.name, operations, errors, line=len(levels) >= SHORT_CURVE, marks=True))
    if len(levels) >= SHORT_CURVE:
        paper = _paper(result, [None if arm.at_threshold is None else arm.paper for arm in arms])
        yield Chart("Error against the threshold.", error, THRESHOLD, ERROR, paper)
        yield Chart("Operations against the threshold, frozen work kept.", cost, THRESHOLD, OPERATIONS)
        yield Chart("Error against operations, a point for each threshold.", both, OPERATIONS, ERROR)
    else:
        words = " and ".join(f"{level:g}" for level in levels)
        yield Chart(f"Error against operations, at thresholds of {words}.", both, OPERATIONS, ERROR)


def _flow(arms: list[Arm]) -> Chart:
    curves = []
    for arm in arms:
        flows = [run.summary["probes"]["gradient flow"] for run in arm.runs]
        values = [math.exp(mean(math.log(max(value, 1e-30)) for value in column)) for column in zip(*flows)]
        curves.append(Curve(arm.name, range(1, len(values) + 1), values))
    caption = "Gamma, the mean absolute gradient that reaches each step."
    return Chart(caption, curves, Axis("step", whole=True), Axis("Gamma", log=True))


def _gates(arm: Arm) -> str:
    """Before and after training, of the first seed."""
    found, steps = arm.runs[0].summary["probes"]["gates"], arm.runs[0].summary["steps"]
    figure = new_figure(WIDTH, GATES_HEIGHT)
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, when in ((left, "before"), (right, "after")):
        draw_gates(axes, openness(found[when], np.linspace(1, steps, GATE_COLUMNS)), f"{when} training", steps)
    right.set_ylabel("")
    return svg.inline(figure, f"{arm.name}: how open each unit is at each step, before and after training")


def openness(values: Mapping[str, Sequence[float]], times: np.ndarray) -> np.ndarray:
    """k of every unit at these times, computed from the gates' values, because the report imports no model."""
    unit = {name: np.asarray(one) for name, one in values.items()}
    size = {name: np.maximum(np.abs(unit[name]), 1e-6) for name in ("sigma", "tau") if name in unit}
    t = times[:, None]
    if "mu" in unit:
        distance = t - unit["mu"]
        if "tau" in unit:  # to the nearest of the moments mu + n tau
            distance = (distance + size["tau"] / 2) % size["tau"] - size["tau"] / 2
        return np.exp(-((distance / size["sigma"]) ** 2))
    period, reflected = size["tau"], unit["r"] - 2 * np.round(unit["r"] / 2)
    ratio = np.maximum(np.abs(reflected), 1e-6)
    phase = (t - unit["s"]) % period / period
    return np.clip(np.minimum(2 * phase / ratio, 2 - 2 * phase / ratio), 0, 1)
