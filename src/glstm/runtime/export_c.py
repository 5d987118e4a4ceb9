"""A deployed network as one .h and one .c: portable C99, no library, no allocation, no global state.

The code is `native/stream.h`, unchanged. This module writes the few functions around it, `c_header.py` the header,
`c_data.py` the data, and `c_programs.py` a `main` that reads samples from standard input, and a self-test with vectors
from PyTorch. Of plans in time, `c_timed.py` has what differs; `c_windows.py` has overlapping windows.
"""

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glstm.errors import UserError
from glstm.models import SequenceModel
from glstm.runtime.c_data import layers_data, model_data
from glstm.runtime.c_header import about_inputs, declared_classes, known_header
from glstm.runtime.c_int8 import int8_data, int8_functions, int8_state_fields
from glstm.runtime.c_layouts import check_layout, laid_out
from glstm.runtime.c_names import check_name
from glstm.runtime.c_programs import Vectors, main_program, self_test
from glstm.runtime.c_text import NATIVE
from glstm.runtime.c_timed import Times as Times
from glstm.runtime.c_timed import check_timed, timed_code, timed_functions, timed_header, timed_program, timed_self_test
from glstm.runtime.c_windows import WindowsInC
from glstm.runtime.int8_states import Int8States
from glstm.runtime.plan import Plan
from glstm.runtime.quantize import Quantized
from glstm.runtime.timed_plan import TimedPlan
from glstm.storage import write_together
from glstm.times import count_up


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

    Args:
        plan: `runtime.plan`.
        folder: Where to.
        name: Of the files and, before each function, in C.
        vectors: Inputs and the outputs that belong to them, of `vectors_from`, for the self-test in the C file.
        int8: Weights in 8 bits, of `quantize`, or also states, of `int8_states`; None: float32.
        times: Of a plan without known steps, how C is told when a sample comes; None: samples are counted.
        windows: (length, hop), for functions that run overlapping windows on a stream without an end.
        layout: "plain", only these two files; "arduino" or "zephyr", a folder NAME that is an Arduino library, or a
            module for Zephyr and CMake.

    Returns:
        The files written.
    """
    check_name(name)
    check_layout(layout)
    folder, times = Path(folder), times or Times()
    header, source = c_texts(plan, name, vectors, int8, times=times, windows=windows)
    texts = laid_out(layout, plan, name, header, source, times)
    write_together(folder, {file: text.encode() for file, text in texts.items()})
    return [folder / file for file in texts]


def c_texts(
    plan: Plan,
    name: str,
    vectors: Vectors | None,
    int8: Quantized | Int8States | None,
    *,
    times: Times,
    windows: tuple[int, int] | None = None,
) -> tuple[str, str]:
    """The header and the source, as `export_c` writes them; without vectors, without a self-test."""
    size = int8.state_bytes if isinstance(int8, Int8States) else plan.state_bytes
    cut = None if windows is None else WindowsInC(plan, name, *windows, size)
    if isinstance(plan, TimedPlan):
        check_timed(plan, vectors, times)
    else:
        _check(plan, vectors, times)
    if cut is not None:
        cut.check(times)
    header = _header(plan, name, int8, times, cut)
    if isinstance(int8, Int8States):
        return header, _whole_source(int8, name, vectors, cut)
    return header, _source(plan, name, vectors, int8, times, cut)


def _check(plan: Plan, vectors: Vectors | None, times: Times) -> None:
    """A self-test that cannot pass is not written."""
    if times.tick is not None:
        raise UserError(
            "the times of this network's steps are known already, so C is told none: leave out the tick, or deploy "
            "without steps"
        )
    if vectors is None:
        return
    expected = (len(vectors.x), plan.steps, plan.inputs)
    if vectors.x.shape != expected:
        raise UserError(f"the self-test's sequences must have shape {expected}, but have {vectors.x.shape}")
    if not np.array_equal(vectors.times, plan.times):
        raise UserError(
            "the self-test's outputs are for other times than the plan's: make them with vectors_from(model, "
            "threshold, x, plan.times)"
        )


def _header(plan: Plan, name: str, int8: Quantized | Int8States | None, times: Times, cut: WindowsInC | None) -> str:
    kind, numbers = "int8" if int8 else "float32", f"  float number[{plan.numbers}];"
    if isinstance(int8, Int8States):
        kind, numbers = "int8 states and int8", int8_state_fields(int8)
    if isinstance(plan, TimedPlan):
        header = timed_header(plan, name, kind, times, about_inputs(plan), declared_classes(plan, name))
    else:
        header = known_header(plan, name, kind, numbers)
    return cut.declared_in(header) if cut else header


def _source(
    plan: Plan, name: str, vectors: Vectors | None, int8: Quantized | None, times: Times, cut: WindowsInC | None
) -> str:
    whom = "PyTorch with the same int8 weights" if int8 else "PyTorch"
    layers = layers_data(plan, name, int8)
    model = model_data(plan, name, int8, len(plan.layers), f"{name}_layers")
    parts = [_opening(name), _options(plan, int8), _code(plan), *layers, *model]
    windows = cut.functions if cut else ""
    if isinstance(plan, TimedPlan):
        parts += [timed_functions(plan, name, times), windows, timed_program(plan, name, times)]
        parts += [] if vectors is None else [timed_self_test(plan, name, vectors, whom, times)]
    else:
        parts += [_functions(plan, name), windows, main_program(plan, name)]
        parts += [] if vectors is None else [self_test(plan, name, vectors, whom)]
    return "\n".join(part for part in parts if part)


def _whole_source(states: Int8States, name: str, vectors: Vectors | None, cut: WindowsInC | None) -> str:
    """Of a network in whole numbers; its head is as in any other."""
    plan, weights = states.plan, states.weights
    parts = [_opening(name), _options(plan, weights, whole=True), _code(plan), *int8_data(states, name)]
    parts += [*model_data(plan, name, weights, 0, "0"), int8_functions(states, name), cut.functions if cut else ""]
    parts += [main_program(plan, name)]
    parts += [] if vectors is None else [self_test(plan, name, vectors, "the same whole numbers in Python")]
    return "\n".join(part for part in parts if part)


def _options(plan: Plan, int8: Quantized | None, *, whole: bool = False) -> str:
    """Which parts of the code are compiled."""
    asked = {
        "INT8": int8 is not None,
        "WHOLE": whole,
        "RAW": plan.standard is not None,
        "POOL": plan.pool is not None,
        "WINDOW": plan.two_ways,
        "HEAD": not plan.head.is_plain,
    }
    names = [name for name, is_asked in asked.items() if is_asked]
    if not plan.head.is_plain:
        names += [f"WITH_{kind.upper()}" for kind in sorted({one.kind for one in plan.head.activations} - {"relu"})]
    return "".join(f"#define GLSTM_{name}\n" for name in names)


def _code(plan: Plan) -> str:
    """stream.h with what it includes, as far as this network needs it. Nothing else is changed here: a network may be
    called timed, and then have a header of that name."""
    text = timed_code(plan, (NATIVE / "stream.h").read_text()).replace('#include "place.h"\n\n', "")
    head = "" if plan.head.is_plain else (NATIVE / "head.h").read_text() + "\n"
    text = text.replace('#ifdef GLSTM_HEAD\n#include "head.h"\n#endif\n\n', head)
    return text + ("\n" + (NATIVE / "window.h").read_text() if plan.two_ways else "")


def _opening(name: str) -> str:
    upper = name.upper()
    return f"""/* Written by glstm; {name}.h says what it is. With -D{upper}_MAIN it is a program that reads samples
   from standard input, with -D{upper}_TEST one that checks itself. */
#include "{name}.h"
"""


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
