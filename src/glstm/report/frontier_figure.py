"""The picture of error against operations, twice: for a wide page, and for a narrow one."""

from dataclasses import replace
from itertools import product

from glstm.plots import Axis, Curve
from glstm.report import svg
from glstm.report.figures import Chart, drawn
from glstm.report.frontier import (
    GATED,
    NAMES,
    NOT_RECURRENT,
    PAPER_ERROR,
    PAPER_EXACT,
    SAVING,
    Point,
    Searched,
    is_narrow,
    points,
    searched,
    tested_sizes,
    unbeaten,
    with_weight_drop,
    without_recurrence,
)
from glstm.report.published import NETWORKS
from glstm.report.results import Result, percent

SIZES = {"wide": (920 / 72, 460 / 72), "narrow": (400 / 72, 460 / 72)}  # inches, at 72 units
OPERATIONS = Axis("operations a sequence, M, counted exactly", log=True)
ERROR = Axis("error", log=True, percent=True)
COLOURS = dict(zip(NAMES.values(), (0, 1, 7, 5, 2, 3, 8), strict=True))
MARKERS = dict(zip((*SAVING.values(), *NOT_RECURRENT.values()), ("v", "^", "P", "X"), strict=True))
OF_THE_PAPER, OF_OTHERS = 4, 6
BY_OTHERS = "published by others"
SEED, SEARCHED, MEAN, STAR = 2.5, 5.5, 8.0, 13.0  # sizes of marks: a star fills less than it spans
CAPTION = (
    "Sequential MNIST: error against operations; numbers are units. Filled: trained with images that move; hollow: "
    "with images as they are. Mean over seeds, with their range and each seed as a dot. Lines join the best of each "
    "kind; of the g-LSTM those with narrow gates, where images move (solid) and where they do not (dashed). Diamond: "
    "the paper's network; hollow squares: what others published, not trained here, operations by our count. Only "
    "g-LSTMs were searched with a limit of operations: of other kinds there may be cheaper ones."
)
OF_DROP = " Stars: with weight drop, which most networks were not offered."
OF_FEED_FORWARD = " Feed-forward: no recurrence, but one hidden layer with weights of its own for each pixel."
OF_SEARCHES = " Crosses of thin lines: not tested yet, validation error of one seed."


def frontier_figure(results: list[Result]) -> str:
    """As HTML; empty if there is nothing to show."""
    chart = frontier_chart({result.name: result for result in results})
    if chart is None:
        return ""
    shown = []
    for name, size in SIZES.items():
        with svg.style(f"frontier {name}"):
            fitting = chart if name == "wide" else _narrow(chart)
            shown.append(f'<div class="{name}-only">{drawn(fitting, chart.caption, *size)}</div>')
    return f'<figure id="frontier-picture">{"".join(shown)}<figcaption>{chart.caption}</figcaption></figure>'


def frontier_chart(results: dict[str, Result]) -> Chart | None:
    dropped, apart = with_weight_drop(results), without_recurrence(results)
    tested, tried = points(results), searched(results)
    if not tested and not tried:
        return None
    curves = []
    for name, with_drop in product(NAMES.values(), (False, True)):
        own = [point for point in (dropped if with_drop else [*tested, *apart]) if point.name == name]
        legend = f"{name}, weight drop" if with_drop else name
        for moved in (True, False):  # the first is named in the legend
            if some := [point for point in own if point.kind.moved is moved]:
                first = moved or len(some) == len(own)
                curves.append(_marks(legend if first else "", some, labelled=_joined(own, some)))
        curves += [_line(some) for some in _lines(own)]
        if own:
            curves.append(_seeds(own))
        if not with_drop and (some := [one for one in tried if one.name == name]):
            curves.append(_searches(name, some))
    name = f"the paper, {percent(PAPER_ERROR)}"
    paper = Curve(
        name,
        [PAPER_EXACT / 1e6],
        [PAPER_ERROR],
        line=False,
        colour=OF_THE_PAPER,
        size=MEAN,
        marker="D",
        texts=["paper"],
    )
    others = Curve(
        BY_OTHERS,
        [one.operations / 1e6 for one in NETWORKS],
        [one.error for one in NETWORKS],
        line=False,
        colour=OF_OTHERS,
        hollow=True,
        size=SEARCHED,
        marker="s",
        texts=[one.name for one in NETWORKS],
    )
    sizes = tested_sizes([point for point in tested if point.name != GATED])
    said = (OF_DROP, dropped), (OF_FEED_FORWARD, apart), (f" Tested: {sizes}.", sizes), (OF_SEARCHES, tried)
    caption = "".join([CAPTION, *(text for text, there in said if there)])
    return Chart(caption, [*curves, others, paper], OPERATIONS, ERROR)


def _lines(own: list[Point]) -> list[list[Point]]:
    """Which points are joined. Of the g-LSTM those with narrow gates, because nothing was tested between them and wide
    ones; its limits of operations were set for each augmentation by itself. Of others, validation chose the
    augmentation of each size."""
    if own and own[0].name == GATED:
        narrow = [one for one in own if is_narrow(one)]
        return [some for moved in (True, False) if (some := [one for one in narrow if one.kind.moved is moved])]
    return [own] if own else []


def _joined(own: list[Point], some: list[Point]) -> list[Point]:
    """Of some points, those that a line joins."""
    best = [point for line in _lines(own) for point in unbeaten(line)]
    return [point for point in some if point in best]


def _marks(name: str, own: list[Point], labelled: list[Point]) -> Curve:
    kind = own[0].kind
    marker, size = ("*", STAR) if kind.dropped else (MARKERS.get(kind.name, "o"), MEAN)
    low, high = ([pick(one.arm.errors) for one in own] for pick in (min, max))
    return Curve(
        name, [one.operations / 1e6 for one in own], [one.error for one in own], low, high, line=False,
        colour=COLOURS[kind.name], size=size, marker=marker, hollow=not kind.moved,
        texts=[_short(one.label) if one in labelled else "" for one in own],
    )  # fmt: skip


def _line(own: list[Point]) -> Curve:
    best = unbeaten(own)
    x, y = [one.operations / 1e6 for one in best], [one.error for one in best]
    dashed = own[0].name == GATED and not own[0].kind.moved
    return Curve("", x, y, colour=COLOURS[own[0].name], size=SEED, dashed=dashed)


def _seeds(own: list[Point]) -> Curve:
    dots = [pair for one in own for pair in zip(one.arm.operations, one.arm.errors)]
    x, y = [cost / 1e6 for cost, _ in dots], [error for _, error in dots]
    return Curve("", x, y, line=False, colour=COLOURS[own[0].name], size=SEED)


def _searches(name: str, some: list[Searched]) -> Curve:
    costs, errors = [one.operations / 1e6 for one in some], [one.error for one in some]
    return Curve(
        f"{name}: validation, one seed", costs, errors, line=False, colour=COLOURS[name], size=SEARCHED, marker="x",
        hollow=True, texts=[_short(one.label) for one in some],
    )  # fmt: skip


def _short(label: str) -> str:
    """The caption says what the numbers are."""
    return label.replace(" units", "").replace(" of the weights", "")


def _narrow(chart: Chart) -> Chart:
    """With fewer ticks, and without the names of what others published: a table has them."""
    curves = [replace(curve, texts=()) if curve.name == BY_OTHERS else curve for curve in chart.curves]
    return replace(chart, curves=curves, x=replace(chart.x, ticks=_powers(chart)))


def _powers(chart: Chart) -> list[float]:
    """Of ten, within the curves: more ticks would not fit."""
    places = [place for curve in chart.curves for place in curve.x]
    return [10.0**power for power in range(-6, 7) if min(places) <= 10.0**power <= max(places)]
