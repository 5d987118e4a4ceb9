"""A deployed network as one .h and one .c: portable C99, no library, no allocation, no global state.

The code is `native/stream.h`, unchanged. This module writes the data and the few functions around it, and
`c_programs.py` a `main` that reads samples from standard input, and a self-test with vectors from PyTorch.
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

import numpy as np
import torch
from torch import Tensor

from glstm.errors import UserError
from glstm.models import SequenceModel
from glstm.runtime.c_layouts import check_layout, laid_out
from glstm.runtime.c_names import check_name
from glstm.runtime.c_programs import Vectors, main_program, self_test
from glstm.runtime.c_text import c_array, c_float, c_string
from glstm.runtime.c_timed import Times as Times
from glstm.runtime.c_timed import check_timed, timed_code, timed_functions, timed_header, timed_program, timed_self_test
from glstm.runtime.c_windows import WindowsInC
from glstm.runtime.head import Stage
from glstm.runtime.plan import LayerPlan, Plan
from glstm.runtime.quantize import Quantized
from glstm.runtime.timed_plan import TimedLayer, TimedPlan
from glstm.storage import write_together
from glstm.times import count_up

NATIVE = Path(__file__).parents[1] / "native"

MISSING = {"refuse": "GLSTM_PASS", "carry": "GLSTM_CARRY", "mask": "GLSTM_MASK"}
SPANS, TIMED = (
    ("start", "change", "opens", "k"),
    ("first", "length", "period", "peak", "shift", "steep"),
)  # arrays of a schedule
POOLS = {None: "GLSTM_NOW", "mean": "GLSTM_MEAN", "max": "GLSTM_MAX"}


@torch.no_grad()
def vectors_from(
    model: SequenceModel, threshold: float, x: Tensor, times: Tensor | np.ndarray | Sequence[float] | None = None
) -> Vectors:
    """x (T, N, inputs), and the model's outputs in plain PyTorch, by the equations, without our engine.

    `times` (T,) are those of the steps, `plan.times` of a plan; None: 1, 2, ...
    """
    model = copy.deepcopy(model).double().cpu().eval()
    model.layer.threshold, model.layer.backend = threshold, "reference"
    x = x.cpu().float()  # as C takes it
    at = None if times is None else torch.as_tensor(times, dtype=torch.float64, device="cpu")
    given = x.double()
    y = model(given.transpose(0, 1) if model.layer.batch_first else given, at)
    if y.dim() == 3 and not model.layer.batch_first:
        y = y.transpose(0, 1)
    at = count_up(len(x), x.device) if at is None else at
    return Vectors(x.transpose(0, 1).numpy(), y.float().numpy(), at.double().numpy())


def export_c(
    plan: Plan,
    folder: Path | str,
    name: str,
    vectors: Vectors,
    int8: Quantized | None = None,
    *,
    times: Times | None = None,
    windows: tuple[int, int] | None = None,
    layout: str = "plain",
) -> list[Path]:
    """Write NAME.h and NAME.c: both completely, or neither.

    times: of a plan without known steps, how C is told when a sample comes; None: samples are counted. windows:
    (length, hop), for functions that run overlapping windows on a stream without an end. layout: "plain", only these
    two files; "arduino" or "zephyr", a folder NAME that is an Arduino library, or a module for Zephyr and CMake.
    """
    check_name(name)
    check_layout(layout)
    folder, times = Path(folder), times or Times()
    cut = None if windows is None else WindowsInC(plan, name, *windows)
    texts = laid_out(layout, plan, name, *c_texts(plan, name, vectors, int8, times=times, cut=cut), times)
    write_together(folder, {file: text.encode() for file, text in texts.items()})
    return [folder / file for file in texts]


def c_texts(
    plan: Plan,
    name: str,
    vectors: Vectors | None,
    int8: Quantized | None,
    *,
    times: Times,
    cut: WindowsInC | None = None,
) -> tuple[str, str]:
    """The header and the source; without vectors, without a self-test."""
    if isinstance(plan, TimedPlan):
        check_timed(plan, vectors, times)
        about, more = _about_inputs(plan), _declared_classes(plan, name)
        header = timed_header(plan, name, "int8" if int8 else "float32", times, about, more)
    else:
        if vectors is not None:
            _check(plan, vectors)
        header = _header(plan, name, int8)
    if cut is not None:
        cut.check(times)
        header = cut.declared_in(header)
    return header, _source(plan, name, vectors, int8, times, cut)


def _check(plan: Plan, vectors: Vectors) -> None:
    """A self-test that cannot pass is not written."""
    expected = (len(vectors.x), plan.steps, plan.inputs)
    if vectors.x.shape != expected:
        raise UserError(f"the self-test's sequences must have shape {expected}, but have {vectors.x.shape}")
    if not np.array_equal(vectors.times, plan.times):
        raise UserError(
            "the self-test's outputs are for other times than the plan's: make them with vectors_from(model, "
            "threshold, x, plan.times)"
        )


def _header(plan: Plan, name: str, int8: Quantized | None) -> str:
    upper, kind = name.upper(), "int8" if int8 else "float32"
    units = ", ".join(str(layer.units) for layer in plan.layers)
    about = _about_times(plan) + _about_inputs(plan) + _about_windows(plan)
    return f"""/* {name}: a gated LSTM of {units} units with {kind} weights, for sequences of {plan.steps} steps.
   Written by glstm. Needs no library, allocates nothing, has no state except the caller's.{about} */
#ifndef {upper}_H
#define {upper}_H

#include <stdint.h>

{(NATIVE / "place.h").read_text().strip()}

#ifdef __cplusplus
extern "C" {{
#endif

enum {{ {upper}_STEPS = {plan.steps}, {upper}_INPUTS = {plan.inputs}, {upper}_OUTPUTS = {plan.outputs} }};

{_declared_functions(plan, name)}{_declared_classes(plan, name)}
#ifdef __cplusplus
}}
#endif

#endif
"""


def _declared_functions(plan: Plan, name: str) -> str:
    upper = name.upper()
    if plan.two_ways:
        rows = f"\n  float room[{plan.room}];" if plan.room else ""
        steps = f"{upper}_STEPS x " if plan.every else ""
        return f"""/* Room to work in: it need not be set, and keeps nothing from one window to the next. */
typedef struct {{
  uint32_t step;
  glstm_place place[{len(plan.layers)}];
  float number[{plan.numbers}];{rows}
}} {name}_state;

/* A whole window x, {upper}_STEPS x {upper}_INPUTS numbers, a row a sample, gives y, {steps}{upper}_OUTPUTS. */
void {name}_run({name}_state *state, const float *x, float *y);
"""
    return f"""/* All data that changes. It may be copied and stored; {name}_reset makes it ready. */
typedef struct {{
  uint32_t step;
  glstm_place place[{len(plan.layers)}];
  float number[{plan.numbers}];
}} {name}_state;

void {name}_reset({name}_state *state);

/* Takes the next sample, {upper}_INPUTS numbers. Returns 1 if more are expected, 0 if it was the last, or one too many,
   which is ignored. */
int {name}_step({name}_state *state, const float *x);

/* The network's output for the samples taken so far: {upper}_OUTPUTS numbers. */
void {name}_output(const {name}_state *state, float *y);
"""


def _about_times(plan: Plan) -> str:
    """When samples are due: a schedule is right at its own times only."""
    if all(layer.k is None for layer in plan.layers):
        return "\n   Times do not matter: every unit is open at every sample."
    times = plan.times
    first, steps = float(times[0]), len(times)
    step = float(times[-1] - first) / max(steps - 1, 1)
    if np.allclose(times, first + step * np.arange(steps), rtol=0, atol=1e-3 * step):
        every = f"a sample every {step:.6g}, the first" if steps > 1 else "one sample,"
        counted = first == step == 1
        unit = "steps are counted" if counted else "in the unit of the times of training"
        return f"\n   Times: {every} at {first:.10g}; {unit}."
    return "\n" + "\n".join(
        wrap(
            f"Times: the samples are due at these, in the unit of the times of training: "
            f"{', '.join(f'{time:.10g}' for time in times)}.",
            117, initial_indent="   ", subsequent_indent="   ",
        )
    )  # fmt: skip


def _about_inputs(plan: Plan) -> str:
    if plan.standard is None:
        return ""
    carries = "\n   NAN is a missing value: the input's last one takes its place, or its mean if there is none yet"
    masks = ";\n   the network also reads which ones are missing"
    missing = {"refuse": "", "carry": f"{carries}.", "mask": f"{carries}{masks}."}[plan.missing]
    fast = "\n   So do not compile it with -ffast-math, which takes every number for one." if missing else ""
    return f"\n   Inputs are raw numbers, in the unit of the training data: they are standardised here.{missing}{fast}"


def _about_windows(plan: Plan) -> str:
    if not plan.two_ways:
        return ""
    kept = f"\n   {plan.room} numbers of the state are rows that a layer leaves for the next one." if plan.room else ""
    return f"\n   It reads windows of {plan.steps} samples from both ends, so the caller gives it whole ones.{kept}"


def _declared_classes(plan: Plan, name: str) -> str:
    if plan.classes is None:
        return ""
    return f"""
/* The names of the outputs: UTF-8. */
extern const char *const {name}_classes[{name.upper()}_OUTPUTS];
"""


def _source(
    plan: Plan, name: str, vectors: Vectors | None, int8: Quantized | None, times: Times, cut: WindowsInC | None
) -> str:
    whom = "PyTorch with the same int8 weights" if int8 else "PyTorch"
    pooled = plan.pool is not None
    layers = [_layer(name, number, layer, int8, pooled) for number, layer in enumerate(plan.layers)]
    head = [_stage(name, number, plan, one, int8) for number, one in enumerate(plan.head.stages(plan.read))]
    numbers = [len(plan.times), len(layers), len(head), plan.widest, f"{name}_layers", f"{name}_head"]
    if plan.standard:
        numbers += [plan.inputs, MISSING[plan.missing], f"{name}_mean", f"{name}_scale"]
    parts = [
        _opening(name),
        "#define GLSTM_INT8\n" if int8 else "",
        "#define GLSTM_RAW\n" if plan.standard else "",
        "#define GLSTM_POOL\n" if pooled else "",
        "#define GLSTM_WINDOW\n" if plan.two_ways else "",
        _head_options(plan),
        timed_code(plan, _code(plan)),
        *(data for data, _ in layers),
        *(data for data, _ in head),
        f"static const glstm_layer {name}_layers[] = {{{', '.join(row for _, row in layers)}}};",
        f"static const glstm_dense {name}_head[] = {{{', '.join(row for _, row in head)}}};",
        f"{c_array(f'{name}_mean', plan.standard.mean)}\n{c_array(f'{name}_scale', plan.standard.scale)}"
        if plan.standard
        else "",
        f"static const glstm_model {name}_model = {{{', '.join(map(str, numbers))}}};\n",
        _classes(plan, name),
    ]
    if isinstance(plan, TimedPlan):
        parts += [timed_functions(plan, name, times), cut.functions if cut else "", timed_program(plan, name, times)]
        parts += [] if vectors is None else [timed_self_test(plan, name, vectors, whom, times)]
    else:
        parts += [_functions(plan, name), cut.functions if cut else "", main_program(plan, name)]
        parts += [] if vectors is None else [self_test(plan, name, vectors, whom)]
    return "\n".join(part for part in parts if part)


def _code(plan: Plan) -> str:
    """stream.h with what it includes, as far as this network needs it."""
    text = (NATIVE / "stream.h").read_text().replace('#include "place.h"\n\n', "")
    head = "" if plan.head.is_plain else (NATIVE / "head.h").read_text() + "\n"
    text = text.replace('#ifdef GLSTM_HEAD\n#include "head.h"\n#endif\n\n', head)
    return text + ("\n" + (NATIVE / "window.h").read_text() if plan.two_ways else "")


def _head_options(plan: Plan) -> str:
    """Which functions of a head are compiled."""
    if plan.head.is_plain:
        return ""
    kinds = sorted({one.kind for one in plan.head.activations} - {"relu"})
    return "#define GLSTM_HEAD\n" + "".join(f"#define GLSTM_WITH_{kind.upper()}\n" for kind in kinds)


def _opening(name: str) -> str:
    upper = name.upper()
    return f"""/* Written by glstm; {name}.h says what it is. With -D{upper}_MAIN it is a program that reads samples
   from standard input, with -D{upper}_TEST one that checks itself. */
#include "{name}.h"
"""


def _layer(name: str, number: int, plan: LayerPlan, int8: Quantized | None, pooled: bool) -> tuple[str, str]:
    """Its arrays, and the row that points to them. `pooled`: something in the network is."""
    weights = int8.layers[number] if int8 else None
    timed = isinstance(plan, TimedLayer)
    arrays = {
        **{when: getattr(plan, when) for when in (TIMED if timed else SPANS)},
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


def _window_function(plan: Plan, name: str) -> str:
    rows = "state->room" if plan.room else "0"
    return f"""void {name}_run({name}_state *state, const float *x, float *y) {{
  float space[{2 * plan.widest}], read[{plan.read}];
  glstm_state view;
  glstm_window window;
  view.step = &state->step, view.place = state->place, view.number = state->number;
  window.room = {rows}, window.wide = {max(plan.kept_rows, default=0)}, window.every = {int(plan.every)};
  glstm_run_window(&{name}_model, view, window, x, y, space, read);
}}
"""


def _functions(plan: Plan, name: str) -> str:
    if plan.two_ways:
        return _window_function(plan, name)
    step = f"glstm_step(&{name}_model, {name}_view(state), x);"
    if plan.standard:
        step = f"""float standard[{plan.layers[0].inputs}];
  if (state->step >= {name}_model.steps) return 0;
  glstm_standardize(&{name}_model, {name}_view(state), x, standard);
  glstm_step(&{name}_model, {name}_view(state), standard);"""
    return f"""static glstm_state {name}_view({name}_state *state) {{
  glstm_state view;
  view.step = &state->step, view.place = state->place, view.number = state->number;
  return view;
}}

void {name}_reset({name}_state *state) {{ glstm_reset(&{name}_model, {name}_view(state)); }}

int {name}_step({name}_state *state, const float *x) {{
  {step}
  return state->step < {name}_model.steps;
}}

void {name}_output(const {name}_state *state, float *y) {{
  float space[{plan.space}];
  glstm_output(&{name}_model, state->step, state->number, y, space);
}}
"""
