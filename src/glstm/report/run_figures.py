"""The figures of anybody's runs: learning curves, and the gates before and after training."""

import base64
import math
from collections.abc import Callable
from html import escape
from pathlib import Path
from statistics import mean

from glstm.errors import UserError
from glstm.plots import Axis, Curve
from glstm.report import svg
from glstm.report.figures import Chart, drawn
from glstm.report.runs import Comparison, Epoch, Network

PNG = b"\x89PNG\r\n\x1a\n"
WIDE_RANGE = 20.0  # between the smallest and the largest value, from which on an axis is logarithmic

Value = Callable[[Epoch], float | None]


def figures(comparison: Comparison, name: str) -> str:
    """All figures of a task's networks, as HTML; `name` keeps their ids apart from those of other tasks."""
    task, seen_on = comparison.task, "validation" if comparison.has_validation else "test"
    several = any(len(network.runs) > 1 for network in comparison.networks)
    over = ": mean over the seeds that are still in training, and their range" if several else ""
    marks = "Dots are best epochs" + (", one for each seed." if several else ".") if comparison.has_validation else ""
    found = []
    for label, value, percent, dots in (
        (f"{seen_on} {task.metric}", _error, task.as_percent, comparison.has_validation),
        ("training loss", _train_loss, False, False),
    ):
        caption = f"{label[0].upper()}{label[1:]} against epochs{over}." + (f" {marks}" if dots else "")
        if chart := _learning(comparison, caption, value, label, percent, dots):
            with svg.style(f"{name} {label}"):
                html = drawn(chart, f"{task.name}: {caption}")
            found.append(f"<figure>{html}<figcaption>{escape(caption)}</figcaption></figure>")
    found += [_gates(network) for network in comparison.networks if network.first.gates is not None]
    return "".join(found)


def _error(row: Epoch) -> float | None:
    return row.error


def _train_loss(row: Epoch) -> float | None:
    return row.train_loss


def _learning(
    comparison: Comparison, caption: str, value: Value, label: str, percent: bool, dots: bool
) -> Chart | None:
    curves = [curve for number, network in enumerate(comparison.networks) if (curve := _curve(network, value, number))]
    if not curves:
        return None
    if dots:
        curves += [found for number, one in enumerate(comparison.networks) if (found := _best(one, value, number))]
    heights = [height for curve in curves for part in (curve.y, curve.low or (), curve.high or ()) for height in part]
    finite = [height for height in heights if math.isfinite(height)]
    log = bool(finite) and min(finite) > 0 and max(finite) > WIDE_RANGE * min(finite)
    return Chart(caption, curves, Axis("epoch", whole=True), Axis(label, log=log, percent=percent))


def _curve(network: Network, value: Value, colour: int) -> Curve | None:
    """Of each epoch, the mean over the runs that reached it; the range, if there are several."""
    by_epoch: dict[int, list[float]] = {}
    for run in network.runs:
        for row in run.history:
            if (height := value(row)) is not None:
                by_epoch.setdefault(row.epoch, []).append(height)
    if not by_epoch:
        return None
    epochs = sorted(by_epoch)
    columns = [by_epoch[epoch] for epoch in epochs]
    several = len(network.runs) > 1
    low, high = ([pick(column) for column in columns] if several else None for pick in (min, max))
    return Curve(network.name, epochs, [mean(column) for column in columns], low, high, colour=colour)


def _best(network: Network, value: Value, colour: int) -> Curve | None:
    places = [
        (row.epoch, height)
        for run in network.runs
        for row in run.history
        if run.outcome is not None and row.epoch == run.outcome.epoch and (height := value(row)) is not None
    ]
    return Curve("", *zip(*places), line=False, marks=True, colour=colour) if places else None


def _gates(network: Network) -> str:
    """The run's own picture: what is drawn in it only the model could compute."""
    run = network.first
    caption = f"Gates of {network.name}, seed {run.seed}, before and after training: black is closed, white is open."
    source = f"data:image/png;base64,{_embedded(run.path / 'gates.png')}"
    text = escape(caption)
    return f'<figure class="wide"><img src="{source}" alt="{text}"><figcaption>{text}</figcaption></figure>'


def _embedded(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    if not content.startswith(PNG):
        raise UserError(f"{path} is not a PNG picture, as glstm train draws it: remove it, or resume the run")
    return base64.b64encode(content).decode()
