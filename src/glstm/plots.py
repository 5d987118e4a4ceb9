"""All pictures: curves with their axes, and when each unit is open. matplotlib is imported only when one is drawn."""

import io
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from glstm.extras import needed_by
from glstm.storage import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

INK, RULE = "#59636e", "#d8dee4"  # colours of text, and of the grid behind the curves
COLOURS = ("#2563a8", "#555b63", "#c2452d", "#2f8f5b", "#8250b8", "#b7791f", "#0e7c86", "#a83279", "#7a5230")
BAND = 0.18  # opacity of the range over seeds

FEW_TICKS, MANY_TICKS = 4, 8  # on an axis
MOST_TICKS = 10  # at 1, 2, 5: thinned out, these would be hard to read
BAND_COLUMNS = 200  # no picture here is wide enough to show more
SHORT_CURVE = 3  # points; with fewer a line alone does not show them
# Where a text may stand, in points from the middle of its mark, and which of its sides is there: the first is the best.
TEXT_PLACES: tuple[tuple[float, float, Literal["left", "center", "right"]], ...] = (
    (6, 5, "left"), (-6, 5, "right"), (6, -13, "left"), (-6, -13, "right"), (0, 9, "center"), (0, -18, "center"),
    (14, -4, "left"), (-14, -4, "right"), (8, 16, "left"), (8, -25, "left"), (-8, 16, "right"), (-8, -25, "right"),
)  # fmt: skip
TEXT_HEIGHT = 0.065  # height of a level's text, as a share of the axes


@dataclass(frozen=True)
class Curve:
    """y against x, as a line, as marks, or both; `low` and `high`, where given, are the range over seeds.

    Around a line the range is a band, around marks alone a bar. `texts` are written beside the marks, where they cover
    the least.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    line: bool = True
    dashed: bool = False
    marks: bool = False
    colour: int | None = None  # number of its colour; None: the number of the curve
    hollow: bool = False
    size: float | None = None  # of a mark
    texts: Sequence[str] = ()
    marker: str = "o"


@dataclass(frozen=True)
class Level:
    """A value to compare curves with: a thin line across, in the colour of the curve of this number."""

    value: float
    text: str
    curve: int


@dataclass(frozen=True)
class Axis:
    """`zero`: where 0 is drawn on a log axis. `ticks`: exactly these. `spans`: further values that must be visible.

    `names`: texts at 1, 2, 3 and so on, instead of numbers.
    """

    label: str
    log: bool = False
    percent: bool = False
    whole: bool = False
    zero: float | None = None
    ticks: Sequence[float] | None = None
    spans: Sequence[float] = ()
    names: Sequence[str] = ()

    def form(self, value: float) -> str:
        if value == self.zero:
            return "0"
        if self.names:
            return self.names[int(value) - 1]
        if self.percent:
            return f"{100 * value:g} %"
        return f"{value:.0e}".replace("e-0", "e-") if value and not 0.001 <= abs(value) < 1e5 else f"{value:g}"

    def limits(self, values: Sequence[float]) -> tuple[float, float]:
        """The smallest and the largest value; a single value gets some space around it."""
        shown = [value for value in (*values, *self.spans) if math.isfinite(value) and (value > 0 or not self.log)]
        low, high = (min(shown), max(shown)) if shown else (0.1, 1.0)
        if low == high:
            return (low / 2, high * 2) if self.log else (low - 0.5, high + 0.5)
        return low, high

    def padded(self, low: float, high: float, share: float) -> tuple[float, float]:
        if self.log:
            factor = (high / low) ** share
            return low / factor, high * factor
        return low - share * (high - low), high + share * (high - low)

    def ticks_within(self, low: float, high: float) -> list[float]:
        """Round numbers, enough to read the axis."""
        from matplotlib.ticker import MaxNLocator

        if self.ticks is not None:
            return list(self.ticks)
        if self.names:
            return [*range(1, len(self.names) + 1)]
        found = _log_ticks(low, high) if self.log else None
        if found is None:
            steps = MaxNLocator(MANY_TICKS - 2, integer=self.whole, steps=[1, 2, 2.5, 4, 5, 10]).tick_values(low, high)
            found = [float(f"{tick:.6g}") for tick in steps if low <= tick <= high and (tick > 0 or not self.log)]
        if self.zero is not None:
            found = [self.zero, *(tick for tick in found if tick > 2 * self.zero)]
        return found


def _log_ticks(low: float, high: float) -> list[float] | None:
    """Powers of ten, as many as can be read, and if they are few, more between them. None: even those are too few."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps, most in (
        ((1,), math.inf),
        ((1, 2, 5), MOST_TICKS),
        ((1, 3), math.inf),
        ((1, 1.5, 2, 3, 5, 7), math.inf),
    ):
        found = [step * 10.0**decade for decade in decades for step in steps]
        within = [float(f"{tick:.6g}") for tick in found if low <= tick <= high]
        if FEW_TICKS <= len(within) <= most:
            return within if most == MOST_TICKS else within[:: math.ceil(len(within) / MANY_TICKS)]
    return None


def style(**settings: Any) -> AbstractContextManager[None]:
    """matplotlib's own defaults and these: the same picture whatever the user's settings are."""
    import matplotlib.style

    return matplotlib.style.context(["default", {name.replace("__", "."): value for name, value in settings.items()}])


def new_figure(width: float, height: float) -> "Figure":
    with needed_by("drawing a picture"):
        from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", dpi=150)


def save(figure: "Figure", path: Path | str) -> None:
    path = Path(path)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."))
    write_atomically(path, buffer.getvalue())


def learning_curve(curve: Curve, *, metric: str, percent: bool = False) -> "Figure":
    """A metric against epochs, on a log scale: errors fall by orders of magnitude."""
    figure = new_figure(6, 3.6)
    axes = figure.add_subplot()
    draw_curves(axes, [curve], Axis("epoch", whole=True), Axis(metric, log=True, percent=percent))
    axes.legend(frameon=False)
    return figure


def draw_curves(axes: "Axes", curves: Sequence[Curve], x: Axis, y: Axis, levels: Sequence[Level] = ()) -> None:
    """Without a legend: a page has its own."""
    heights = [value for curve in curves for part in (curve.y, curve.low, curve.high) for value in part or ()]
    across = x.limits([value for curve in curves for value in curve.x])
    up = y.limits([*heights, *(level.value for level in levels)])
    _draw_axis(axes, "x", x, across)
    _draw_axis(axes, "y", y, up)
    axes.grid(color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, colors=INK, left=False, bottom=False)
    for number, curve in enumerate(curves):
        _draw_curve(axes, curve, _colour(number if curve.colour is None else curve.colour), y, up)
    _draw_levels(axes, levels, y)
    _write_texts(axes, curves)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _draw_axis(axes: "Axes", which: str, axis: Axis, limits: tuple[float, float]) -> None:
    from matplotlib.ticker import NullLocator

    # The scale comes first, because setting it resets the ticks.
    axes.set(**{f"{which}scale": "log" if axis.log else "linear", f"{which}lim": axis.padded(*limits, 0.03)})
    drawn = axes.xaxis if which == "x" else axes.yaxis
    ticks = axis.ticks_within(*axis.padded(*limits, 0.01))
    drawn.set_ticks(ticks, [axis.form(tick) for tick in ticks])
    drawn.set_minor_locator(NullLocator())
    # Turned about its anchor, a label stays in the middle whatever font a browser writes it in.
    drawn.set_label_text(axis.label, color=INK, rotation_mode="anchor", multialignment="center")


def _draw_curve(axes: "Axes", curve: Curve, colour: str, y: Axis, up: tuple[float, float]) -> None:
    def drawable(values: Sequence[float]) -> np.ndarray:
        """Gaps where a value is not finite; what a log axis cannot show is drawn at its lower end."""
        found = np.where(np.isfinite(values), values, np.nan)
        return np.maximum(found, up[0]) if y.log else found

    marks = curve.marks or not curve.line or len(curve.x) < SHORT_CURVE
    axes.plot(
        curve.x,
        drawable(curve.y),
        color=colour,
        label=curve.name,
        linewidth=1.6 if curve.line else 0,
        linestyle=(0, (4, 2.5)) if curve.dashed else "-",
        marker=curve.marker if marks else "",
        markersize=curve.size or (6.5 if not curve.line else 4.5),
        markerfacecolor="none" if curve.hollow else colour,
        markeredgewidth=1.1 if curve.hollow else 0,
        clip_on=False,  # all of it lies within the limits
    )
    if curve.low and curve.high and not curve.line:
        axes.vlines(curve.x, drawable(curve.low), drawable(curve.high), color=colour, linewidth=1.4, clip_on=False)
    elif curve.low and curve.high:
        x, low, high = _in_columns(curve.x, drawable(curve.low), drawable(curve.high))
        axes.fill_between(x, low, high, color=colour, alpha=BAND, linewidth=0, clip_on=False)


def _write_texts(axes: "Axes", curves: Sequence[Curve]) -> None:
    """Each at the first of its places where it covers neither a mark, nor a range, nor another text; else where it
    covers the least. Those of the first curves have their choice first."""
    written = []
    for number, curve in enumerate(curves):
        colour = _colour(number if curve.colour is None else curve.colour)
        for x, y, text in zip(curve.x, curve.y, curve.texts):
            if text:
                written.append(_beside(axes, text, x, y, colour))
    if not written:
        return
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # it decides how large the axes are
    taken = [box for curve in curves if not curve.line for box in _boxes(axes, curve)]
    for text in written:
        covered = []
        for place in range(len(TEXT_PLACES)):
            _move(text, place)
            box = text.get_window_extent()
            covered.append(sum(_common(box, other) for other in taken))
            if not covered[-1]:
                break
        _move(text, covered.index(min(covered)))
        taken.append(text.get_window_extent())


def _beside(axes: "Axes", text: str, x: float, y: float, colour: str) -> "Annotation":
    return axes.annotate(
        text, (x, y), xytext=TEXT_PLACES[0][:2], textcoords="offset points", color=colour, fontsize="small",
        clip_on=False,
    )  # fmt: skip


def _move(text: "Annotation", place: int) -> None:
    x, y, side = TEXT_PLACES[place]
    text.set_position((x, y))
    text.set_horizontalalignment(side)


def _boxes(axes: "Axes", curve: Curve) -> "list[Bbox]":
    """What its marks and ranges cover, in pixels."""
    from matplotlib.transforms import Bbox

    half = (curve.size or 6.5) / 2 * axes.figure.dpi / 72
    found = []
    for x, low, high in zip(curve.x, curve.low or curve.y, curve.high or curve.y):
        (left, bottom), (right, top) = axes.transData.transform([(x, low), (x, high)])
        found.append(Bbox([(left - half, bottom - half), (right + half, top + half)]))
    return found


def _common(one: "Bbox", other: "Bbox") -> float:
    """The area of both."""
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return max(0.0, width) * max(0.0, height)


def _in_columns(x: Sequence[float], low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same range at fewer places, if there are many; its extremes stay."""
    size = math.ceil(len(x) / BAND_COLUMNS)
    starts = np.arange(0, len(x), size)
    places = np.asarray(x, float)[starts]
    places[-1] = x[-1]
    return places, np.fmin.reduceat(low, starts), np.fmax.reduceat(high, starts)


def _draw_levels(axes: "Axes", levels: Sequence[Level], y: Axis) -> None:
    """Their texts are to the right of the axes: inside, curves would cover them."""
    low, high = axes.get_ylim()
    shares = [
        math.log(level.value / low) / math.log(high / low) if y.log else (level.value - low) / (high - low)
        for level in levels
    ]
    for level, height in zip(levels, _apart(shares)):
        colour = _colour(level.curve)
        axes.axhline(level.value, color=colour, linewidth=0.9, linestyle=(0, (4, 3)), clip_on=False)
        axes.text(1.01, height, level.text, transform=axes.transAxes, va="center", color=colour, fontsize="small")


def _apart(heights: Sequence[float]) -> list[float]:
    """The same heights, as shares of the axes, moved apart so that no text covers another."""
    order = sorted(range(len(heights)), key=lambda number: heights[number])
    moved = list(heights)
    for below, number in pairwise(order):
        moved[number] = max(moved[number], moved[below] + TEXT_HEIGHT)
    top = 1.0
    for number in reversed(order):
        moved[number] = min(moved[number], top)
        top = moved[number] - TEXT_HEIGHT
    return moved


def confusion(matrix: Sequence[Sequence[int]], classes: Sequence[str]) -> "Figure":
    """How often each true class (rows) was taken for each class (columns); shades are shares of a row."""
    counts = np.asarray(matrix)
    side = min(12.0, max(3.4, 1.6 + 0.45 * len(classes)))
    figure = new_figure(side + 0.6, side)
    axes = figure.add_subplot()
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for row, column in np.argwhere(counts > 0) if len(classes) <= 30 else ():
        colour = "white" if shares[row, column] > 0.5 else INK
        axes.text(column, row, str(counts[row, column]), ha="center", va="center", color=colour, fontsize=8)
    axes.set_xticks(range(len(classes)), classes, rotation=90 if max(map(len, classes)) > 3 else 0)
    axes.set_yticks(range(len(classes)), classes)
    axes.tick_params(length=0, colors=INK)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("answer", color=INK)
    axes.set_ylabel("true class", color=INK)
    return figure


def gates(before: np.ndarray, after: np.ndarray, times: tuple[float, float] | None = None) -> "Figure":
    """Openness of every unit over time, before and after training: tables (T, H). `times`: the first and the last, if
    they are not step numbers."""
    figure = new_figure(8, 3.4)
    left, right = figure.subplots(1, 2, sharey=True)
    draw_gates(left, before, "before training", times=times)
    image = draw_gates(right, after, "after training", times=times)
    right.set_ylabel("")
    figure.colorbar(image, ax=[left, right], label="openness k", shrink=0.9)
    return figure


def draw_gates(
    axes: "Axes", table: np.ndarray, title: str, steps: int | None = None, times: tuple[float, float] | None = None
):
    """One row a unit, sorted by its moment: black is closed, white is open, as in the paper.

    `steps`: the number of steps, if the table has fewer rows, which are then evenly spaced. `times`: the first and the
    last, if they are not step numbers.
    """
    first, last = times or (1, steps or len(table))
    weights = table / np.maximum(table.sum(0, keepdims=True), 1e-30)
    moment = (weights * np.arange(len(table))[:, None]).sum(0)
    image = axes.imshow(
        table.T[np.argsort(moment, kind="stable")],
        aspect="auto",
        origin="lower",
        cmap="gray",
        vmin=0,
        vmax=1,
        interpolation="none",
        extent=(first, last, 0, table.shape[1]),
    )
    axes.set_title(title, fontsize="medium", color=INK)
    axes.set_xlabel("time" if times else "time step", color=INK)
    axes.set_ylabel("unit, by its moment", color=INK, rotation_mode="anchor")
    axes.tick_params(length=0, colors=INK, left=False, bottom=False)
    axes.spines[:].set_visible(False)
    return image
