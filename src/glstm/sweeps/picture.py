"""A picture of a sweep: the validation error against each value that differs."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

from glstm.extras import needed_by

COLUMNS = 3


def draw(path: Path, trials: Sequence[dict[str, Any]], metric: str, as_percent: bool) -> None:
    """`trials` as in the sweep's JSON."""
    with needed_by("the picture of a sweep"):
        from glstm.plots import COLOURS, new_figure, save, style
    known = [trial for trial in trials if trial["validation_error"] is not None]
    names = [name for name in trials[0]["values"] if len({str(trial["values"][name]) for trial in trials}) > 1]
    if not known or not names:
        return
    columns = min(COLUMNS, len(names))
    rows = ceil(len(names) / columns)
    scale = 100 if as_percent else 1
    best = min(known, key=lambda trial: trial["validation_error"])
    with style():
        figure = new_figure(4 * columns, 3.2 * rows)
        for number, name in enumerate(names, 1):
            axes = figure.add_subplot(rows, columns, number)
            labels, places, numeric = _places([trial["values"][name] for trial in known])
            errors = [scale * trial["validation_error"] for trial in known]
            axes.scatter(places, errors, s=22, color=COLOURS[0], alpha=0.7)
            axes.scatter(
                [places[known.index(best)]], [scale * best["validation_error"]], s=60, color=COLOURS[2], zorder=3
            )
            if not numeric:
                axes.set_xticks(range(len(labels)), labels)
            elif max(places) > 30 * min(places) > 0:
                axes.set_xscale("log")
            axes.set_xlabel(name)
            if number % columns == 1 or columns == 1:
                axes.set_ylabel(f"validation {metric}" + (", %" if as_percent else ""))
            if max(errors) > 20 * min(errors) > 0:
                axes.set_yscale("log")
        save(figure, path)


def _places(values: list[Any]) -> tuple[list[str], list[float], bool]:
    """Where values are drawn: numbers at their own place, others side by side."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return [], [float(value) for value in values], True
    labels = sorted({str(value) for value in values})
    return labels, [float(labels.index(str(value))) for value in values], False
