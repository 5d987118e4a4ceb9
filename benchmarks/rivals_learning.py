"""One short training of every cell: error by epoch, measured updates, and operations at these updates.

    glstm train smnist --cell NAME [--preset smnist-NAME] --epochs 10 --out runs/NAME      for each
    python benchmarks/rivals_learning.py runs/*

Writes rivals-learning.json beside this file and docs/rivals.png, and prints the table of docs/rivals.md.
"""

import csv
import json
import sys
from pathlib import Path
from typing import Any

from glstm.analysis import count_ops, operations_of
from glstm.bench.markdown import learning_table
from glstm.cells import CELLS
from glstm.cells.recurrent import Recurrent
from glstm.plots import Axis, Curve, draw_curves, new_figure, save
from glstm.storage import write_json

HERE = Path(__file__).resolve().parent
STEPS = 784


def read(folder: Path) -> dict[str, Any]:
    """What a run folder says of its training."""
    config = json.loads((folder / "config.json").read_text())
    recipe, settings = config["recipe"], config["settings"]
    with (folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    shares = [float(row["open_share"]) if row["open_share"] else 1.0 for row in rows]
    return {
        "cell": recipe["cell"],
        "units": recipe["units"],
        "layers": recipe["layers"],
        "settings": {name: settings[name] for name in ("optimizer", "lr", "batch", "budget", "seed")},
        "errors": [float(row["test_error"]) for row in rows],
        "updates": shares,
        "operations": operations(recipe, shares[-1]),
        "seconds": [float(row["seconds"]) for row in rows],
    }


def operations(recipe: dict[str, Any], share: float) -> float:
    """Of one sequence, at the measured share of updates."""
    make: Any = CELLS[recipe["cell"]]
    layer = make(1, recipe["units"], recipe["layers"], **recipe["options"])
    if isinstance(layer, Recurrent):
        return layer.count_ops(STEPS, share)
    if recipe["cell"] == "gru":
        return operations_of(layer, STEPS)
    gated = None if recipe["cell"] in ("lstm", "chrono-lstm") else share
    return count_ops(STEPS, recipe["units"], 1, gated)


def draw(runs: list[dict[str, Any]]) -> Any:
    """Five panels of three cells each: fifteen lines in one cannot be told apart."""
    figure = new_figure(10.5, 3.6)
    panels = figure.subplots(1, 5, sharey=True)
    for number, axes in enumerate(panels):
        own = runs[3 * number : 3 * number + 3]
        curves = [
            Curve(run["cell"], range(1, 1 + len(run["errors"])), [100 * error for error in run["errors"]], colour=place)
            for place, run in enumerate(own)
        ]
        label = "" if number else "test error, %"
        draw_curves(axes, curves, Axis("epoch", ticks=[2, 4, 6, 8, 10]), Axis(label, log=True, spans=[1, 100]))
        axes.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0)
    return figure


def main() -> None:
    order = list(CELLS)
    runs = sorted((read(Path(folder)) for folder in sys.argv[1:]), key=lambda run: order.index(run["cell"]))
    write_json(HERE / "rivals-learning.json", {"task": "smnist", "device": "NVIDIA H200", "results": runs})
    save(draw(sorted(runs, key=lambda run: run["errors"][-1])), HERE.parent / "docs" / "rivals.png")
    print("\n".join(learning_table(runs)))


if __name__ == "__main__":
    main()
