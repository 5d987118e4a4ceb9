"""Which figures an experiment gets, from the results of its networks."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import mean

import numpy as np

from glstm.plots import COLOURS, SHORT_CURVE, Axis, Curve, Level, draw_curves, draw_gates, new_figure
from glstm.report import svg
from glstm.report.cells_figure import CAPTION, PROBE, cells_figure
from glstm.report.results import TRACKS, Arm, Result

WIDTH, HEIGHT = 420 / 72, 280 / 72  # inches, at 72 units: about what fits on a page
GATES_HEIGHT = 190 / 72
GATE_COLUMNS = 200  # steps that a picture of gates shows

ZERO = 3e-5  # where a threshold of 0 is drawn on a log axis
MOST_CURVES = 10  # in one figure
# Classes of the style sheet; other marks are round there.
MARKS = {
    "^": " up",
    "v": " down",
    "P": " cross",
    "x": " times",
    "X": " times",
    "s": " square",
    "D": " diamond",
    "*": " star",
}
SHORT = {"paper": "by the\npaper", "best": "at its\nbest", "given": "given"}

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
    return [_drawn(result, key, f"{result.name} {number}") for number, key in enumerate(keys(result))]


def one(result: Result, key: str, place: str) -> tuple[str, str]:
    """(caption, HTML) of one of them; `place` keeps its ids apart from those of the same figure elsewhere."""
    return _drawn(result, key, f"{place} {result.name} {key}")


def keys(result: Result) -> list[str]:
    """Which figures there are."""
    cells = ["cells"] if any(arm.has(PROBE) for arm in result.arms) else []
    return [*cells, *_charts(result), *(f"gates {arm.key}" for arm in result.arms if arm.has("gates"))]


def _drawn(result: Result, key: str, name: str) -> tuple[str, str]:
    kind, _, arm = key.partition(" ")
    with svg.style(name):
        if kind == "gates":
            found = result.arm(arm)
            track = f", {TRACKS[found.track].lower()}" if len(result.tracks()) > 1 else ""
            return f"Gates of {found.name}{track}, first seed: black is closed, white is open.", _gates(found)
        if kind == "cells":
            return CAPTION, cells_figure([arm for arm in result.arms if arm.has(PROBE)])
        chart = _charts(result)[key]
        return chart.caption, drawn(chart, f"{result.title}: {chart.caption}")


def _charts(result: Result) -> dict[str, Chart]:
    """By their keys."""
    found = {}
    for track in result.tracks():
        shown = [arm for arm in result.arms if arm.track == track and arm.epochs >= SHORT_CURVE and arm.finished]
        if 0 < len(shown) <= MOST_CURVES:
            found[f"learning {track}"] = _learning(result, track, shown)
        elif shown and len({arm.runs[0].summary["steps"] for arm in shown}) > 1:
            found["lengths"] = _lengths(shown)
    if compared := [arm for pair in result.twins() for arm in pair if arm.track != "given" and arm.errors]:
        found["seeds"] = _seeds(result, compared)
    if tested := [arm for arm in result.arms if arm.has("thresholds")]:
        found |= _thresholds(result, tested)
    if flows := [arm for arm in result.arms if arm.has("gradient flow")]:
        found["flow"] = _flow(flows)
    return found


def drawn(chart: Chart, label: str, width: float = WIDTH, height: float = HEIGHT) -> str:
    """The figure and its legend, without curves that have no name."""
    figure = new_figure(width, height)
    draw_curves(figure.add_subplot(), chart.curves, chart.x, chart.y, chart.levels)
    names = "".join(_legend(curve, number) for number, curve in enumerate(chart.curves) if curve.name)
    return svg.inline(figure, label) + (f'<ul class="legend">{names}</ul>' if names else "")


def _legend(curve: Curve, number: int) -> str:
    colour = (number if curve.colour is None else curve.colour) % len(COLOURS)
    kind = f" mark{MARKS.get(curve.marker, '')}" + (" hollow" if curve.hollow else "")
    if curve.line:
        kind = " dashed" if curve.dashed else ""
    return f'<li class="c{colour}{kind}">{escape(curve.name)}</li>'


def _learning(result: Result, track: str, shown: list[Arm]) -> Chart:
    curves = []
    for arm in shown:
        columns = [*zip(*(run.curve["test_error"][: arm.epochs] for run in arm.finished))]
        epochs = arm.finished[0].curve["epoch"][: arm.epochs]
        low, high = ([pick(column) for column in columns] for pick in (min, max))
        curves.append(Curve(arm.name, epochs, [mean(column) for column in columns], low, high))
    y = Axis(f"test {result.metric}", log=True, percent=result.as_percent)
    # The paper's figure with units closed does not belong to these curves, whose units are as open as in training.
    levels = _paper(result, [None if arm.at_threshold is not None else arm.paper for arm in shown])
    dashed = "; dashed: the paper" if levels else ""
    over = f"mean over {_counted(shown)} and their range"
    caption = f"{TRACKS[track]}: test {result.metric} against epochs, {over}{dashed}."
    return Chart(caption, curves, Axis("epoch", whole=True), y, levels)


def _counted(arms: list[Arm]) -> str:
    """How many seeds each has."""
    counts = [len(arm.finished) for arm in arms]
    most = max(counts)
    others = [f"{arm.name}: {count}" for arm, count in zip(arms, counts) if count < most]
    seeds = "1 seed" if most == 1 else f"{most} seeds"
    return f"{seeds} ({'; '.join(others)})" if others else seeds


def _lengths(arms: list[Arm]) -> Chart:
    """The epoch by which half of the seeds have learnt the task, against steps; a curve for each network and start."""
    found: dict[str, list[tuple[float, float]]] = {}
    for arm in arms:
        place = arm.runs[0].summary["steps"], arm.learnt_typically
        found.setdefault(re.sub("N = [0-9]+, ", "", arm.name), []).append(place)
    starts = list(dict.fromkeys(name.partition(", ")[2] for name in found))  # a colour each; LSTMs have dashed lines
    curves = []
    for name, every in found.items():
        cell, _, start = name.partition(", ")
        if places := [place for place in every if place[1] < math.inf]:
            x, y = [steps for steps, _ in places], [epoch for _, epoch in places]
            curves.append(Curve(name, x, y, marks=True, colour=starts.index(start), dashed=cell == "LSTM"))
    caption = "The epoch by which half of the seeds have learnt the task, against steps; no mark: fewer than half do."
    return Chart(caption, curves, Axis("steps", log=True), Axis("epoch", log=True))


def _seeds(result: Result, arms: list[Arm]) -> Chart:
    """Where each seed ends, the two tracks apart."""
    arms = sorted(arms, key=lambda arm: [*TRACKS].index(arm.track))
    curves = []
    for place, arm in enumerate(arms, 1):
        colour = 0 if arm.cell == "glstm" else 1
        curves.append(Curve("", [place] * len(arm.errors), arm.errors, line=False, size=3.5, colour=colour))
        low, high = [min(arm.errors)], [max(arm.errors)]
        curves.append(Curve("", [place], [mean(arm.errors)], low, high, line=False, size=9, colour=colour))
    one_track = len({arm.track for arm in arms}) == 1  # the caption says which
    names = [arm.name.replace(" ", "\n") if one_track else f"{arm.name}\n{SHORT[arm.track]}" for arm in arms]
    x, y = Axis("", names=names, spans=(0.5, len(arms) + 0.5)), Axis(f"test {result.metric}", True, result.as_percent)
    papers = {arm.paper: 0 if arm.cell == "glstm" else 1 for arm in arms if arm.paper is not None}
    levels = [Level(value, f"paper {result.form(value)}", colour) for value, colour in papers.items()]
    track = f"{TRACKS[arms[0].track]}: test" if one_track else "Test"
    caption = f"{track} {result.metric} of every seed after the last epoch, and their mean; dashed: the paper."
    return Chart(caption, curves, x, y, levels)


def _paper(result: Result, figures: Sequence[float | None]) -> list[Level]:
    """The paper's figures for curves, each once."""
    first = {value: number for number, value in reversed([*enumerate(figures)]) if value is not None}
    return [Level(value, f"paper {result.form(value)}", number) for value, number in first.items()]


def _thresholds(result: Result, arms: list[Arm]) -> dict[str, Chart]:
    """Error and operations against the threshold, if there are enough points for a curve; and one against the other."""
    levels = [row["threshold"] for row in arms[0].finished[0].summary["probes"]["thresholds"]]
    shown = [max(level, ZERO) for level in levels]
    error, cost, both = [], [], []
    for arm in arms:
        tested = [*zip(*(run.summary["probes"]["thresholds"] for run in arm.finished))]
        errors = [mean(row["error"] for row in column) for column in tested]
        operations = [mean(row["cached_ops"] for row in column) / 1e6 for column in tested]
        error.append(Curve(arm.name, shown, errors, marks=True))
        cost.append(Curve(arm.name, shown, operations, marks=True))
        both.append(Curve(arm.name, operations, errors, marks=True))
    if len(levels) < SHORT_CURVE:  # the table says it
        return {}
    paper = _paper(result, [None if arm.at_threshold is None else arm.paper for arm in arms])
    dashed = "; dashed: the paper, at 0.01" if paper else ""
    of_both = "Error against operations, counted exactly, a point for each threshold."
    return {
        "thresholds": Chart(f"Error against the threshold{dashed}.", error, THRESHOLD, ERROR, paper),
        "operations": Chart("Operations against the threshold, counted exactly.", cost, THRESHOLD, OPERATIONS),
        "both": Chart(of_both, both, OPERATIONS, ERROR),
    }


def _flow(arms: list[Arm]) -> Chart:
    curves = []
    for arm in arms:
        flows = [run.summary["probes"]["gradient flow"] for run in arm.finished]
        values = [math.exp(mean(math.log(max(value, 1e-30)) for value in column)) for column in zip(*flows)]
        curves.append(Curve(arm.name, range(1, len(values) + 1), values))
    caption = "Gamma, the mean absolute gradient that reaches each step; geometric mean over seeds."
    return Chart(caption, curves, Axis("step", whole=True), Axis("Gamma", log=True))


def _gates(arm: Arm) -> str:
    """Before and after training, of the first seed."""
    found, steps = arm.finished[0].summary["probes"]["gates"], arm.finished[0].summary["steps"]
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
