"""Exported C of overlapping windows on a stream without an end: see `windows.py`."""

from dataclasses import dataclass

from glstm.errors import UserError
from glstm.runtime.c_timed import Times
from glstm.runtime.plan import Plan


@dataclass(frozen=True)
class WindowsInC:
    plan: Plan
    name: str
    length: int
    hop: int
    state_bytes: int  # of one window

    @property
    def count(self) -> int:
        return -(-self.length // self.hop)

    def check(self, times: Times) -> None:
        if self.length < 1 or self.hop < 1:
            raise UserError(f"windows are (length, hop), each at least 1 sample, not ({self.length}, {self.hop})")
        if times.tick is not None:
            raise UserError("windows are counted in samples, which then cannot have own times: leave out the tick")
        self.plan.require_window(self.length)

    def declared_in(self, header: str) -> str:
        """The header with the windows' struct and functions."""
        name, upper = self.name, self.name.upper()
        operations, size = self.plan.ops_of(self.length) / self.hop, self.count * self.state_bytes
        text = f"""
/* Windows of {upper}_LENGTH samples on a stream without an end, one beginning every {upper}_HOP samples.
   {upper}_WINDOWS of them at once, each with its own state: {operations:,.0f} operations a sample, {size:,} bytes. */
enum {{ {upper}_LENGTH = {self.length}, {upper}_HOP = {self.hop}, {upper}_WINDOWS = {self.count} }};

typedef struct {{
  uint64_t start; /* of the window that ended last: the number of its first sample, counted from 0 */
  uint64_t samples;
  uint32_t since, newest; /* samples since a window began; its place */
  {name}_state state[{upper}_WINDOWS];
}} {name}_windows;

void {name}_windows_reset({name}_windows *windows);

/* Takes the next sample. Returns 1 if a window ends with it: then y is its output, {upper}_OUTPUTS numbers. */
int {name}_windows_step({name}_windows *windows, const float *x, float *y);
"""
        end = "\n#ifdef __cplusplus\n}\n#endif\n"
        return header.replace(end, text + end)

    @property
    def functions(self) -> str:
        name, upper = self.name, self.name.upper()
        return f"""void {name}_windows_reset({name}_windows *windows) {{
  uint32_t n;
  windows->start = windows->samples = 0;
  windows->since = 0, windows->newest = {upper}_WINDOWS - 1;
  for (n = 0; n < {upper}_WINDOWS; n++) {name}_reset(windows->state + n), windows->state[n].step = {upper}_LENGTH;
}}

int {name}_windows_step({name}_windows *windows, const float *x, float *y) {{
  uint32_t n;
  int ended = 0;
  if (windows->since == 0) {{
    windows->newest = windows->newest + 1 == {upper}_WINDOWS ? 0 : windows->newest + 1;
    {name}_reset(windows->state + windows->newest);
  }}
  windows->since = windows->since + 1 == {upper}_HOP ? 0 : windows->since + 1;
  windows->samples++;
  for (n = 0; n < {upper}_WINDOWS; n++) {{
    {name}_state *state = windows->state + n;
    if (state->step == {upper}_LENGTH) continue; /* it has ended, or has not begun */
    {name}_step(state, x);
    if (state->step < {upper}_LENGTH) continue;
    {name}_output(state, y);
    windows->start = windows->samples - {upper}_LENGTH;
    ended = 1;
  }}
  return ended;
}}
"""
