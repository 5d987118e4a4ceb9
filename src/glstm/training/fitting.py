"""A network and its data in memory: train it, and run it on other data."""

import copy
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from glstm.errors import UserError
from glstm.layers import gate_parameters, gated_layers, weight_parameters
from glstm.models import SequenceModel
from glstm.scaling import Rescale
from glstm.series import Series
from glstm.training.objective import mean_openness
from glstm.training.settings import Settings

OPTIMIZERS = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop, "sgd": torch.optim.SGD}

Row = dict[str, float]


def fit_network(
    model: SequenceModel,
    data: Series,
    y: Tensor,
    kind: str,
    settings: Settings,
    *,
    validation: float,
    patience: int | None,
    say: Callable[[str], Any] | None = None,
) -> list[Row]:
    """Train the network; returns a row for each epoch. `kind` is "classes" or "values".

    With `validation` above 0 it ends with the values that had the smallest loss on the share that was held out.
    """
    if settings.budget and not any(layer.gate.names for layer in gated_layers(model)):
        raise UserError("a budget charges for openness, and this network has no gates that could close")
    draws = torch.Generator().manual_seed(settings.seed)
    order = torch.randperm(len(data), generator=draws)
    held = 0 if validation == 0 else min(max(1, round(validation * len(data))), len(data) - 1)
    kept_out, train = order[:held].sort().values, order[held:].sort().values
    gates = [parameter for parameter in gate_parameters(model) if parameter.requires_grad]
    groups: list[dict[str, Any]] = [{"params": list(weight_parameters(model)), "lr": settings.lr}]
    groups += [{"params": gates, "lr": settings.gate_lr}] if gates else []
    optimizer = OPTIMIZERS[settings.optimizer](groups)
    best, since, state = float("inf"), 0, None
    rows: list[Row] = []
    for epoch in range(1, settings.epochs + 1):
        loss = _train_epoch(
            model, optimizer, data, y, kind, settings, train[torch.randperm(len(train), generator=draws)]
        )
        row: Row = {"epoch": epoch, "train_loss": loss}
        if held:
            prediction = evaluate(model, data[kept_out], 1000).to(y.device)
            row["validation_loss"] = float(losses(model, prediction, y[kept_out], kind).mean())
            row["validation_error"] = float(errors(prediction, y[kept_out], kind).mean())
        rows.append(row)
        if say is not None:
            say(", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in row.items()))
        if not held:
            continue
        if row["validation_loss"] < best:
            best, since, state = row["validation_loss"], 0, copy.deepcopy(model.state_dict())
        else:
            since += 1
        if patience is not None and since >= patience:
            break
    if state is not None:
        model.load_state_dict(state)
    return rows


def _train_epoch(model, optimizer, data: Series, y: Tensor, kind: str, settings: Settings, order: Tensor) -> float:
    """The mean loss of an epoch's samples."""
    model.train()
    total = 0.0
    for wanted in order.to(y.device).split(settings.batch):
        part = data[wanted]
        with ExitStack() as stack:
            layers = gated_layers(model) if settings.budget else []
            tables = [stack.enter_context(layer.recording_openness()) for layer in layers]
            prediction = model(part.x, part.times, part.lengths)
        loss = losses(model, prediction, y[wanted], kind).mean()
        total += float(loss.detach()) * len(wanted)
        if settings.budget:
            loss = loss + settings.budget * mean_openness([table for own in tables for table in own])
        optimizer.zero_grad()
        loss.backward()
        if settings.clip:
            torch.nn.utils.clip_grad_norm_(weight_parameters(model), settings.clip)
        optimizer.step()
    return total / len(order)


def losses(model: SequenceModel, prediction: Tensor, y: Tensor, kind: str) -> Tensor:
    """The loss of each sample. Of values, the squared error in units of their standard deviation, if the network knows
    that: a loss, and so a rate, does not depend on the unit of y."""
    if kind == "classes":
        return cross_entropy(prediction, y, reduction="none")
    scale = model.outputs.scale if isinstance(model.outputs, Rescale) else 1.0
    return ((prediction - y) / scale).square().mean(1)


def errors(prediction: Tensor, y: Tensor, kind: str) -> Tensor:
    return (prediction.argmax(1) != y).double() if kind == "classes" else (prediction - y).square().mean(1)


@torch.no_grad()
def evaluate(model: SequenceModel, data: Series, batch: int) -> Tensor:
    """The network's outputs for all sequences, on the CPU."""
    model.eval()
    device = next(model.parameters()).device
    found = []
    for first in range(0, len(data), batch):
        part = data[first : first + batch].to(device)
        found.append(model(part.x, part.times, part.lengths).cpu())
    return torch.cat(found)
