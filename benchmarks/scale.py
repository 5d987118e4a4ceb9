"""How time and memory of a training step grow: with steps, units, samples, networks, and processes.

    python benchmarks/scale.py                  # measures, writes benchmarks/scale.json and draws docs/scale.png
    python benchmarks/scale.py --again networks # measures this axis once more; of each point the less is kept
    python benchmarks/scale.py --draw           # draws it again from the JSON

Every point is measured in a process of its own, with one thread. Time is that of the processor, not of the clock, so
that other work on the machine counts little, and the least of several measurements. Memory is the highest that was in
use, less what was in use before the first step. An exponent is the slope of the last points in logarithms, where what a
call costs in any case is small.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import nn

from glstm import GLSTM, SequenceModel
from glstm.bench.machine import describe
from glstm.data import Adding
from glstm.plots import COLOURS, new_figure, save, style
from glstm.storage import write_json
from glstm.training import Population, Settings

RESULT, PICTURE = Path(__file__).parent / "scale.json", Path(__file__).parent.parent / "docs" / "scale.png"
SECONDS, MOST, LEAST = 1.0, 20, 2  # of measuring a point, and calls of it
LAST = 3  # points that decide an exponent
NARROW = 0.0191  # sigma as a share of the steps: with a threshold of 0.01, a unit is open at 8.2 % of them
KINDS = {"open": "fully open", "narrow": "8.2 % open", "segments": "open, segments of 1,000", "lstm": "nn.LSTM"}
USUAL = {"steps": 200, "units": 64, "batch": 16, "networks": 1}
AXES: dict[str, dict[str, Any]] = {
    "steps": {"values": [1000, 10_000, 100_000, 1_000_000], "units": 32, "batch": 1, "kinds": list(KINDS)},
    "units": {"values": [32, 64, 128, 256, 512, 1024], "kinds": ["open", "narrow", "lstm"]},
    "batch": {"values": [1, 4, 16, 64, 256, 1024], "kinds": ["open", "narrow", "lstm"]},
    "networks": {"values": [1, 2, 4, 8, 16, 32], "units": 32, "kinds": ["open", "narrow"]},
}
LONGEST = {"lstm": 100_000}  # steps; nn.LSTM takes minutes for more


def layer_of(kind: str, steps: int, units: int) -> nn.Module:
    if kind == "lstm":
        return nn.LSTM(1, units)
    wide = kind != "narrow"
    layer = GLSTM(
        1, units, mu=(1, steps), sigma=10.0 * steps if wide else NARROW * steps, threshold=0 if wide else 0.01
    )
    layer.segment = 1000 if kind == "segments" else None
    return layer


def step_of(point: dict[str, Any]) -> Callable[[], None]:
    """One training step: forward, the loss of the last state, backward, and the optimiser's where there are several."""
    torch.manual_seed(0)
    kind, steps, units, batch = (point[name] for name in ("kind", "steps", "units", "batch"))
    if point["axis"] == "networks":
        task = Adding(steps=steps, train_size=batch, test_size=1)
        several = [Settings(seed=seed, batch=batch) for seed in range(point["networks"])]

        def network() -> nn.Module:
            made = layer_of(kind, steps, units)
            return SequenceModel(GLSTM(2, units, mu=(1, steps), sigma=made.gate.sigma, threshold=made.threshold),  # pyright: ignore
                                 nn.Linear(units, 1))  # fmt: skip

        population = Population(task, network, several)

        def train() -> None:
            population.start(1, 0)
            population.step()

        return train
    layer, x = layer_of(kind, steps, units), torch.randn(steps, batch, 1)

    def once() -> None:
        layer.zero_grad()
        h_n = layer(x)[1][0] if kind == "lstm" else layer(x, sequence=False)[1][0]
        h_n.square().mean().backward()

    return once


def in_use() -> int:
    """Bytes, at most so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(point: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(1)
    step, before = step_of(point), in_use()
    step()  # the first call also makes plans
    times, began = [], time.process_time()
    while len(times) < LEAST or (time.process_time() - began < SECONDS and len(times) < MOST):
        clock = time.process_time()
        step()
        times.append(time.process_time() - clock)
    return {**point, "seconds": min(times), "calls": len(times), "bytes": in_use() - before}


def points() -> list[dict[str, Any]]:
    found = []
    for axis, own in AXES.items():
        common = {name: own.get(name, usual) for name, usual in USUAL.items()}
        for kind in own["kinds"]:
            values = [value for value in own["values"] if axis != "steps" or value <= LONGEST.get(kind, value)]
            found += [{"axis": axis, "kind": kind, **common, axis: value} for value in values]
    return found


def exponent(rows: list[dict[str, Any]], axis: str, what: str) -> float:
    """The slope of the last points in logarithms, by least squares."""
    last = [(math.log(row[axis]), math.log(row[what])) for row in rows if row[what] > 0][-LAST:]
    x, y = (sum(column) / len(last) for column in zip(*last, strict=True))
    return sum((a - x) * (b - y) for a, b in last) / sum((a - x) ** 2 for a, _ in last)


def grouped(found: list[dict[str, Any]], axis: str) -> dict[str, list[dict[str, Any]]]:
    return {
        kind: rows for kind in KINDS if (rows := [row for row in found if row["axis"] == axis and row["kind"] == kind])
    }


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Time above, memory below."""
    with style():
        figure = new_figure(4 * len(AXES), 6.8)
        for column, axis in enumerate(AXES):
            for line, (what, unit, scale) in enumerate((("seconds", "ms", 1e3), ("bytes", "MB", 1e-6))):
                axes = figure.add_subplot(2, len(AXES), 1 + column + line * len(AXES))
                for kind, rows in grouped(found, axis).items():
                    shown = [row for row in rows if row[what] > 0]
                    label = f"{KINDS[kind]}: {exponent(rows, axis, what):.2f}"
                    colour = COLOURS[list(KINDS).index(kind)]
                    axes.plot([row[axis] for row in shown], [scale * row[what] for row in shown], "o-", color=colour,
                              label=label, markersize=4)  # fmt: skip
                axes.set_xscale("log")
                axes.set_yscale("log")
                axes.set_xlabel(axis)
                axes.set_ylabel(f"{'processor time' if line == 0 else 'memory'} of a training step, {unit}")
                axes.legend(fontsize=7, title="exponent", title_fontsize=7)
        save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="only the picture, from the JSON")
    parser.add_argument("--again", choices=AXES, help="only this axis, and of each point the less is kept")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.point:
        print(json.dumps(measure(json.loads(given.point))))
        return
    if not given.draw:
        found = measured([point for point in points() if given.again in (None, point["axis"])])
        if given.again:
            found = least(json.loads(RESULT.read_text())["points"], found)
        torch.set_num_threads(1)  # as the machine is described
        write_json(RESULT, {**describe(), "exponents": exponents(found), "points": found})
    draw(json.loads(RESULT.read_text())["points"], PICTURE)


def measured(wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for point in track(wanted, "measuring"):
        command = [sys.executable, __file__, "--point", json.dumps(point)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found.append(json.loads(said.splitlines()[-1]))
    return found


def least(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    new = {_place(row): row for row in now}
    pairs = [(row, new.get(_place(row), row)) for row in before]
    return [row | {what: min(row[what], other[what]) for what in ("seconds", "bytes")} for row, other in pairs]


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("axis", "kind", *USUAL))


def exponents(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        axis: {
            kind: {what: round(exponent(rows, axis, what), 2) for what in ("seconds", "bytes")}
            for kind, rows in grouped(found, axis).items()
        }
        for axis in AXES
    }


if __name__ == "__main__":
    main()
