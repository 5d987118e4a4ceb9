"""Exported C as the folder that a build system expects: an Arduino library, or a module for Zephyr and CMake."""

from collections.abc import Callable

from glstm.errors import UserError
from glstm.runtime.c_timed import Times
from glstm.runtime.plan import Plan
from glstm.runtime.timed_plan import TimedPlan

# Boards on which constant data stay in flash. On an AVR the weights would be copied into its few bytes of RAM.
FLASH_ARCHITECTURES = "esp32,mbed,mbed_nano,mbed_portenta,nrf52,renesas_uno,rp2040,sam,samd,stm32,teensy,zephyr"

TIME_WORD = """    if (!has_time) {
      t = strtoull(word, 0, 10);
      has_time = 1;
      continue;
    }
"""


def check_layout(layout: str) -> None:
    if layout not in LAYOUTS:
        raise UserError(f"a layout is one of {', '.join(LAYOUTS)}, not {layout!r}")


def laid_out(layout: str, plan: Plan, name: str, header: str, source: str, times: Times) -> dict[str, str]:
    """The texts of all files, by their paths below the folder of the export. `times`: how C is told when a sample of a
    timed plan comes."""
    check_layout(layout)
    return LAYOUTS[layout](plan, name, header, source, times)


def _plain(plan: Plan, name: str, header: str, source: str, times: Times) -> dict[str, str]:
    return {f"{name}.h": header, f"{name}.c": source}


def _arduino(plan: Plan, name: str, header: str, source: str, times: Times) -> dict[str, str]:
    files = {
        "library.properties": _library_properties(plan, name),
        "keywords.txt": _keywords(plan, name),
        f"src/{name}.h": header,
        f"src/{name}.c": source,
        "examples/serial/serial.ino": _sketch(plan, name, times),
    }
    return {f"{name}/{path}": text for path, text in files.items()}


def _library_properties(plan: Plan, name: str) -> str:
    return f"""name={name}
version=1.0.0
author=glstm
maintainer=glstm
sentence=A gated LSTM, {plan.inputs} numbers a sample in, {plan.outputs} out.
paragraph=Plain C without allocation. Its constant data stay in flash on the architectures named here.
category=Data Processing
url=
architectures={FLASH_ARCHITECTURES}
includes={name}.h
"""


def _keywords(plan: Plan, name: str) -> str:
    """Names that the Arduino editor shows in colour; a tab must stand before each kind."""
    upper = name.upper()
    timed = isinstance(plan, TimedPlan)
    functions = ["run"] if plan.two_ways else ["reset", "step", "output", *["finished"] * timed]
    words = [(f"{name}_state", "KEYWORD1"), *((f"{name}_{one}", "KEYWORD2") for one in functions)]
    words += [(f"{upper}_{one}", "LITERAL1") for one in (*["STEPS"] * (not timed), "INPUTS", "OUTPUTS")]
    return "".join(f"{word}\t{kind}\n" for word, kind in words)


def _sketch(plan: Plan, name: str, times: Times) -> str:
    upper = name.upper()
    per_sample, when = f"{upper}_INPUTS", "after each sequence"
    answers, took = f"{upper}_OUTPUTS", _stepped(plan, name)
    if plan.every or isinstance(plan, TimedPlan):
        when = "after each sample"
    if plan.two_ways:
        per_sample, when = f"{upper}_STEPS * {upper}_INPUTS", "after each window"
        answers = f"{upper}_STEPS * {upper}_OUTPUTS" if plan.every else answers
        took = f"""  {name}_run(&state, x, y);
  for (int n = 0; n < {answers}; n += {upper}_OUTPUTS) tell(y + n);"""
    ticks = times.tick is not None
    if ticks:
        took = took.replace("(&state, x)", "(&state, x, t)")
    sample = f"a time in whole ticks and {plan.inputs}" if ticks else str(plan.inputs)
    clock = "static uint64_t t;\nstatic int has_time = 0;\n" if ticks else ""
    time = TIME_WORD if ticks else ""
    done = "has_time = 0;\n    " if ticks else ""
    begin = "" if plan.two_ways else f"\n  {name}_reset(&state);"
    largest = "" if plan.classes is None else "\n    if (y[n] > y[best]) best = n;"
    best = "" if plan.classes is None else "  int best = 0;\n"
    end = "Serial.println();" if plan.classes is None else f"Serial.println({name}_classes[best]);"
    return f"""/* Numbers from the serial port, {sample} a sample, each followed by a space or a new line.
   A line of outputs goes back {when}. In a program of your own, take what a sensor says instead. */
#include <{name}.h>

static {name}_state state;
static float x[{per_sample}], y[{answers}];
static char word[32];
static unsigned length = 0, count = 0;
{clock}
static void tell(const float *y) {{
{best}  for (int n = 0; n < {upper}_OUTPUTS; n++) {{
    Serial.print(y[n], 6);
    Serial.print(' ');{largest}
  }}
  {end}
}}

static void take() {{
{took}
}}

void setup() {{
  Serial.begin(115200);{begin}
}}

void loop() {{
  while (Serial.available() > 0) {{
    char sign = (char)Serial.read();
    if (sign > ' ') {{
      if (length + 1 < sizeof word) word[length++] = sign;
      continue;
    }}
    if (length == 0) continue;
    word[length] = 0;
    length = 0;
{time}    x[count++] = (float)atof(word);
    if (count < sizeof x / sizeof *x) continue;
    count = 0;
    {done}take();
  }}
}}
"""


def _stepped(plan: Plan, name: str) -> str:
    told = f"{name}_output(&state, y);\n  tell(y);"
    if isinstance(plan, TimedPlan):  # it has no last sample
        return f"  {name}_step(&state, x);\n  {told}"
    if plan.every:
        return f"""  int more = {name}_step(&state, x);
  {told}
  if (!more) {name}_reset(&state);"""
    return f"""  if ({name}_step(&state, x)) return;
  {told}
  {name}_reset(&state);"""


def _zephyr(plan: Plan, name: str, header: str, source: str, times: Times) -> dict[str, str]:
    option = f"GLSTM_{name.upper()}"
    files = {
        "zephyr/module.yml": f"name: {name}\nbuild:\n  cmake: .\n  kconfig: Kconfig\n",
        "Kconfig": f"""config {option}
\tbool "The network {name}"
\thelp
\t  A gated LSTM in plain C, {plan.inputs} numbers a sample in, {plan.outputs} out: see {name}.h.
\t  Its arithmetic is in float32, so a board with a floating-point unit should
\t  have CONFIG_FPU set.
""",
        "CMakeLists.txt": f"""# A module of Zephyr, switched on by CONFIG_{option}=y; elsewhere, a library.
if(DEFINED ZEPHYR_CURRENT_MODULE_DIR)
  if(CONFIG_{option})
    zephyr_library_named({name})
    zephyr_library_sources(src/{name}.c)
    zephyr_include_directories(include)
  endif()
else()
  cmake_minimum_required(VERSION 3.13)
  project({name} C)
  add_library({name} STATIC src/{name}.c)
  target_include_directories({name} PUBLIC include)
  set_target_properties({name} PROPERTIES C_STANDARD 99)
endif()
""",
        f"include/{name}.h": header,
        f"src/{name}.c": source,
    }
    return {f"{name}/{path}": text for path, text in files.items()}


LAYOUTS: dict[str, Callable[[Plan, str, str, str, Times], dict[str, str]]] = {
    "plain": _plain,
    "arduino": _arduino,
    "zephyr": _zephyr,
}
