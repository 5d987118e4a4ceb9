"""The two programs in an exported .c: one that reads samples from standard input, one that checks the network."""

from dataclasses import dataclass

import numpy as np

from glstm.runtime.c_text import c_array
from glstm.runtime.plan import Plan


@dataclass(frozen=True)
class Vectors:
    """For the self-test: sequences (N, T, inputs) at times (T,), and PyTorch's outputs for them: (N, outputs), or
    (N, T, outputs) of a network that reads every step."""

    x: np.ndarray
    y: np.ndarray
    times: np.ndarray


def main_program(plan: Plan, name: str) -> str:
    if plan.two_ways:
        return _window_program(plan, name)
    upper = name.upper()
    when = "after each sample" if plan.every else "after each whole sequence, and at the end of the input"
    what = "a line of outputs" if plan.classes is None else "a line of outputs, a tab and the class of the largest"
    told = f"{name}_tell(&state);"
    return f"""#ifdef {upper}_MAIN
#include <stdio.h>

/* Numbers from standard input; {when}, {what}. An empty line ends a sequence
   that is shorter. */
{say(plan, name)}
{tell(name)}
/* As scanf with the next number; but 2 if an empty line comes before it. */
static int {name}_number(float *number) {{
  int sign, lines = 0;
  while ((sign = getchar()) == ' ' || sign == '\\t' || sign == '\\r' || sign == '\\n') lines += sign == '\\n';
  if (sign != EOF) ungetc(sign, stdin);
  return lines > 1 ? 2 : scanf("%f", number);
}}

int main(void) {{
  {name}_state state;
  float x[{upper}_INPUTS];
  int read = 0, got;
  {name}_reset(&state);
  while ((got = {name}_number(x + read)) > 0) {{
    int more;
    if (got == 2) {{
      if (read) break;
      {"" if plan.every else f"if (state.step) {told}"}
      if (state.step) {name}_reset(&state);
      continue;
    }}
    if (++read < {upper}_INPUTS) continue;
    read = 0;
    more = {name}_step(&state, x);
    {told if plan.every else f"if (!more) {told}"}
    if (!more) {name}_reset(&state);
  }}
  if (got == 0 || read) {{
    fprintf(stderr, got == 0 ? "{name}: the input holds something that is no number\\n"
                             : "{name}: the input ends within a sample of %d numbers\\n", {upper}_INPUTS);
    return 1;
  }}
  if (state.step) {{
    fprintf(stderr, "{name}: the last sequence has only %d of %d samples\\n", (int)state.step, {upper}_STEPS);
    {"" if plan.every else told}
  }}
  return 0;
}}
#endif
"""


def _window_program(plan: Plan, name: str) -> str:
    """Of a network that takes whole windows. They are static: a stack may be small."""
    upper = name.upper()
    answers = f"{upper}_STEPS * {upper}_OUTPUTS" if plan.every else f"{upper}_OUTPUTS"
    return f"""#ifdef {upper}_MAIN
#include <stdio.h>

/* Numbers from standard input; for each window {"a line for each sample" if plan.every else "a line"}. */
{say(plan, name)}
int main(void) {{
  static {name}_state state;
  static float x[{upper}_STEPS * {upper}_INPUTS], y[{answers}];
  int read = 0, got, n;
  while ((got = scanf("%f", x + read)) == 1) {{
    if (++read < {upper}_STEPS * {upper}_INPUTS) continue;
    read = 0;
    {name}_run(&state, x, y);
    for (n = 0; n < {answers}; n += {upper}_OUTPUTS) {name}_say(y + n);
  }}
  if (got == 0 || read) {{
    fprintf(stderr, got == 0 ? "{name}: the input holds something that is no number\\n"
                             : "{name}: the input ends within a window of %d numbers\\n",
            {upper}_STEPS * {upper}_INPUTS);
    return 1;
  }}
  return 0;
}}
#endif
"""


def say(plan: Plan, name: str) -> str:
    """A function that prints outputs."""
    upper = name.upper()
    if plan.classes is None:
        return f"""static void {name}_say(const float *y) {{
  int n;
  for (n = 0; n < {upper}_OUTPUTS; n++) printf("%.9g%c", (double)y[n], n + 1 < {upper}_OUTPUTS ? ' ' : '\\n');
}}
"""
    return f"""static void {name}_say(const float *y) {{
  int n, best = 0;
  for (n = 0; n < {upper}_OUTPUTS; n++) {{
    printf("%.9g%c", (double)y[n], n + 1 < {upper}_OUTPUTS ? ' ' : '\\t');
    if (y[n] > y[best]) best = n;
  }}
  puts({name}_classes[best]);
}}
"""


def tell(name: str) -> str:
    """A function that prints the outputs for a state."""
    return f"""static void {name}_tell(const {name}_state *state) {{
  float y[{name.upper()}_OUTPUTS];
  {name}_output(state, y);
  {name}_say(y);
}}
"""


def self_test(plan: Plan, name: str, vectors: Vectors, whom: str) -> str:
    readings = 1 if vectors.y.ndim == 2 else plan.steps
    tested = _windows_tested(name, readings) if plan.two_ways else _steps_tested(name, readings)
    return checking_program(plan, name, vectors, whom, tested)


def checking_program(plan: Plan, name: str, vectors: Vectors, whom: str, tested: str, data: str = "") -> str:
    """`tested`: what is done with each sequence; `data`: what that needs besides the vectors."""
    upper, count = name.upper(), len(vectors.x)
    allowed = plan.unit.allowed(vectors.y).astype(np.float32)
    all_finite = np.isfinite(vectors.x).all() and np.isfinite(vectors.y).all()
    return f"""#ifdef {upper}_TEST
{"" if all_finite else "#include <math.h>"}
#include <stdio.h>

{c_array(f"{name}_test_x", vectors.x.astype(np.float32))}
{c_array(f"{name}_test_y", vectors.y.astype(np.float32))}
{c_array(f"{name}_test_allowed", allowed)}
{data}

/* Compares with PyTorch's outputs for {count} sequences; each output may differ by as much as is allowed above. */
static int {name}_test_differs(int sequence, const float *y, const float *expected, float *worst) {{
  int n;
  for (n = 0; n < {upper}_OUTPUTS; n++) {{
    float error = y[n] < expected[n] ? expected[n] - y[n] : y[n] - expected[n];
    if (!(error <= {name}_test_allowed[n])) {{ /* also if it is not a number */
      printf("{name}: output %d of sequence %d is %g, not %g\\n", n, sequence, (double)y[n], (double)expected[n]);
      return 1;
    }}
    if (error > *worst) *worst = error;
  }}
  return 0;
}}

int main(void) {{
  static {name}_state state;
  const float *x = {name}_test_x, *expected = {name}_test_y;
  float worst = 0;
  int sequence, step;
  for (sequence = 0; sequence < {count}; sequence++) {{
{tested}
  }}
  printf("{name}: largest difference from {whom} %g\\n", (double)worst);
  return 0;
}}
#endif
"""


def _steps_tested(name: str, readings: int) -> str:
    upper = name.upper()
    return f"""    {name}_reset(&state);
    for (step = 1; step <= {upper}_STEPS; step++, x += {upper}_INPUTS) {{
      float y[{upper}_OUTPUTS];
      {name}_step(&state, x);
      if (step <= {upper}_STEPS - {readings}) continue;
      {name}_output(&state, y);
      if ({name}_test_differs(sequence, y, expected, &worst)) return 1;
      expected += {upper}_OUTPUTS;
    }}"""


def _windows_tested(name: str, readings: int) -> str:
    upper = name.upper()
    return f"""    static float y[{readings} * {upper}_OUTPUTS];
    {name}_run(&state, x, y);
    for (step = 0; step < {readings}; step++, expected += {upper}_OUTPUTS)
      if ({name}_test_differs(sequence, y + step * {upper}_OUTPUTS, expected, &worst)) return 1;
    x += {upper}_STEPS * {upper}_INPUTS;"""
