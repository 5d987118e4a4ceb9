"""Everything that the page shows of a run or a model, as one JSON object."""

import csv
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glstm.analysis.operations import knows_operations
from glstm.data.task import Batch, Task
from glstm.errors import UserError
from glstm.explore.ladder import MEASURED, positions
from glstm.explore.network import as_ours, gates_of, layer_of, orders_of, tables_of, weights_of
from glstm.explore.packing import pack
from glstm.explore.samples import part_to_show, samples_of, task_of
from glstm.gated import GatedLSTM
from glstm.models import SequenceModel
from glstm.training.evaluate import CellCost, cell_cost, evaluating, predict_with, threshold_at

BATCH = 100
USUAL = 0.01  # the paper's threshold: where the slider stands for networks that were trained without one
MOST_MEASURED = 500  # sequences on which the error is measured
MOST_OPERATIONS = 1e12  # of all thresholds together, counted as an LSTM's: about a minute
MOST_STEPS, MOST_CELLS = 100_000, 2**25
CURVES = ("train_loss", "validation_error", "test_error", "mean_k", "open_share")


@dataclass(frozen=True)
class Shown:
    """A network, and what there is to it."""

    name: str
    given: nn.Module
    task: Task | None
    times: "int | Tensor"  # of the steps, as `glstm.deploy` takes them
    folder: Path | None = None  # with the metrics of its training

    @cached_property
    def model(self) -> nn.Module:
        return as_ours(self.given)

    @property
    def layer(self) -> GatedLSTM | None:
        layer = getattr(self.model, "layer", None)
        return layer if isinstance(self.model, SequenceModel) and isinstance(layer, GatedLSTM) else None


def gather(
    networks: Sequence[Shown], sequences: int | None = None, on_step: Callable[[], object] = lambda: None
) -> dict[str, Any]:
    """`sequences`: how many to measure the error on; None: as many as take about a minute. `on_step` is called once for
    each of `count_steps`."""
    own = [one.layer.threshold for one in networks if one.layer is not None]
    thresholds = positions(own)
    return {
        "thresholds": thresholds,
        "start": thresholds.index(next((one for one in own if one), USUAL)),
        "runs": [_run(one, thresholds, sequences, on_step) for one in networks],
    }


def count_steps(networks: Sequence[Shown]) -> int:
    """Measurements that `gather` makes."""
    return sum(len(_measured_at(one)) for one in networks if _has_sequences(one))


def _has_sequences(shown: Shown) -> bool:
    return shown.task is not None and shown.task.size(part_to_show(shown.task)) > 0


def _run(shown: Shown, thresholds: list[float], sequences: int | None, on_step: Callable[[], object]) -> dict[str, Any]:
    model, task, layer = shown.model, shown.task, shown.layer
    times = _as_times(shown.times)
    cell = getattr(model, "layer", model)
    made: dict[str, Any] = {
        "name": shown.name,
        "cell": type(cell).__name__,
        "parameters": sum(one.numel() for one in model.parameters()),
        "steps": len(times),
        "times": None if isinstance(shown.times, int) else pack(times.double().numpy()),
        "curves": _curves(shown.folder),
        "task": None if task is None else task_of(task),
        "layer": None,
        "places": [],
        "network": None,
        "samples": [],
        "lengths": None,
        "errors": None,
    }
    tables = None
    if layer is not None and isinstance(model, SequenceModel):
        _require_shown(shown.name, layer, len(times))
        if layer.unfitted:
            layer.fit_times(times)
        orders = orders_of(layer, times)
        made |= {"layer": layer_of(layer), "places": gates_of(layer, times, thresholds, orders)}
        tables = partial(tables_of, layer, thresholds=thresholds, orders=orders)
        try:
            made["network"] = weights_of(model)
        except ValueError as error:
            made["no_network"] = f"The page cannot run this network: {error}."
    else:
        made["no_network"] = (
            f"The page runs networks of gated layers, LSTMs included, and this is a {type(cell).__name__}: it has no "
            "gates to show, and no threshold changes it."
        )
    if task is not None and _has_sequences(shown):
        made["samples"] = samples_of(task, model, tables)
        made["lengths"] = _lengths(task)
        made["errors"] = _errors(shown, sequences, on_step)
        if layer is None and knows_operations(cell):
            made["cost"] = _cell_cost(model, task)
    return made


def _require_shown(name: str, layer: GatedLSTM, steps: int) -> None:
    """A browser has to hold a byte for each unit and step, and some numbers for each step and threshold."""
    cells = steps * layer.hidden_size * layer.num_layers * layer.num_directions
    if steps > MOST_STEPS or cells > MOST_CELLS:
        raise UserError(
            f"{name} has {cells // steps:,} units at {steps:,} steps, and a page shows up to {MOST_STEPS:,} steps, and "
            f"{MOST_CELLS:,} of units times steps: look at fewer steps by --steps"
        )


def _as_times(times: "int | Tensor") -> Tensor:
    return torch.arange(1, times + 1, dtype=torch.float32) if isinstance(times, int) else times.detach().cpu()


def _lengths(task: Task) -> list[list[int]] | None:
    """How many sequences of the part have how many steps; None: they are equally long, or each has its own times."""
    if task.equally_long or task.own_times:
        return None
    counts = Counter[int]()
    for found in task.batches(part_to_show(task), BATCH):
        own = Batch(*found)
        counts.update([len(own.x)] * own.size if own.lengths is None else own.lengths.tolist())
    return [[steps, count] for steps, count in sorted(counts.items())]


def _measured_at(shown: Shown) -> list[float | None]:
    """Thresholds; None: the network has none."""
    if shown.layer is None or not shown.layer.gate.names:
        return [None]
    return [*sorted({*MEASURED, shown.layer.threshold})]


def _errors(shown: Shown, sequences: int | None, on_step: Callable[[], object]) -> dict[str, Any]:
    """The error on the first sequences of the part, at each threshold where it is measured."""
    task, layer = shown.task, shown.layer
    assert task is not None
    part, at = part_to_show(task), _measured_at(shown)
    count = min(task.size(part), sequences or _affordable(shown, len(at)))
    found = []
    for threshold in at:
        if layer is None or threshold is None:
            error = _error(shown.model, task, part, count)
        else:
            with threshold_at(layer, threshold):
                error = _error(shown.model, task, part, count)
        found.append({"threshold": threshold, "error": error, "text": task.format_error(error)})
        on_step()
    return {"sequences": count, "of": task.size(part), "measured": found}


def _affordable(shown: Shown, thresholds: int) -> int:
    """Sequences that can be read at so many thresholds in reasonable time; at least a few."""
    assert shown.task is not None
    each = shown.task.steps * 2 * sum(one.numel() for one in shown.model.parameters())
    return int(min(MOST_MEASURED, max(8, MOST_OPERATIONS / (each * thresholds))))


@torch.no_grad()
def _error(model: nn.Module, task: Task, part: str, count: int) -> float:
    predict, total = predict_with(model), 0.0
    with evaluating(model):
        for start in range(0, count, BATCH):
            wanted = slice(start, min(start + BATCH, count))
            own = Batch(*(task.validation_samples(wanted) if part == "validation" else task.test_samples(wanted)))
            total += float(task.errors(predict(own), own.y).double().sum())
    return total / count


def _cell_cost(model: nn.Module, task: Task) -> dict[str, float] | None:
    price: CellCost | None = cell_cost(model, task) if task.test_size else None
    return None if price is None else {"updates": price.updates, "ops": price.ops}


def _curves(folder: Path | None) -> dict[str, list[float | None]] | None:
    """The columns of metrics.csv that are drawn, those that hold something."""
    path = None if folder is None else folder / "metrics.csv"
    if path is None or not path.is_file():
        return None
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns: dict[str, list[float | None]] = {"epoch": [float(row["epoch"]) for row in rows]}
    for name in CURVES:
        values = [float(row[name]) if row.get(name) else None for row in rows]
        if any(value is not None for value in values):
            columns[name] = values
    return columns if rows else None
