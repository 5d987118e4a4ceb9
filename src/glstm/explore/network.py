"""A network for the page: its gates, which it draws and counts, and its weights, with which it runs."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glstm.analysis import count_ops
from glstm.analysis.operations import widths
from glstm.explore.ladder import levels
from glstm.explore.packing import pack, pack_levels
from glstm.gated import GatedLSTM
from glstm.gates import Open, Pulses
from glstm.layers import LSTM
from glstm.models import SequenceModel
from glstm.runtime.head import head_parts
from glstm.scaling import Rescale


def as_ours(model: nn.Module) -> nn.Module:
    """A network around torch's own LSTM as one around ours, which computes the same; any other as it is."""
    layer = getattr(model, "layer", None)
    if not isinstance(model, SequenceModel) or type(layer) is not nn.LSTM or layer.proj_size:
        return model
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
    weight = next(layer.parameters())
    with torch.random.fork_rng(devices=[]):  # a new layer draws weights, which are overwritten here
        ours = LSTM(**{name: getattr(layer, name) for name in names}, device=weight.device, dtype=weight.dtype)
    ours.load_state_dict(layer.state_dict())
    parts = {name: getattr(model, name) for name in ("reads", "inputs", "outputs", "classes")}
    return SequenceModel(ours, model.head, **parts).train(model.training)


def open_tables(layer: GatedLSTM, times: Tensor) -> list[np.ndarray]:
    """k (T, H) of each layer and direction in evaluation, before any threshold, at the times of the steps (T,)."""
    given = times.to(next(layer.parameters()).device)
    with torch.no_grad():
        tables = [layer.openness_at(suffix, given, threshold=0.0, training=False) for _, suffix in layer.places()]
    return [table.cpu().numpy() for table in tables]


def orders_of(layer: GatedLSTM, times: Tensor) -> list[np.ndarray]:
    """Of each layer and direction: its units from the first moment to the last."""
    tables = zip(layer.places(), open_tables(layer, times), strict=True)
    return [_by_moment(layer.gate.pulses(layer.gate_values(suffix)), k) for (_, suffix), k in tables]


def gates_of(
    layer: GatedLSTM, times: Tensor, thresholds: list[float], orders: list[np.ndarray]
) -> list[dict[str, Any]]:
    """Of each layer and direction: what its gates are, and when its units open."""
    found = []
    tables = tables_of(layer, times, thresholds, orders)
    for (depth, suffix), inputs, order, table in zip(layer.places(), widths(layer), orders, tables, strict=True):
        values = layer.gate.readable(layer.gate_in_time(suffix))
        found.append(
            {
                "name": _named(layer, depth, suffix),
                "inputs": inputs,
                "backwards": suffix.endswith("_reverse"),
                "order": pack(order.astype(np.int32)),
                "values": {name: pack(one.cpu().numpy()) for name, one in values.items()},
                **_rule(layer.gate.pulses(layer.gate_values(suffix)), layer.hidden_size),
                **table,
            }
        )
    return found


def tables_of(
    layer: GatedLSTM, times: Tensor, thresholds: list[float], orders: list[np.ndarray]
) -> list[dict[str, Any]]:
    """Levels (units, steps) at these times, a row a unit in the order of their moments; and k, if the gate has no rule
    by which the page could compute it."""
    found = []
    for (_, suffix), k, order in zip(layer.places(), open_tables(layer, times), orders, strict=True):
        table = {"levels": pack_levels(levels(k, thresholds).T[order])}
        if layer.gate.pulses(layer.gate_values(suffix)) is None:
            table["k"] = pack(k.T[order].astype(np.float32))
        found.append(table)
    return found


def _rule(pulses: Pulses | None, units: int) -> dict[str, Any]:
    """How the page computes k where a unit is open, in the layer's own order of units."""
    if pulses is None:
        return {"shape": "table"}
    parts = {name: getattr(pulses, name).cpu().expand(units).numpy() for name in ("at", "width", "period", "start")}
    return {"shape": pulses.shape, "pulses": {name: pack(one.astype(np.float64)) for name, one in parts.items()}}


def _by_moment(pulses: Pulses | None, k: np.ndarray) -> np.ndarray:
    """The units from the first moment to the last; clocks by their periods, unknown gates by where k has its weight."""
    units = k.shape[1]
    if pulses is None:
        steps = np.arange(len(k), dtype=np.float64)
        key = (steps @ k) / np.maximum(k.sum(0), 1e-30)
    else:
        key = (pulses.period if pulses.shape == "box" else pulses.at).cpu().expand(units).numpy()
    return np.argsort(key, kind="stable")


def _named(layer: GatedLSTM, depth: int, suffix: str) -> str:
    which = f"layer {depth + 1}" if layer.num_layers > 1 else "the layer"
    return f"{which}, backwards" if suffix.endswith("_reverse") else which


def layer_of(layer: GatedLSTM) -> dict[str, Any]:
    """What is known of the whole layer, besides its gates."""
    return {
        "gate": type(layer.gate).__name__,
        "always_open": isinstance(layer.gate, Open),
        "units": layer.hidden_size,
        "directions": layer.num_directions,
        "threshold": layer.threshold,
        "origin": layer.origin,
        "unit": layer.unit,
        "lstm_ops_a_step": sum(count_ops(1, layer.hidden_size, inputs) for inputs in widths(layer)),
    }


def weights_of(model: SequenceModel) -> dict[str, Any]:
    """All that the page needs to run the network. A head that it does not know is a ValueError, in a sentence."""
    layer = model.layer
    rows = []
    for _, suffix in layer.places():
        weights = layer.weights(suffix)
        bias = weights.w_hh.new_zeros(len(weights.w_hh)) if weights.bias is None else weights.bias
        rows.append({"w_ih": _floats(weights.w_ih), "w_hh": _floats(weights.w_hh), "bias": _floats(bias)})
    return {"layers": rows, "candidate": layer.candidate, "reads": model.reads, "head": _head(model)}


def _head(model: SequenceModel) -> list[dict[str, Any]]:
    stages: list[dict[str, Any]] = []
    for part in head_parts(model):
        if isinstance(part, nn.Linear):
            bias = part.weight.new_zeros(part.out_features) if part.bias is None else part.bias
            stages.append({"does": "linear", "weight": _floats(part.weight), "bias": _floats(bias)})
            continue
        arrays = {"gain": part.gain, "shift": part.shift}
        known = {name: pack(one) for name, one in arrays.items() if one is not None}
        stages.append({"does": part.kind, "number": part.number, **known})
    if model.outputs is not None:
        if type(model.outputs) is not Rescale:
            raise ValueError(f"the page knows no {type(model.outputs).__name__} after the head, only a Rescale")
        stages.append({"does": "rescale", "gain": _floats(model.outputs.scale), "shift": _floats(model.outputs.mean)})
    return stages


def _floats(tensor: Tensor) -> dict[str, Any]:
    return pack(tensor.detach().cpu().float().numpy())
