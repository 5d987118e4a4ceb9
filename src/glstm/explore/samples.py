"""Some sequences of a task, to be drawn on the page and read by the network there."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glstm.data.images import PixelTask
from glstm.data.task import Batch, Task
from glstm.explore.packing import pack

SHOWN = 12
SEARCHED = 200  # sequences among which one of each class is looked for
NAMES = {"adding": ("value", "mark")}


def part_to_show(task: Task) -> str:
    """The validation part, so that nothing is chosen on the test part; of a task without one, that."""
    return "validation" if task.validation_size else "test"


def first(task: Task, part: str, count: int) -> Batch:
    wanted = slice(0, min(count, task.size(part)))
    return Batch(*(task.validation_samples(wanted) if part == "validation" else task.test_samples(wanted)))


Tables = Callable[[Tensor], list[dict[str, Any]]]  # times (T,) -> the tables of each layer's gates


def samples_of(task: Task, model: nn.Module, tables: Tables | None) -> list[dict[str, Any]]:
    """Of each: its numbers, what the network's layer reads of them, its target, and its own times if it has some."""
    part = part_to_show(task)
    if not task.size(part):
        return []
    found = first(task, part, SEARCHED)
    return [_sample(task, model, tables, found, number) for number in _chosen(task, found)]


def _chosen(task: Task, found: Batch) -> list[int]:
    """The first of each class in the order of the classes, then the first of all others."""
    if task.per_step or found.y.is_floating_point():
        return list(range(min(SHOWN, found.size)))
    labels = found.y.tolist()
    one_each = [labels.index(label) for label in sorted(set(labels))][:SHOWN]
    others = [number for number in range(len(labels)) if number not in one_each]
    return one_each + others[: SHOWN - len(one_each)]


def _sample(task: Task, model: nn.Module, tables: Tables | None, found: Batch, number: int) -> dict[str, Any]:
    steps = len(found.x) if found.lengths is None else int(found.lengths[number])
    x = found.x[:steps, number].cpu().float()
    target = found.y[:steps, number] if task.per_step else found.y[number]
    made: dict[str, Any] = {"steps": steps, "x": pack(x.numpy()), "target": pack(_target(target))}
    if (inputs := getattr(model, "inputs", None)) is not None:
        with torch.no_grad():
            read = inputs(found.x[:steps, number : number + 1].to(next(model.parameters()).dtype))
        made["read"] = pack(read[:, 0].cpu().float().numpy())
    if task.own_times and found.times is not None:
        times = found.times[:steps, number]
        made["times"] = pack(times.cpu().double().numpy())
        if tables is not None:
            made["tables"] = tables(times)
    return made


def _target(target: Tensor) -> np.ndarray:
    """Classes by their numbers, values as they are; (K,), or (T, K) with a target for each step."""
    return np.atleast_1d(target.cpu().double().numpy())


def task_of(task: Task) -> dict[str, Any]:
    """What the page says and draws of the task."""
    part = part_to_show(task)
    whole = first(task, part, 1) if task.size(part) else None
    values = whole is not None and whole.y.is_floating_point()
    classes = None if values else list(task.classes or map(str, range(task.outputs)))
    known = getattr(task, "channels", None) or NAMES.get(task.name)
    return {
        "name": task.name,
        "part": part,
        "metric": task.metric,
        "as_percent": task.as_percent,
        "classes": classes,
        "outputs": task.outputs,
        "targets": list(getattr(task, "targets", None) or ()),
        "per_step": task.per_step,
        "channels": list(known or ("input" if task.inputs == 1 else f"input {n + 1}" for n in range(task.inputs))),
        "image": _image(task),
        "time_unit": getattr(task, "time_unit", None),
        "own_times": task.own_times,
    }


def _image(task: Task) -> dict[str, Any] | None:
    """Of tasks whose steps are pixels: the side of the image, and where in it each step's pixel is."""
    if not isinstance(task, PixelTask):
        return None
    side = int(np.sqrt(task.steps))
    permutation: Any = task.artifacts().get("permutation.json")
    places = np.arange(task.steps) if permutation is None else np.asarray(permutation["order"])
    return {"side": side, "places": pack(places.astype(np.int32))}
