"""What is measured in a trained network, besides its curve. All results are numbers that JSON can hold."""

from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from glstm.analysis import gradient_flow
from glstm.convert import prune, to_lstm
from glstm.data.task import Task
from glstm.models import SequenceModel
from glstm.recipes import Recipe, make_model
from glstm.training.evaluate import cell_cost, cost, error_sums, evaluating, threshold_at

UNITS_SHOWN = 3  # early, in the middle, and late
FLOW_SAMPLES = 500  # of the first epoch of training, for the gradient flow


def probe(name: str, recipe: Recipe, model: SequenceModel, task: Task, thresholds: tuple[float, ...]) -> Any:
    match name:
        case "gates":
            return {"before": _gates(fresh(recipe, task)), "after": _gates(model)}
        case "thresholds":
            return [_at_threshold(model, task, threshold) for threshold in thresholds]
        case "gradient flow":
            return _gradient_flow(model, task)
        case "as an LSTM":
            loss, error = error_sums(SequenceModel(to_lstm(model.layer), model.head), task)
            return {"loss": float(loss) / task.test_size, "error": float(error) / task.test_size}
        case "one sequence":
            return _one_sequence(model, task)
        case "pruned":
            return _pruned(model, task)
        case _:
            raise ValueError(f"there is no probe {name!r}")


def joined(*measurements: dict[str, Any]) -> dict[str, Any]:
    """Several measurements of one network as one, each threshold once."""
    found = {name: value for one in measurements for name, value in one.items()}
    rows = {row["threshold"]: row for one in measurements for row in one.get("thresholds", ())}
    return found | ({"thresholds": [rows[level] for level in sorted(rows)]} if rows else {})


def operations(model: SequenceModel, task: Task) -> float | None:
    """Of a sequence through the recurrent layer, by the same count for every cell, at the updates that it makes."""
    found = cell_cost(model, task)
    return None if found is None else found.ops


def fresh(recipe: Recipe, task: Task) -> SequenceModel:
    """The network as it was before training."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return make_model(recipe, task)


def _gates(model: SequenceModel) -> dict[str, list[float]]:
    """The values of the first layer's gates, a list of units each."""
    layer = model.layer
    return {name: value.detach().cpu().double().tolist() for name, value in layer.gate_values("_l0").items()}


def _at_threshold(model: SequenceModel, task: Task, threshold: float) -> dict[str, float]:
    with threshold_at(model.layer, threshold):
        loss, error = error_sums(model, task)
        price = cost(model.layer, task.steps)
    figures = {"loss": float(loss) / task.test_size, "error": float(error) / task.test_size}
    return {"threshold": threshold, **figures, **asdict(price)}


def _gradient_flow(model: nn.Module, task: Task) -> list[float]:
    """Gamma at every step, over the first samples of training."""
    x, y = task.cut(task.stage(0, 1), slice(0, min(FLOW_SAMPLES, task.train_size)))[:2]
    with evaluating(model):
        return gradient_flow(model, lambda prediction, y: task.losses(prediction, y).mean(), x, y).tolist()


def _one_sequence(model: SequenceModel, task: Task) -> dict[str, Any]:
    """What some units hold while the network reads the first test sequence, whose steps have one number each."""
    layer, x, times = model.layer, task.test_samples(slice(0, 1))[0], task.grid()
    state, held = None, []
    with evaluating(model), torch.no_grad():
        k = layer.openness(times)[0]
        for step, time in enumerate(times):
            _, state = layer(x[step : step + 1], state, times=time[None])
            held.append(torch.stack([part[0, 0] for part in state]))
    h, c = torch.stack(held).unbind(1)  # (T, H) each
    opening = k.gt(0).any(0).nonzero()[:, 0]
    # By the moment at which they are the most open; units of an LSTM, which always are, by their number.
    ordered = opening[k[:, opening].argmax(0).argsort(stable=True)]
    places = [(2 * number + 1) * len(ordered) // (2 * UNITS_SHOWN) for number in range(UNITS_SHOWN)]
    shown = [int(ordered[place]) for place in places] if len(ordered) else []
    units = [
        {"unit": unit, "k": k[:, unit].tolist(), "c": c[:, unit].tolist(), "h": h[:, unit].tolist()} for unit in shown
    ]
    return {"x": x[:, 0, 0].tolist(), "units": units}


def _pruned(model: SequenceModel, task: Task) -> dict[str, float]:
    """The network without the units that never open: how many are left, their weights and all, and the test error."""
    layer, head = model.layer, model.head
    assert isinstance(head, nn.Linear)
    small = prune(layer, task.steps, layer.threshold)
    assert small.kept is not None
    (kept,) = small.kept
    with torch.no_grad():
        own = nn.Linear(len(kept), head.out_features, device=head.weight.device)
        own.weight.copy_(head.weight[:, kept.to(head.weight.device)])
        own.bias.copy_(head.bias)
    _, error = error_sums(SequenceModel(small, own), task)
    weights = [sum(value.numel() for value in one.parameters()) for one in (layer, small)]
    return {
        "units": layer.hidden_size, "units_left": len(kept), "weights": weights[0], "weights_left": weights[1],
        "error": float(error) / task.test_size,
    }  # fmt: skip
