"""Time against openness, steps and units, as one picture."""

from typing import TYPE_CHECKING

from glstm.plots import Axis, Curve, draw_curves, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = {"openness": "share of open units", "steps": "steps T", "hidden": "units H"}
NAMES = ("glstm", "nn.LSTM", "ONNX Runtime")


def curves(results: list[dict]) -> "Figure":
    """`results`: the curves of a benchmark's JSON."""
    rows = list(dict.fromkeys((r["kind"], r["batch"]) for r in results))
    figure = new_figure(9.5, 2.7 * len(rows))
    grid = figure.subplots(len(rows), len(LABELS), squeeze=False)
    for line, (kind, batch) in zip(grid, rows):
        own = [r for r in results if (r["kind"], r["batch"]) == (kind, batch)]
        every = [_ms(r, name) for r in own for name in NAMES if name in r["timings"]]
        for axes, (vary, label) in zip(line, LABELS.items()):
            found = [r for r in own if r["vary"] == vary]
            times = [
                Curve(name, [r[vary] for r in timed], [_ms(r, name) for r in timed], marks=True, colour=number)
                for number, name in enumerate(NAMES)
                if (timed := [r for r in found if name in r["timings"]])
            ]
            x = Axis(label, log=True, percent=vary == "openness", ticks=[r[vary] for r in found])
            beside = axes is not line[0]  # one label says what the row's heights are
            draw_curves(axes, times, x, Axis("" if beside else f"{kind}, B = {batch}\nms", log=True, spans=every))
            axes.tick_params(labelsize="small")
    grid[0][0].legend(frameon=False, fontsize="small")
    return figure


def _ms(result: dict, name: str) -> float:
    return 1e3 * result["timings"][name]["seconds"]
