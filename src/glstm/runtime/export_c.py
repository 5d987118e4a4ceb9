"""A deployed network as one .h and one .c: portable C99, no library, no allocation, no global state.

The code is `native/stream.h`, unchanged. This module writes the data, the few functions around it, a `main` that
reads samples from standard input, and a self-test with vectors from PyTorch.
"""

import copy
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

import numpy as np
import torch
from torch import Tensor

from glstm.errors import UserError
from glstm.models import SequenceModel
from glstm.runtime.plan import DensePlan, LayerPlan, Plan
from glstm.runtime.quantize import Quantized
from glstm.storage import write_together

NATIVE = Path(__file__).parents[1] / "native"


TOLERANCE = 1e-5  # of the largest output
TAKEN = ("glstm", "stdint", "stdio", "string")  # names that the files use themselves, or include


@dataclass(frozen=True)
class Vectors:
    """For the self-test: sequences (N, T, inputs) and PyTorch's outputs for them (N, outputs)."""

    x: np.ndarray
    y: np.ndarray

    @property
    def tolerance(self) -> float:
        return TOLERANCE * max(1.0, float(np.abs(self.y).max(initial=0.0)))


@torch.no_grad()
def vectors_from(model: SequenceModel, threshold: float, x: Tensor) -> Vectors:
    """x (T, N, inputs), and the model's outputs in plain PyTorch, by the equations, without our engine."""
    model = copy.deepcopy(model).double().cpu().eval()
    model.layer.threshold, model.layer.backend = threshold, "reference"
    given = x.double().cpu()
    y = model(given.transpose(0, 1) if model.layer.batch_first else given)
    return Vectors(x.cpu().transpose(0, 1).float().numpy(), y.float().numpy())


def export_c(plan: Plan, folder: Path, name: str, vectors: Vectors, int8: Quantized | None = None) -> list[Path]:
    """Write NAME.h and NAME.c: both completely, or neither."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise UserError(f"a name for C is made of lower-case letters, digits and _, such as digits, not {name!r}")
    if name in TAKEN:
        raise UserError(f"{name} is a name that the exported files use themselves: choose another, such as digits")
    texts = {f"{name}.h": _header(plan, name, int8), f"{name}.c": _source(plan, name, vectors, int8)}
    write_together(folder, {file: text.encode() for file, text in texts.items()})
    return [folder / file for file in texts]


def _header(plan: Plan, name: str, int8: Quantized | None) -> str:
    upper, kind = name.upper(), "int8" if int8 else "float32"
    units = ", ".join(str(layer.units) for layer in plan.layers)
    return f"""/* {name}: a gated LSTM of {units} units with {kind} weights, for sequences of {plan.steps} steps.
   Written by glstm. Needs no library, allocates nothing, has no state except the caller's. */
#ifndef {upper}_H
#define {upper}_H

#include <stdint.h>

{(NATIVE / "place.h").read_text().strip()}

#ifdef __cplusplus
extern "C" {{
#endif

enum {{ {upper}_STEPS = {plan.steps}, {upper}_INPUTS = {plan.inputs}, {upper}_OUTPUTS = {plan.outputs} }};

/* All data that changes. It may be copied and stored; {name}_reset makes it ready. */
typedef struct {{
  uint32_t step;
  glstm_place place[{len(plan.layers)}];
  float number[{max(1, sum(layer.numbers for layer in plan.layers))}];
}} {name}_state;

void {name}_reset({name}_state *state);

/* Takes the next sample, {upper}_INPUTS numbers. Returns 1 if more are expected, 0 if it was the last, or one too many,
   which is ignored. */
int {name}_step({name}_state *state, const float *x);

/* The network's output for the samples taken so far: {upper}_OUTPUTS numbers. */
void {name}_output(const {name}_state *state, float *y);

#ifdef __cplusplus
}}
#endif

#endif
"""


def _source(plan: Plan, name: str, vectors: Vectors, int8: Quantized | None) -> str:
    layers = [_layer(name, number, layer, int8) for number, layer in enumerate(plan.layers)]
    head = [_dense(name, number, dense, int8) for number, dense in enumerate(plan.head)]
    widest = max(dense.outputs for dense in plan.head)
    parts = [
        _opening(name),
        "#define GLSTM_INT8\n" if int8 else "",
        (NATIVE / "stream.h").read_text().replace('#include "place.h"\n\n', ""),
        *(data for data, _ in layers),
        *(data for data, _ in head),
        f"static const glstm_layer {name}_layers[] = {{{', '.join(row for _, row in layers)}}};",
        f"static const glstm_dense {name}_head[] = {{{', '.join(row for _, row in head)}}};",
        f"static const glstm_model {name}_model = {{{plan.steps}, {len(layers)}, {len(head)}, {widest}, {name}_layers, "
        f"{name}_head}};\n",
        _functions(name, widest),
        _main(name),
        _self_test(name, vectors, "PyTorch with the same int8 weights" if int8 else "PyTorch"),
    ]
    return "\n".join(part for part in parts if part)


def _opening(name: str) -> str:
    upper = name.upper()
    return f"""/* Written by glstm; {name}.h says what it is. With -D{upper}_MAIN it is a program that reads samples
   from standard input, with -D{upper}_TEST one that checks itself. */
#include "{name}.h"
"""


def _layer(name: str, number: int, plan: LayerPlan, int8: Quantized | None) -> tuple[str, str]:
    """Its arrays, and the row that points to them."""
    weights = int8.layers[number] if int8 else None
    arrays = {
        "start": plan.start,
        "change": plan.change,
        "opens": plan.opens,
        "k": plan.k,
        "row": plan.row,
        "w_x": weights.w_x if weights else plan.w_x,
        "w_h": weights.w_h if weights else plan.w_h,
        "scale_x": weights.scale_x if weights else None,
        "scale_h": weights.scale_h if weights else None,
        "bias": plan.bias,
    }
    numbers = [plan.inputs, plan.units, plan.most_open, plan.spans, int(plan.logistic)]
    return _arrays(f"{name}_layer{number}", arrays, numbers)


def _dense(name: str, number: int, plan: DensePlan, int8: Quantized | None) -> tuple[str, str]:
    weights = int8.head[number] if int8 else None
    outputs, inputs = plan.weight.shape
    arrays = {
        "w": weights.weight if weights else plan.weight,
        "scale": weights.scale if weights else None,
        "bias": plan.bias,
    }
    return _arrays(f"{name}_head{number}", arrays, [inputs, outputs, int(plan.relu)])


def _arrays(prefix: str, arrays: dict[str, np.ndarray | None], numbers: list[int]) -> tuple[str, str]:
    data = "\n".join(_array(f"{prefix}_{name}", array) for name, array in arrays.items() if array is not None)
    places = ["0" if array is None else f"{prefix}_{name}" for name, array in arrays.items()]
    return data, "{" + ", ".join([*map(str, numbers), *places]) + "}"


def _array(name: str, array: np.ndarray) -> str:
    values = array.flatten().tolist() or [0] * 4  # C has no empty arrays; and a column has four numbers
    kind = {"u": f"uint{8 * array.itemsize}_t", "i": "int8_t", "f": "float"}[array.dtype.kind]
    words = map(_float, values) if array.dtype.kind == "f" else map(str, values)
    return f"static const {kind} {name}[] = {{\n{_lines(words)}\n}};"


def _lines(words: Iterable[str]) -> str:
    return "\n".join(wrap(", ".join(words), 120, initial_indent="  ", subsequent_indent="  "))


def _float(value: float) -> str:
    """The shortest decimal that is the same float32."""
    text = np.format_float_scientific(np.float32(value), trim="0", unique=True)
    return f"{text}f"


def _functions(name: str, widest: int) -> str:
    return f"""static glstm_state {name}_view({name}_state *state) {{
  glstm_state view;
  view.step = &state->step, view.place = state->place, view.number = state->number;
  return view;
}}

void {name}_reset({name}_state *state) {{ glstm_reset(&{name}_model, {name}_view(state)); }}

int {name}_step({name}_state *state, const float *x) {{
  glstm_step(&{name}_model, {name}_view(state), x);
  return state->step < {name}_model.steps;
}}

void {name}_output(const {name}_state *state, float *y) {{
  float space[{2 * widest}];
  glstm_output(&{name}_model, state->number, y, space);
}}
"""


def _main(name: str) -> str:
    upper = name.upper()
    return f"""#ifdef {upper}_MAIN
#include <stdio.h>

/* Numbers from standard input; after each whole sequence, and at the end of the input, a line of outputs. */
static void {name}_say(const {name}_state *state) {{
  float y[{upper}_OUTPUTS];
  int n;
  {name}_output(state, y);
  for (n = 0; n < {upper}_OUTPUTS; n++) printf("%.9g%c", (double)y[n], n + 1 < {upper}_OUTPUTS ? ' ' : '\\n');
}}

int main(void) {{
  {name}_state state;
  float x[{upper}_INPUTS];
  int read = 0, got;
  {name}_reset(&state);
  while ((got = scanf("%f", x + read)) == 1) {{
    if (++read < {upper}_INPUTS) continue;
    read = 0;
    if (!{name}_step(&state, x)) {name}_say(&state), {name}_reset(&state);
  }}
  if (got == 0 || read) {{
    fprintf(stderr, got == 0 ? "{name}: the input holds something that is no number\\n"
                             : "{name}: the input ends within a sample of %d numbers\\n", {upper}_INPUTS);
    return 1;
  }}
  if (state.step) {{
    fprintf(stderr, "{name}: the last sequence has only %d of %d samples\\n", (int)state.step, {upper}_STEPS);
    {name}_say(&state);
  }}
  return 0;
}}
#endif
"""


def _self_test(name: str, vectors: Vectors, whom: str) -> str:
    upper, count = name.upper(), len(vectors.x)
    return f"""#ifdef {upper}_TEST
#include <stdio.h>

{_array(f"{name}_test_x", vectors.x.astype(np.float32))}
{_array(f"{name}_test_y", vectors.y.astype(np.float32))}

/* Compares with PyTorch's outputs for {count} sequences; differences up to {vectors.tolerance:g} are allowed. */
int main(void) {{
  {name}_state state;
  const float *x = {name}_test_x;
  float y[{upper}_OUTPUTS], worst = 0;
  int sequence, n;
  for (sequence = 0; sequence < {count}; sequence++) {{
    {name}_reset(&state);
    for (n = 0; n < {upper}_STEPS; n++) {name}_step(&state, x), x += {upper}_INPUTS;
    {name}_output(&state, y);
    for (n = 0; n < {upper}_OUTPUTS; n++) {{
      float expected = {name}_test_y[sequence * {upper}_OUTPUTS + n], error = y[n] - expected;
      error = error < 0 ? -error : error;
      if (!(error <= {_float(vectors.tolerance)})) {{ /* also if it is not a number */
        printf("{name}: output %d of sequence %d is %g, not %g\\n", n, sequence, (double)y[n], (double)expected);
        return 1;
      }}
      if (error > worst) worst = error;
    }}
  }}
  printf("{name}: largest difference from {whom} %g\\n", (double)worst);
  return 0;
}}
#endif
"""
