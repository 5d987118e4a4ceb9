"""Exported C of a network in whole numbers: its data, its state and its functions, around `native/int8.h`."""

from glstm.runtime.c_text import NATIVE, c_array, c_arrays, c_float
from glstm.runtime.int8_states import Int8States, logistic_table


def int8_state_fields(states: Int8States) -> str:
    """Of the struct in the header."""
    plan, (inputs, most_open) = states.plan, states.widest
    units, marks = (sum(getattr(one, what) for one in plan.layers) for what in ("units", "most_open"))
    carried = f"  float carried[{states.carried}];\n" if states.carried else ""
    return f"""{carried}  int32_t c[{units}], sums[{sum(4 * one.slots for one in states.layers)}];
  int16_t h[{units}], d[{most_open}], x[{inputs}];
  int8_t r[{marks}];"""


def int8_data(states: Int8States, name: str) -> list[str]:
    """The code, and all arrays of the layers."""
    rows, parts = [], [c_array("glstm_logistic_table", logistic_table()), (NATIVE / "int8.h").read_text()]
    for number, (plan, own) in enumerate(zip(states.plan.layers, states.layers, strict=True)):
        arrays = {"start": plan.start, "change": plan.change, "opens": plan.opens, "k": own.k, "slot": own.slot}
        arrays |= {"row": plan.row, "w_x": own.weights.w_x, "w_h": own.weights.w_h}
        arrays |= {"scale_x": own.scale_x, "scale_h": own.scale_h, "bias": own.bias}
        sizes = [plan.inputs, plan.units, plan.most_open, plan.spans, own.slots, int(plan.logistic)]
        sizes += [own.shift_x, own.shift_h]
        data, row = c_arrays(f"{name}_layer{number}", arrays, sizes, [])
        rows.append(row)
        parts.append(data)
    numbers = [states.plan.steps, len(rows), f"{name}_layers", c_float(float(states.scale)), c_float(states.most)]
    parts.append(f"static const glstm_layer8 {name}_layers[] = {{{', '.join(rows)}}};")
    parts.append(f"static const glstm_model8 {name}_whole = {{{', '.join(map(str, numbers))}}};")
    return parts


def int8_functions(states: Int8States, name: str) -> str:
    plan = states.plan
    given, room = "x", ""
    if plan.standard:
        given = "standard"
        carried = "state->carried" if states.carried else "0"
        room = f"""  float standard[{plan.layers[0].inputs}];
  glstm_state raw;
  if (state->step >= {name}_whole.steps) return 0;
  raw.step = &state->step, raw.place = state->place, raw.number = {carried};
  glstm_standardize(&{name}_model, raw, x, standard);
"""
    before = plan.read - sum(layer.units for layer in plan.layers)
    return f"""void {name}_reset({name}_state *state) {{ memset(state, 0, sizeof *state); }}

int {name}_step({name}_state *state, const float *x) {{
  glstm_state8 view;
{room}  view.step = &state->step, view.place = state->place;
  view.c = state->c, view.sums = state->sums;
  view.h = state->h, view.d = state->d, view.x = state->x, view.r = state->r;
  glstm_step8(&{name}_whole, view, {given});
  return state->step < {name}_whole.steps;
}}

void {name}_output(const {name}_state *state, float *y) {{
  float space[{2 * plan.widest}], read[{plan.read}];
  int n;
  for (n = 0; n < {plan.read}; n++) read[n] = (float)state->h[{-before} + n] / 32768.0f;
  glstm_run_head(&{name}_model, read, y, space);
}}
"""
