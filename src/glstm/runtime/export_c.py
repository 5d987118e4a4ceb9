"""A deployed network as one .h and one .c: portable C99, no library, no allocation, no global state.

The code is `native/stream.h`, unchanged. This module writes the data and the few functions around it, and
`c_programs.py` a `main` that reads samples from standard input, and a self-test with vectors from PyTorch.
"""

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glstm.errors import UserError
from glstm.models import SequenceModel
from glstm.runtime.c_about import about_inputs, about_times, about_windows
from glstm.runtime.c_int8 import int8_data, int8_functions, int8_state_fields
from glstm.runtime.c_layouts import check_layout, laid_out
from glstm.runtime.c_names import check_name
from glstm.runtime.c_programs import Vectors, main_program, self_test
from glstm.runtime.c_text import c_array, c_arrays, c_float, c_string
from glstm.runtime.c_timed import Times as Times
from glstm.runtime.c_timed import check_timed, timed_code, timed_functions, timed_header, timed_program, timed_self_test
from glstm.runtime.c_windows import WindowsInC
from glstm.runtime.head import Stage
from glstm.runtime.int8_states import Int8States
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


def whole_vectors(states: Int8States, x: Tensor) -> Vectors:
    """x (T, N, inputs), and what a network in whole numbers says to it, in Python."""
    x = x.cpu().float()
    y = states(x).numpy()
    return Vectors(x.transpose(0, 1).numpy(), y.swapaxes(0, 1) if y.ndim == 3 else y, states.plan.times)


def export_c(
    plan: Plan,
    folder: Path | str,
    name: str,
    vectors: Vectors,
    int8: Quantized | Int8States | None = None,
    *,
    times: Times | None = None,
    windows: tuple[int, int] | None = None,
    layout: str = "plain",
) -> list[Path]:
    """Write NAME.h and NAME.c: both completely, or neither.

    int8: weights in 8 bits, of `quantize`, or also states, of `int8_states`. times: of a plan without known steps, how
    C is told when a sample comes; None: samples are counted. windows: (length, hop), for functions that run overlapping
    windows on a stream without an end. layout: "plain", only these two files; "arduino" or "zephyr", a folder NAME that
    is an Arduino library, or a module for Zephyr and CMake.
    """
    check_name(name)
    check_layout(layout)
    folder, times = Path(folder), times or Times()
    size = int8.state_bytes if isinstance(int8, Int8States) else plan.state_bytes
    cut = None if windows is None else WindowsInC(plan, name, *windows, size)
    texts = laid_out(layout, plan, name, *c_texts(plan, name, vectors, int8, times=times, cut=cut), times)
    write_together(folder, {file: text.encode() for file, text in texts.items()})
    return [folder / file for file in texts]


def c_texts(
    plan: Plan,
    name: str,
    vectors: Vectors | None,
    int8: Quantized | Int8States | None,
    *,
    times: Times,
    cut: WindowsInC | None = None,
) -> tuple[str, str]:
    """The header and the source; without vectors, without a self-test."""
    if isinstance(plan, TimedPlan):
        check_timed(plan, vectors, times)
        about, more = about_inputs(plan), _declared_classes(plan, name)
        header = timed_header(plan, name, "int8" if int8 else "float32", times, about, more)
    else:
        if vectors is not None:
            _check(plan, vectors)
        header = _header(plan, name, int8)
    if cut is not None:
        cut.check(times)
        header = cut.declared_in(header)
    if isinstance(int8, Int8States):
        return header, _whole_source(int8, name, vectors, cut)
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


def _header(plan: Plan, name: str, int8: Quantized | Int8States | None) -> str:
    upper, kind = name.upper(), "int8" if int8 else "float32"
    fields = f"  float number[{plan.numbers}];"
    if isinstance(int8, Int8States):
        kind, fields = "int8 states and int8", int8_state_fields(int8)
    units = ", ".join(str(layer.units) for layer in plan.layers)
    about = about_times(plan) + about_inputs(plan) + about_windows(plan)
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

{_declared_functions(plan, name, fields)}{_declared_classes(plan, name)}
#ifdef __cplusplus
}}
#endif

#endif
"""


def _declared_functions(plan: Plan, name: str, fields: str) -> str:
    upper = name.upper()
    if plan.two_ways:
        rows = f"\n  float room[{plan.room}];" if plan.room else ""
        steps = f"{upper}_STEPS x " if plan.every else ""
        return f"""/* Room to work in: it need not be set, and keeps nothing from one window to the next. */
typedef struct {{
  uint32_t step;
  glstm_place place[{len(plan.layers)}];
{fields}{rows}
}} {name}_state;

/* A whole window x, {upper}_STEPS x {upper}_INPUTS numbers, a row a sample, gives y, {steps}{upper}_OUTPUTS. */
void {name}_run({name}_state *state, const float *x, float *y);
"""
    return f"""/* All data that changes. It may be copied and stored; {name}_reset makes it ready. */
typedef struct {{
  uint32_t step;
  glstm_place place[{len(plan.layers)}];
{fields}
}} {name}_state;

void {name}_reset({name}_state *state);

/* Takes the next sample, {upper}_INPUTS numbers. Returns 1 if more are expected, 0 if it was the last, or one too many,
   which is ignored. */
int {name}_step({name}_state *state, const float *x);

/* The network's output for the samples taken so far: {upper}_OUTPUTS numbers. */
void {name}_output(const {name}_state *state, float *y);
"""


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
    parts = [
        *_begin(plan, name, int8),
        *(data for data, _ in layers),
        f"static const glstm_layer {name}_layers[] = {{{', '.join(row for _, row in layers)}}};",
        *_model(plan, name, int8, len(layers), f"{name}_layers"),
        _classes(plan, name),
    ]
    if isinstance(plan, TimedPlan):
        parts += [timed_functions(plan, name, times), cut.functions if cut else "", timed_program(plan, name, times)]
        parts += [] if vectors is None else [timed_self_test(plan, name, vectors, whom, times)]
    else:
        parts += [_functions(plan, name), cut.functions if cut else "", main_program(plan, name)]
        parts += [] if vectors is None else [self_test(plan, name, vectors, whom)]
    return "\n".join(part for part in parts if part)


def _whole_source(states: Int8States, name: str, vectors: Vectors | None, cut: WindowsInC | None) -> str:
    """Of a network in whole numbers; its head is as in any other."""
    plan = states.plan
    parts = [
        *_begin(plan, name, states.weights, whole=True),
        *int8_data(states, name),
        *_model(plan, name, states.weights, 0, "0"),
        _classes(plan, name),
        int8_functions(states, name),
        cut.functions if cut else "",
        main_program(plan, name),
        "" if vectors is None else self_test(plan, name, vectors, "the same whole numbers in Python"),
    ]
    return "\n".join(part for part in parts if part)


def _begin(plan: Plan, name: str, int8: Quantized | None, *, whole: bool = False) -> list[str]:
    """The code that all networks have, as far as this one needs it."""
    return [
        _opening(name),
        "#define GLSTM_INT8\n" if int8 else "",
        "#define GLSTM_WHOLE\n" if whole else "",
        "#define GLSTM_RAW\n" if plan.standard else "",
        "#define GLSTM_POOL\n" if plan.pool else "",
        "#define GLSTM_WINDOW\n" if plan.two_ways else "",
        _head_options(plan),
        timed_code(plan, _code(plan)),
    ]


def _model(plan: Plan, name: str, int8: Quantized | None, layers: int, place: str) -> list[str]:
    """The head, and the model with so many layers, which are there."""
    head = [_stage(name, number, plan, one, int8) for number, one in enumerate(plan.head.stages(plan.read))]
    numbers = [len(plan.times), layers, len(head), plan.widest, place, f"{name}_head"]
    standard = []
    if plan.standard:
        numbers += [plan.inputs, MISSING[plan.missing], f"{name}_mean", f"{name}_scale"]
        standard = [c_array(f"{name}_mean", plan.standard.mean), c_array(f"{name}_scale", plan.standard.scale)]
    return [
        *(data for data, _ in head),
        f"static const glstm_dense {name}_head[] = {{{', '.join(row for _, row in head)}}};",
        *standard,
        f"static const glstm_model {name}_model = {{{', '.join(map(str, numbers))}}};\n",
    ]


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
