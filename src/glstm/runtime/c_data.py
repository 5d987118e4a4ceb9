"""The constant data of exported C: arrays, and the rows of structs that point to them."""

import numpy as np

from glstm.runtime.c_text import c_array, c_arrays, c_float, c_string
from glstm.runtime.head import Stage
from glstm.runtime.plan import LayerPlan, Plan
from glstm.runtime.quantize import Quantized
from glstm.runtime.timed_plan import TimedLayer

MISSING = {"refuse": "GLSTM_PASS", "carry": "GLSTM_CARRY", "mask": "GLSTM_MASK"}
POOLS = {None: "GLSTM_NOW", "mean": "GLSTM_MEAN", "max": "GLSTM_MAX"}
SPANS = ("start", "change", "opens", "k")  # arrays of a schedule; and of pulses
PULSES = ("first", "length", "period", "peak", "shift", "steep")


def layers_data(plan: Plan, name: str, int8: Quantized | None) -> list[str]:
    """The layers, NAME_layers."""
    layers = [_layer(name, number, layer, int8, plan.pool is not None) for number, layer in enumerate(plan.layers)]
    rows = ", ".join(row for _, row in layers)
    return [*(data for data, _ in layers), f"static const glstm_layer {name}_layers[] = {{{rows}}};"]


def model_data(plan: Plan, name: str, int8: Quantized | None, layers: int, place: str) -> list[str]:
    """The head, the model NAME_model with so many layers, which are in this place, and the names of the outputs."""
    head = [_stage(name, number, plan, one, int8) for number, one in enumerate(plan.head.stages(plan.read))]
    numbers = [len(plan.times), layers, len(head), plan.widest, place, f"{name}_head"]
    parts = [data for data, _ in head]
    parts.append(f"static const glstm_dense {name}_head[] = {{{', '.join(row for _, row in head)}}};")
    if plan.standard:
        numbers += [plan.inputs, MISSING[plan.missing], f"{name}_mean", f"{name}_scale"]
        parts += [c_array(f"{name}_mean", plan.standard.mean), c_array(f"{name}_scale", plan.standard.scale)]
    return [
        *parts,
        f"static const glstm_model {name}_model = {{{', '.join(map(str, numbers))}}};\n",
        _classes(plan, name),
    ]


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
    return c_arrays(f"{name}_layer{number}", arrays, numbers, [POOLS[plan.pool]] if pooled else [])


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
        return c_arrays(f"{name}_head{number}", arrays, [stage.inputs, stage.outputs, then], [])
    data, row = c_arrays(
        f"{name}_head{number}", arrays, [stage.inputs, stage.outputs, f"GLSTM_{stage.then.kind.upper()}"], []
    )
    more = {"gain": stage.then.gain, "shift": stage.then.shift, "places": stage.places}
    more_data, more_row = c_arrays(f"{name}_head{number}", more, [c_float(stage.then.number)], [])
    return "\n".join(part for part in (data, more_data) if part), f"{row[:-1]}, {more_row[1:]}"


def _classes(plan: Plan, name: str) -> str:
    if plan.classes is None:
        return ""
    names = ",\n".join(f"  {c_string(one)}" for one in plan.classes)
    return f"const char *const {name}_classes[{name.upper()}_OUTPUTS] = {{\n{names}\n}};\n"
