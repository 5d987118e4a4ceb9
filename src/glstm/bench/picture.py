"""Time against openness, steps and units, as one picture."""

from typing import TYPE_CHECKING

from glstm.analysis.plots import BLUE, GREY, RED, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES = {"openness": "share of open units", "steps": "steps T", "hidden": "units H"}
COLOURS = {"glstm": BLUE, "nn.LSTM": GREY, "ONNX Runtime": RED}


def curves(results: list[dict]) -> "Figure":
    """`results`: the curves of a benchmark's JSON."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    rows = list(dict.fromkeys((r["kind"], r["batch"]) for r in results))
    figure = new_figure(9.5, 2.7 * len(rows))
    grid = figure.subplots(len(rows), len(AXES), squeeze=False, sharey="row")
    for line, (kind, batch) in zip(grid, rows):
        for axes, (vary, label) in zip(line, AXES.items()):
            found = [r for r in results if r["vary"] == vary and (r["kind"], r["batch"]) == (kind, batch)]
            for name, colour in COLOURS.items():
                points = [(r[vary], 1e3 * r["timings"][name]["seconds"]) for r in found if name in r["timings"]]
                if points:
                    axes.plot(*zip(*points), color=colour, label=name, marker="o", markersize=3.5, linewidth=1.6)
            axes.set_xscale("log")
            axes.set_yscale("log")
            values = [r[vary] for r in found]
            axes.set_xticks(values, [f"{100 * v:g} %" if vary == "openness" else f"{v:g}" for v in values], fontsize=8)
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.set_xlabel(label)
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        line[0].set_ylabel(f"{kind}, B = {batch}\nms", fontsize=10)
    grid[0][0].legend(frameon=False, fontsize=9)
    return figure
