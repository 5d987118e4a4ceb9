"""Which figures an experiment gets, from what its networks left."""

import math
from statistics import mean

from glstm.report.drawing import Axis, Curve, chart, gates
from glstm.report.frontier import cheapest, points
from glstm.report.results import Arm, Result

ZERO = 3e-5  # where a threshold of 0 stands on a log axis
WORST = 0.04  # error that the frontier is drawn up to
PAPER_POINT = (7.6, 0.023)  # M operations and error, at 8.2 % open


def of(result: Result) -> list[tuple[str, str]]:
    """(caption, HTML) of each figure."""
    if result.is_frontier:
        caption = (
            "Error against operations: each point a recipe at the threshold of training, the line the best at any."
        )
        return [(caption, _frontier(result))]
    found = [("Test " + result.metric + " against epochs: mean over seeds, and their range.", _learning(result))]
    if any("thresholds" in run.summary["probes"] for arm in result.arms for run in arm.runs):
        found += _thresholds(result)
    if any("gradient flow" in run.summary["probes"] for arm in result.arms for run in arm.runs):
        found.append(("Gamma, the mean absolute gradient that reaches each step.", _flow(result)))
    found += [picture for arm in result.arms for picture in _gates(arm)]
    return found


def _frontier(result: Result) -> str:
    """Every arm a point, in groups by what its recipe says about images that move; the best of all; and the paper."""
    every = points(result)
    groups: dict[str, list[tuple[float, float]]] = {"images that move": [], "images as they are": []}
    for point in every:
        if point.threshold == point.arm.at_threshold:
            moving = point.arm.runs[0].summary["recipe"].get("shift", 0)
            name = "images that move" if moving else "images as they are"
            groups[name].append((point.operations / 1e6, point.error))
    groups["the paper, by its own count"] = [PAPER_POINT]
    curves = [Curve(name, *zip(*found), marks=True) for name, found in groups.items() if found]
    if best := [point for point in cheapest(every) if point.error <= WORST]:
        costs, errors = [one.operations / 1e6 for one in best], [one.error for one in best]
        curves.append(Curve("cheapest at any threshold", costs, errors))
    x, y = Axis("operations a sequence, M", log=True), Axis("test error", log=True, percent=True)
    return chart(curves, x, y, "Error against operations")


def _learning(result: Result) -> str:
    curves = []
    for arm in result.arms:
        columns = [*zip(*(run.curve["test_error"][: arm.epochs] for run in arm.runs))]
        epochs = arm.runs[0].curve["epoch"][: arm.epochs]
        low, high = ([pick(column) for column in columns] for pick in (min, max))
        curves.append(Curve(arm.name, epochs, [mean(column) for column in columns], low, high))
    y = Axis(f"test {result.metric}", log=True, percent=result.as_percent)
    return chart(curves, Axis("epoch"), y, f"{result.title}: test {result.metric} against epochs")


def _thresholds(result: Result) -> list[tuple[str, str]]:
    """Error and operations against the threshold; and one against the other."""
    error, cost, both = [], [], []
    for arm in result.arms:
        tested = [run.summary["probes"].get("thresholds") for run in arm.runs]
        if not all(tested):
            continue
        rows = [[row for row in column] for column in zip(*tested)]
        levels = [(column[0]["threshold"], column) for column in rows]
        errors = [mean(row["error"] for row in column) for _, column in levels]
        operations = [mean(row["cached_ops"] for row in column) / 1e6 for _, column in levels]
        shown = [max(level, ZERO) for level, _ in levels]
        error.append(Curve(arm.name, shown, errors))
        cost.append(Curve(arm.name, shown, operations))
        both.append(Curve(arm.name, operations, errors, marks=True))
    threshold, percent = Axis("threshold v_T", log=True), Axis("test error", log=True, percent=True)
    mops = Axis("operations a sequence, M", log=True)
    return [
        (
            "Error against the threshold (0 stands at the left edge).",
            chart(error, threshold, percent, "Error against threshold"),
        ),
        (
            "Operations against the threshold, frozen work kept.",
            chart(cost, threshold, mops, "Operations against threshold"),
        ),
        ("Error against operations.", chart(both, mops, percent, "Error against operations")),
    ]


def _flow(result: Result) -> str:
    curves = []
    for arm in result.arms:
        flows = [run.summary["probes"]["gradient flow"] for run in arm.runs]
        values = [math.exp(mean(math.log(max(value, 1e-30)) for value in column)) for column in zip(*flows)]
        curves.append(Curve(arm.name, range(1, len(values) + 1), values))
    return chart(curves, Axis("step"), Axis("Gamma", log=True), "Gradient that reaches each step")


def _gates(arm: Arm) -> list[tuple[str, str]]:
    """Before and after training, of the first seed."""
    found = arm.runs[0].summary["probes"].get("gates")
    if not found:
        return []
    steps = arm.runs[0].summary["steps"]
    before, after = (gates(found[when], steps, f"{arm.name}: gates {when} training") for when in ("before", "after"))
    return [
        (
            f"{arm.name}: gates before and after training, units by their moment.",
            f'<div class="pair">{before}{after}</div>',
        )
    ]
