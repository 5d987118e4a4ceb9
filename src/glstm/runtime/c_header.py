"""The header of exported C: what the network is, the struct of its state and its functions.

Here is that of a plan with known steps; `c_timed.py` has the one of a plan in time.
"""

from textwrap import wrap

import numpy as np

from glstm.runtime.c_text import NATIVE
from glstm.runtime.plan import Plan


def known_header(plan: Plan, name: str, kind: str, numbers: str) -> str:
    """`kind`: that of the weights; `numbers`: those fields of the state in which these differ."""
    upper = name.upper()
    units = ", ".join(str(layer.units) for layer in plan.layers)
    about = _about_times(plan) + about_inputs(plan) + _about_windows(plan)
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

{_declared_functions(plan, name, numbers)}{declared_classes(plan, name)}
#ifdef __cplusplus
}}
#endif

#endif
"""


def _declared_functions(plan: Plan, name: str, numbers: str) -> str:
    upper = name.upper()
    if plan.two_ways:
        rows = f"\n  float room[{plan.room}];" if plan.room else ""
        steps = f"{upper}_STEPS x " if plan.every else ""
        return f"""/* Room to work in: it need not be set, and keeps nothing from one window to the next. */
typedef struct {{
  uint32_t step;
  glstm_place place[{len(plan.layers)}];
{numbers}{rows}
}} {name}_state;

/* A whole window x, {upper}_STEPS x {upper}_INPUTS numbers, a row a sample, gives y, {steps}{upper}_OUTPUTS. */
void {name}_run({name}_state *state, const float *x, float *y);
"""
    return f"""/* All data that changes. It may be copied and stored; {name}_reset makes it ready. */
typedef struct {{
  uint32_t step;
  glstm_place place[{len(plan.layers)}];
{numbers}
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


def about_inputs(plan: Plan) -> str:
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


def declared_classes(plan: Plan, name: str) -> str:
    if plan.classes is None:
        return ""
    return f"""
/* The names of the outputs: UTF-8. */
extern const char *const {name}_classes[{name.upper()}_OUTPUTS];
"""
