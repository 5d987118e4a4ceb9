"""The picture of error against operations, twice: for a wide page, and for a narrow one."""

from dataclasses import replace
from typing import Any

from glstm.plots import Axis, Curve
from glstm.report import svg
from glstm.report.figures import Chart, drawn
from glstm.report.frontier import KINDS, PAPER_ERROR, PAPER_EXACT, SAVING, Point, points, searched, unbeaten
from glstm.report.published import NETWORKS
from glstm.report.results import Result, percent

SIZES = {"wide": (920 / 72, 400 / 72), "narrow": (400 / 72, 420 / 72)}  # inches, at 72 units
OPERATIONS = Axis("operations a sequence, M, counted exactly", log=True)
ERROR = Axis("error", log=True, percent=True)
# Networks that save operations in other ways have the LSTM's colours, and marks of their own.
COLOURS = dict(zip(KINDS, (0, 3, 1, 5, 2, 7, *(1, 5) * len(SAVING)), strict=True))
MARKERS = dict(zip(SAVING.values(), ("v", "^", "P"), strict=True))
OF_THE_PAPER, OF_OTHERS = 4, 6
BY_OTHERS = "published by others"
SEED, SEARCHED, MEAN = 2.5, 4.5, 8.0  # sizes of marks
CAPTION = (
    "Sequential MNIST: error against operations. Filled: tested, mean over seeds, with their range and each seed as a "
    "dot; lines join the best of each kind. Hollow circles: not tested yet, validation error of one seed. Diamond: the "
    "paper's network, and hollow squares: networks that others published and that were not trained here, their "
    "operations by our count."
)
OF_MARKS = " Triangles and crosses: LSTMs that save operations in other ways."


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
    tested, tried = points(results), searched(results)
    if not tested and not tried:
        return None
    curves = []
    for kind in KINDS:
        own, colour = [point for point in tested if point.kind == kind], COLOURS[kind]
        marker = MARKERS.get(kind.name, "o")
        if own:
            costs, errors = [one.operations / 1e6 for one in own], [one.error for one in own]
            low, high = ([pick(one.arm.errors) for one in own] for pick in (min, max))
            look: dict[str, Any] = {"line": False, "colour": colour, "size": MEAN, "marker": marker}
            curves.append(Curve(str(kind), costs, errors, low, high, texts=_texts(own), **look))
            best = unbeaten(own)
            x, y = [one.operations / 1e6 for one in best], [one.error for one in best]
            curves.append(Curve("", x, y, colour=colour, size=SEED))
            dots = [pair for one in own for pair in zip(one.arm.operations, one.arm.errors)]
            x, y = [cost / 1e6 for cost, _ in dots], [error for _, error in dots]
            curves.append(Curve("", x, y, line=False, colour=colour, size=SEED))
        if some := [one for one in tried if one.kind == kind]:
            costs, errors, texts = (
                [*column] for column in zip(*((one.operations / 1e6, one.error, one.label) for one in some))
            )
            name = f"{kind}: validation, one seed"
            look = {"line": False, "colour": colour, "size": SEARCHED, "marker": marker, "hollow": True}
            curves.append(Curve(name, costs, errors, texts=texts, **look))
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
        texts_at="below",
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
        texts_at="left",
    )
    marked = any(curve.marker in MARKERS.values() for curve in curves)
    return Chart(CAPTION + OF_MARKS if marked else CAPTION, [*curves, others, paper], OPERATIONS, ERROR)


def _narrow(chart: Chart) -> Chart:
    """With fewer ticks, and without the names of what others published: a table has them."""
    curves = [replace(curve, texts=()) if curve.name == BY_OTHERS else curve for curve in chart.curves]
    return replace(chart, curves=curves, x=replace(chart.x, ticks=_powers(chart)))


def _powers(chart: Chart) -> list[float]:
    """Of ten, within the curves: more ticks would not fit."""
    places = [place for curve in chart.curves for place in curve.x]
    return [10.0**power for power in range(-6, 7) if min(places) <= 10.0**power <= max(places)]


def _texts(own: list[Point]) -> list[str]:
    """Of those that none of the same colour beats: more would cover each other."""
    best = unbeaten(own)
    return [point.label if point in best else "" for point in own]
