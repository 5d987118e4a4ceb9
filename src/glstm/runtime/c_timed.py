"""Exported C of a timed plan: a stream that is counted and may have no end, or whose samples have their own times."""

from dataclasses import dataclass

import numpy as np

from glstm.errors import UserError
from glstm.runtime.c_programs import Vectors, checking_program, say, tell
from glstm.runtime.c_text import NATIVE, c_array, resolved
from glstm.runtime.plan import Plan
from glstm.runtime.ticks import Clock
from glstm.runtime.timed_plan import TimedPlan

WHOLE = 1e-6  # of a tick: a time that is so near to a whole number of ticks is one


@dataclass(frozen=True)
class Times:
    """How C is told when a sample comes. `tick`: times are whole numbers of it, in the unit of the times of training,
    counted from `start`; None: samples are counted, at 1, 2, ..."""

    tick: float | None = None
    start: float = 0.0

    def __post_init__(self):
        if self.tick is not None and not (self.tick > 0 and np.isfinite(self.tick)):
            raise UserError(f"the tick of times is a duration above 0, such as 0.001, not {self.tick!r}")
        if not np.isfinite(self.start):
            raise UserError(f"the start of times is a finite number, not {self.start!r}")

    def clock(self, plan: TimedPlan) -> Clock:
        clock = plan.clock if self.tick is None else plan.scale.clock(self.tick, self.start)
        if clock.longest == 0:
            raise UserError(f"a tick of {self.tick:g} is longer than any time between samples that can be kept")
        return clock

    def given(self, times: np.ndarray) -> np.ndarray:
        """Times as C gets them."""
        if self.tick is None:
            if not np.array_equal(times, np.arange(1, len(times) + 1)):
                raise UserError(
                    "the self-test's outputs are for own times, but samples are counted: export it with a tick, a "
                    "duration of which all times are whole numbers"
                )
            return times.astype(np.uint64)
        ticks = (times - self.start) / self.tick
        if (ticks < -WHOLE).any() or np.abs(ticks - np.rint(ticks)).max(initial=0.0) > WHOLE * np.abs(ticks).max():
            raise UserError(
                f"the self-test's times must be whole numbers of the tick, {self.tick:g}, from {self.start:g} on"
            )
        return np.rint(ticks).astype(np.uint64)


def timed_code(plan: Plan, source: str) -> str:
    """The code for a plan of this kind only, with what it includes."""
    timed = isinstance(plan, TimedPlan)
    source = resolved(source, "GLSTM_TIMED", timed).replace('#include "agenda.h"\n\n', "")
    return source.replace('#include "timed.h"\n', (NATIVE / "timed.h").read_text()) if timed else source


def check_timed(plan: TimedPlan, vectors: Vectors | None, times: Times) -> None:
    """A self-test that cannot pass is not written."""
    if times.tick is None:
        plan.require_counted()
    if vectors is None:
        return
    if vectors.x.ndim != 3 or not vectors.x.shape[1] or vectors.x.shape[2] != plan.inputs:
        expected = ("N", "T", plan.inputs)
        raise UserError(f"the self-test's sequences must have shape {expected}, but have {vectors.x.shape}")
    given = times.given(vectors.times)
    most, longest = int(np.diff(given, prepend=np.uint64(0)).max()), times.clock(plan).longest
    if most > longest:
        raise UserError(
            f"between two samples, and from the start to the first, there can be at most {longest:,} ticks, and in the "
            f"self-test there are {most:,}: choose a start near the first sample, or a longer tick"
        )


def timed_header(plan: TimedPlan, name: str, kind: str, times: Times, about: str, more: str) -> str:
    upper = name.upper()
    units = ", ".join(str(layer.units) for layer in plan.layers)
    until = "until the last gate closes" if plan.ends else "without an end"
    when, returns = "", "1 while gates open; 0 if all have closed for ever, and nothing will change any more"
    if times.tick is None:
        samples = "Samples are counted: they are at the times 1, 2, ..."
    else:
        samples = (
            f"t is the time of a sample: a whole number of {times.tick:.10g}, in the unit of the times of training, "
            f"from {times.start:.10g} on."
        )
        when = f"""
   t must be larger than that of the sample before, by at most {times.clock(plan).longest}; otherwise the sample is
   not taken, and the result is -1."""
    argument = "" if times.tick is None else ", uint64_t t"
    return f"""/* {name}: a gated LSTM of {units} units with {kind} weights, for streams {until}.
   Written by glstm. Needs no library, allocates nothing, has no state except the caller's.
   {samples}{about} */
#ifndef {upper}_H
#define {upper}_H

#include <stdint.h>

{(NATIVE / "agenda.h").read_text().strip()}

#ifdef __cplusplus
extern "C" {{
#endif

enum {{ {upper}_INPUTS = {plan.inputs}, {upper}_OUTPUTS = {plan.outputs} }};

/* All data that changes. It may be copied and stored; {name}_reset makes it ready. */
typedef struct {{
  uint64_t time; /* of the last sample */
  glstm_agenda place[{len(plan.layers)}];
  uint64_t opens[{plan.windows}];
  float number[{plan.numbers}];
  uint32_t step;
  uint16_t agenda[{plan.agenda}];
}} {name}_state;

void {name}_reset({name}_state *state);

/* Takes the next sample, {upper}_INPUTS numbers. Returns {returns}.{when} */
int {name}_step({name}_state *state, const float *x{argument});

/* Whether all gates have closed for ever. */
int {name}_finished(const {name}_state *state);

/* The network's output for the samples taken so far: {upper}_OUTPUTS numbers. */
void {name}_output(const {name}_state *state, float *y);
{more}
#ifdef __cplusplus
}}
#endif

#endif
"""


def timed_functions(plan: TimedPlan, name: str, times: Times) -> str:
    clock = times.clock(plan)
    numbers = ", ".join(f"{number}u" for number in (clock.begin, clock.ticks, clock.fine, clock.longest))
    if times.tick is None:
        argument, moment = "", "  state->time++;"
    else:
        argument = ", uint64_t t"
        moment = f"""  if (state->step && t <= state->time) return -1;
  if (t - (state->step ? state->time : 0) > {name}_clock.longest) return -1;
  state->time = t;"""
    standard = room = ""
    if plan.standard:
        room = f"  float standard[{plan.layers[0].inputs}];\n"
        standard = f"\n  glstm_standardize(&{name}_model, {name}_view(state), x, standard);\n  x = standard;"
    return f"""static const glstm_clock {name}_clock = {{{numbers}}};

static glstm_state {name}_view({name}_state *state) {{
  glstm_state view;
  view.step = &state->step, view.place = state->place, view.number = state->number;
  view.opens = state->opens, view.agenda = state->agenda;
  return view;
}}

void {name}_reset({name}_state *state) {{
  glstm_reset(&{name}_model, {name}_view(state));
  state->time = 0;
}}

int {name}_step({name}_state *state, const float *x{argument}) {{
{room}{moment}{standard}
  glstm_step(&{name}_model, {name}_view(state), glstm_moment(&{name}_clock, state->time), x);
  return !{name}_finished(state);
}}

int {name}_finished(const {name}_state *state) {{
  return glstm_finished(&{name}_model, state->step, state->place);
}}

void {name}_output(const {name}_state *state, float *y) {{
  float space[{plan.space}];
  glstm_output(&{name}_model, state->step, state->number, y, space);
}}
"""


def timed_program(plan: TimedPlan, name: str, times: Times) -> str:
    upper, timed = name.upper(), times.tick is not None
    what = "a line of outputs" if plan.classes is None else "a line of outputs, a tab and the class of the largest"
    when = "after each sample" if plan.every else "at the end of each sequence"
    sample = "the time of a sample, a whole number, and its numbers" if timed else "the numbers of a sample"
    time = "\n  unsigned long long t;" if timed else ""
    first = 'scanf("%llu", &t) == 1 && ' if timed else ""
    return f"""#ifdef {upper}_MAIN
#include <stdio.h>

{say(plan, name)}
{tell(name)}
/* Skips white space. Returns how many lines end in it, or -1 at the end of the input. */
static int {name}_skip(void) {{
  int sign, lines = 0;
  while ((sign = getchar()) == ' ' || sign == '\\t' || sign == '\\r' || sign == '\\n') lines += sign == '\\n';
  if (sign == EOF) return -1;
  ungetc(sign, stdin);
  return lines;
}}

/* From standard input, {sample}; {when}, {what}. An empty line, and the end of the input, end a sequence. */
int main(void) {{
  static {name}_state state;
  float x[{upper}_INPUTS];{time}
  int lines, n;
  {name}_reset(&state);
  for (;;) {{
    lines = {name}_skip();
    if (lines != 0 && lines != 1 && state.step) {{
      {"" if plan.every else f"{name}_tell(&state);"}
      {name}_reset(&state);
    }}
    if (lines < 0) return 0;
    n = {f"{first}1 ? 0 : -1" if timed else "0"};
    while (n >= 0 && n < {upper}_INPUTS && scanf("%f", x + n) == 1) n++;
    if (n < {upper}_INPUTS) {{
      fprintf(stderr, "{name}: a sample has {f"a time and {plan.inputs}" if timed else plan.inputs} numbers, \
and one in the input has not\\n");
      return 1;
    }}
    {f"if ({name}_step(&state, x, t) < 0) {{" if timed else f"{name}_step(&state, x);"}
{_refused(name) if timed else ""}    {f"{name}_tell(&state);" if plan.every else ""}
  }}
}}
#endif
"""


def _refused(name: str) -> str:
    return f"""      fprintf(stderr, "{name}: times must increase, and not by too much, but one is %llu\\n", t);
      return 1;
    }}
"""


def timed_self_test(plan: TimedPlan, name: str, vectors: Vectors, whom: str, times: Times) -> str:
    upper, steps = name.upper(), vectors.x.shape[1]
    readings = 1 if vectors.y.ndim == 2 else steps
    timed = times.tick is not None
    tested = f"""    {name}_reset(&state);
    for (step = 0; step < {steps}; step++, x += {upper}_INPUTS) {{
      float y[{upper}_OUTPUTS];
      if ({name}_step(&state, x{f", {name}_test_t[step]" if timed else ""}) < 0) {{
        printf("{name}: sample %d of sequence %d is not taken\\n", step, sequence);
        return 1;
      }}
      if (step < {steps} - {readings}) continue;
      {name}_output(&state, y);
      if ({name}_test_differs(sequence, y, expected, &worst)) return 1;
      expected += {upper}_OUTPUTS;
    }}"""
    data = c_array(f"{name}_test_t", times.given(vectors.times)) if timed else ""
    return checking_program(plan, name, vectors, whom, tested, data)
