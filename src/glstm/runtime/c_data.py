"""The constant data of exported C: arrays, and the rows of structs that point to them."""

from collections.abc import Sequence

import numpy as np

from glstm.runtime.c_text import c_array, c_float, c_string
from glstm.runtime.head import Stage
from glstm.runtime.plan import LayerPlan, Plan
from glstm.runtime.quantize import Quantized
from glstm.runtime.timed_plan import TimedLayer

MISSING = {"refuse": "GLSTM_PASS", "carry": "GLSTM_CARRY", "mask": "GLSTM_MASK"}
POOLS = {None: "GLSTM_NOW", "mean": "GLSTM_MEAN", "max": "GLSTM_MAX"}
SPANS = ("start", "change", "opens", "k")  # arrays of a schedule; and of pulses
PULSES = ("first", "length", "period", "peak", "shift", "steep")


def network_data(plan: Plan, name: str, int8: Quantized | None) -> str:
    """All of it, up to the model NAME_model."""
    layers = [_layer(name, number, layer, int8, plan.pool is not None) for number, layer in enumerate(plan.layers)]
    head = [_stage(name, number, plan, one, int8) for number, one in enumerate(plan.head.stages(plan.read))]
    numbers = [len(plan.times), len(layers), len(head), plan.widest, f"{name}_layers", f"{name}_head"]
    parts = [
        *(data for data, _ in layers),
        *(data for data, _ in head),
        f"static const glstm_layer {name}_layers[] = {{{', '.join(row for _, row in layers)}}};",
        f"static const glstm_dense {name}_head[] = {{{', '.join(row for _, row in head)}}};",
    ]
    if plan.standard:
        numbers += [plan.inputs, MISSING[plan.missing], f"{name}_mean", f"{name}_scale"]
        parts += [c_array(f"{name}_mean", plan.standard.mean), c_array(f"{name}_scale", plan.standard.scale)]
    parts += [f"static const glstm_model {name}_model = {{{', '.join(map(str, numbers))}}};\n", _classes(plan, name)]
    return "\n".join(part for part in parts if part)


def _layer(name: str, number: int, plan: LayerPlan, int8: Quantized | None, pooled: bool) -> tuple[str, str]:
    """Its arrays, and the row that points to them. `pooled`: something in the network is."""
    weights = int8.layers[number] if int8 else None
    timed = isinstance(plan, TimedLayer)
    arrays = {
        **{when: getattr(plan, when) for when in (PULSES if timed else SPANS)},
        "row": plan.row,
        "w_x": weights.w_x if weights else plan.w_x,
        "w_h": weights.w_h if weights else plan.w_h,
        "scale_x": weights.scale_x if weights else None,
        "scale_h": weights.scale_h if weights else None,
        "bias": plan.bias,
    }
    when = f"GLSTM_{plan.shape.upper()}" if timed else plan.spans
    numbers = [plan.inputs, plan.units, plan.most_open, when, int(plan.logistic)]
    return _arrays(f"{name}_layer{number}", arrays, numbers, [POOLS[plan.pool]] if pooled else [])


def _stage(name: str, number: int, plan: Plan, stage: Stage, int8: Quantized | None) -> tuple[str, str]:
    """A stage of the head, with only those of its fields that a plain head needs, if it is one."""
    arrays: dict[str, np.ndarray | None] = dict.fromkeys(("w", "scale", "bias"))
    if stage.dense is not None:
        dense, weights = plan.head.dense[stage.dense], int8.head[stage.dense] if int8 else None
        arrays = {
            "w": weights.weight if weights else dense.weight,
            "scale": weights.scale if weights else None,
            "bias": dense.bias,
        }
    if plan.head.is_plain:
        then = int(stage.then.kind == "relu")
        return _arrays(f"{name}_head{number}", arrays, [stage.inputs, stage.outputs, then], [])
    data, row = _arrays(
        f"{name}_head{number}", arrays, [stage.inputs, stage.outputs, f"GLSTM_{stage.then.kind.upper()}"], []
    )
    more = {"gain": stage.then.gain, "shift": stage.then.shift, "places": stage.places}
    more_data, more_row = _arrays(f"{name}_head{number}", more, [c_float(stage.then.number)], [])
    return "\n".join(part for part in (data, more_data) if part), f"{row[:-1]}, {more_row[1:]}"


def _arrays(
    prefix: str, arrays: dict[str, np.ndarray | None], first: Sequence[int | str], last: list[str]
) -> tuple[str, str]:
    data = "\n".join(c_array(f"{prefix}_{name}", array) for name, array in arrays.items() if array is not None)
    places = ["0" if array is None else f"{prefix}_{name}" for name, array in arrays.items()]
    return data, "{" + ", ".join([*map(str, first), *places, *last]) + "}"


def _classes(plan: Plan, name: str) -> str:
    if plan.classes is None:
        return ""
    names = ",\n".join(f"  {c_string(one)}" for one in plan.classes)
    return f"const char *const {name}_classes[{name.upper()}_OUTPUTS] = {{\n{names}\n}};\n"
