"""The picture of what single units hold while a network reads a sequence."""

from typing import TYPE_CHECKING

from glstm.plots import COLOURS, INK, RULE, new_figure
from glstm.report import svg
from glstm.report.results import Arm

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROBE = "one sequence"
WIDTH, ROW = 420 / 72, 62 / 72  # inches, at 72 units
CAPTION = (
    "The first test digit, pixel by pixel, and what some units of each network hold while they read it: the cell c, "
    "and grey where the unit is open. A unit of the LSTM may change at every step, one of the g-LSTM in its window "
    "only; before and after that, nothing is computed for it."
)


def cells_figure(arms: list[Arm]) -> str:
    """As HTML: the sequence, and below it units of the first seed of each network."""
    found = [(arm, arm.finished[0].summary["probes"][PROBE]) for arm in arms]
    units = [(arm, unit) for arm, one in found for unit in one["units"]]
    figure = new_figure(WIDTH, ROW * (1 + len(units)))
    top, *rows = figure.subplots(1 + len(units), 1, sharex=True, squeeze=False)[:, 0]
    _draw(top, found[0][1]["x"], INK, "x")
    for axes, (arm, unit) in zip(rows, units):
        steps = range(1, len(unit["k"]) + 1)
        is_open = [value > 0 for value in unit["k"]]
        whole = axes.get_xaxis_transform()  # from the bottom to the top
        axes.fill_between(steps, 0, 1, where=is_open, step="mid", color=RULE, linewidth=0, transform=whole)
        _draw(axes, unit["c"], COLOURS[0 if arm.cell == "glstm" else 1], f"{arm.name},\nunit {unit['unit'] + 1}")
    (rows or [top])[-1].set_xlabel("step", color=INK)
    return svg.inline(figure, CAPTION)


def _draw(axes: "Axes", values: list[float], colour: str, label: str) -> None:
    low, high = min(values), max(values)
    axes.plot(range(1, len(values) + 1), values, color=colour, linewidth=1.2)
    axes.set_ylabel(label, color=INK, rotation=0, ha="right", va="center", fontsize="small")
    axes.tick_params(length=0, colors=INK, labelsize="small")
    axes.set_yticks([low, high] if low < high else [low])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.2g}")
    axes.yaxis.tick_right()
    axes.spines[:].set_visible(False)
