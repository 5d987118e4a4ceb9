"""Pictures: how training went, and when each unit is open. matplotlib is imported only when one is drawn."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from glstm.extras import needed_by
from glstm.storage import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, GREY, RED = "#2563a8", "#555b63", "#c2452d"
STYLES = {"g-LSTM": BLUE, "LSTM": GREY, "PLSTM": RED}

Curve = tuple[list[float], list[float]]


def new_figure(width: float, height: float) -> "Figure":
    with needed_by("drawing a picture"):
        from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", dpi=150)


def save(figure: "Figure", path: Path) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."))
    write_atomically(path, buffer.getvalue())


def learning_curve(curves: dict[str, Curve], *, metric: str, percent: bool = False, x: str = "epoch") -> "Figure":
    """Test metric against epochs (or whatever `x` says), on a log scale: errors fall by orders of magnitude."""
    figure = new_figure(6, 3.6)
    draw_curves(figure.add_subplot(), curves, metric=metric, percent=percent, x=x)
    return figure


def draw_curves(axes: "Axes", curves: dict[str, Curve], *, metric: str, percent: bool, x: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

    for name, (at, values) in curves.items():
        axes.plot(
            at,
            values,
            color=STYLES.get(name, BLUE),
            label=name,
            linewidth=1.6,
            marker="o",
            markersize=4 if len(at) < 3 else 0,
        )
    axes.set_yscale("log")
    if percent:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    if x == "epoch":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(x)
    axes.set_ylabel(f"test {metric}")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)


def gates(before: np.ndarray, after: np.ndarray) -> "Figure":
    """Openness of every unit over time, before and after training: tables (T, H)."""
    figure = new_figure(8, 3.4)
    left, right = figure.subplots(1, 2, sharey=True)
    draw_gates(left, before, "before training")
    image = draw_gates(right, after, "after training")
    right.set_ylabel("")
    figure.colorbar(image, ax=[left, right], label="openness k", shrink=0.9)
    return figure


def draw_gates(axes: "Axes", table: np.ndarray, title: str):
    """One row a unit, sorted by its moment: black is closed, white is open, as in the paper."""
    weights = table / np.maximum(table.sum(0, keepdims=True), 1e-30)
    moment = (weights * np.arange(len(table))[:, None]).sum(0)
    image = axes.imshow(
        table.T[np.argsort(moment, kind="stable")],
        aspect="auto",
        origin="lower",
        cmap="gray",
        vmin=0,
        vmax=1,
        interpolation="nearest",
        extent=(1, len(table), 0, table.shape[1]),
    )
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("time step")
    axes.set_ylabel("unit, by its moment")
    return image
