"""A deployed network for browsers: the exported C as WebAssembly that imports nothing, and a small module around it."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from glstm.errors import UserError
from glstm.runtime.c_names import check_name
from glstm.runtime.export_c import Times, c_texts
from glstm.runtime.int8_states import Int8States
from glstm.runtime.plan import Plan
from glstm.runtime.quantize import Quantized
from glstm.runtime.timed_plan import TimedPlan
from glstm.storage import write_together

STACK = 65536  # bytes, besides what the head's rows take

# The two functions of the C library that exported C calls. No compiler may make their loops into calls of themselves.
STRING_H = """#include <stddef.h>
void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int value, size_t size);
"""
STRING_C = """
__attribute__((no_builtin("memcpy"))) void *memcpy(void *to, const void *from, size_t size) {
  size_t n;
  for (n = 0; n < size; n++) ((char *)to)[n] = ((const char *)from)[n];
  return to;
}

__attribute__((no_builtin("memset"))) void *memset(void *to, int value, size_t size) {
  size_t n;
  for (n = 0; n < size; n++) ((char *)to)[n] = (char)value;
  return to;
}

"""


def wasm_compiler() -> list[str]:
    """The command that compiles C to WebAssembly: clang with its linker, else the one that the extra `wasm` brings."""
    linker = shutil.which("wasm-ld")
    if linker and shutil.which("clang"):
        return ["clang", "--target=wasm32", f"-fuse-ld={linker}"]  # some clangs look for it under another name
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-freestanding"]
    raise UserError(
        "WebAssembly needs a compiler: clang and wasm-ld, which are in Debian's packages clang and lld, or "
        "pip install 'glstm[wasm]'"
    )


def export_wasm(
    plan: Plan, folder: Path | str, name: str, int8: Quantized | Int8States | None = None, *, times: Times | None = None
) -> list[Path]:
    """Write NAME.wasm and NAME.js, an ES module that loads it: both completely, or neither. `times`: see `export_c`."""
    check_name(name)
    times = times or Times()
    files = {f"{name}.wasm": _compiled(plan, name, int8, times), f"{name}.js": _module(plan, name, times).encode()}
    write_together(Path(folder), files)
    return [Path(folder) / file for file in files]


def _compiled(plan: Plan, name: str, int8: Quantized | Int8States | None, times: Times) -> bytes:
    header, source = c_texts(plan, name, None, int8, times=times)
    command = [
        *wasm_compiler(), "-std=c99", "-O2", "-fno-sanitize=all", "-nostdlib", "-I.", f"{name}.c",
        "-Wl,--no-entry", "-Wl,--strip-all", f"-Wl,-z,stack-size={STACK + 16 * plan.space}", "-o", f"{name}.wasm",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        texts = {
            f"{name}.h": header,
            f"{name}.c": source + STRING_C + _exports(plan, name, times),
            "string.h": STRING_H,
        }
        for file, text in texts.items():
            (folder / file).write_text(text)
        nothing_left = os.environ | {f"ZIG_{whose}_CACHE_DIR": made for whose in ("GLOBAL", "LOCAL")}
        done = subprocess.run(
            command, cwd=folder, env=nothing_left, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split())
            raise UserError(f"{command[0]} cannot compile the network to WebAssembly: {said[:300]}")
        return (folder / f"{name}.wasm").read_bytes()


def _exports(plan: Plan, name: str, times: Times) -> str:
    """One network with its state, and room for what goes in and comes out."""
    inputs, outputs = _sizes(plan)
    time, t = ("uint64_t t", ", t") if times.tick is not None else ("void", "")
    functions = {"x": ("float *", "void", "return in;"), "y": ("float *", "void", "return out;")}
    if plan.two_ways:
        functions["run"] = "void ", "void", f"{name}_run(&state, in, out);"
    else:
        functions["reset"] = "void ", "void", f"{name}_reset(&state);"
        functions["step"] = "int ", time, f"return {name}_step(&state, in{t});"
        functions["output"] = "void ", "void", f"{name}_output(&state, out);"
    exported = (
        f'__attribute__((export_name("{what}"))) {returns}{name}_wasm_{what}({takes}) {{ {body} }}'
        for what, (returns, takes, body) in functions.items()
    )
    rows = f"static {name}_state state;\nstatic float in[{inputs}], out[{outputs}];"
    return "\n".join([rows, *exported]) + "\n"


def _sizes(plan: Plan) -> tuple[int, int]:
    """How many numbers go in and come out at a time."""
    if not plan.two_ways:
        return plan.inputs, plan.outputs
    return plan.steps * plan.inputs, plan.outputs * (plan.steps if plan.every else 1)


def _module(plan: Plan, name: str, times: Times) -> str:
    inputs, outputs = _sizes(plan)
    of = "window" if plan.two_ways else "sample"
    steps = "null" if isinstance(plan, TimedPlan) else plan.steps
    return f"""// {name}: a gated LSTM in WebAssembly. Written by glstm; it needs {name}.wasm, and nothing else.
export const steps = {steps}, inputs = {plan.inputs}, outputs = {plan.outputs};
export const classes = {json.dumps(plan.classes)};

// A network, with a state of its own. Without the bytes of {name}.wasm, the file beside this one is fetched.
export async function load(bytes) {{
  if (bytes === undefined) {{
    const answer = await fetch(new URL("./{name}.wasm", import.meta.url));
    if (!answer.ok) throw new Error(`${{answer.url}} cannot be read: ${{answer.status}}`);
    bytes = await answer.arrayBuffer();
  }}
  const {{ instance }} = await WebAssembly.instantiate(bytes);
  const made = instance.exports;
  const x = new Float32Array(made.memory.buffer, made.x(), {inputs});
  const y = new Float32Array(made.memory.buffer, made.y(), {outputs});
  const give = ({of}) => {{
    if ({of}.length !== {inputs}) throw new RangeError(`a {of} has {inputs} numbers, not ${{{of}.length}}`);
    x.set({of});
  }};
{_window_object() if plan.two_ways else _stream_object(plan, times)}
}}
"""


def _stream_object(plan: Plan, times: Times) -> str:
    more = "while gates open" if isinstance(plan, TimedPlan) else "while more samples are expected"
    taken = "return made.step() === 1;"
    if times.tick is not None:
        taken = """const more = made.step(BigInt(t));
      if (more < 0) throw new RangeError(`times must increase, and not by too much, but one is ${t}`);
      return more === 1;"""
    return f"""  made.reset();
  return {{
    reset: () => made.reset(),
    step: (sample{", t" * (times.tick is not None)}) => {{ // true {more}
      give(sample);
      {taken}
    }},
    output: () => {{ // for the samples taken so far
      made.output();
      return y.slice();
    }},
  }};"""


def _window_object() -> str:
    return """  return {
    run: (window) => { // a whole one, a row a sample
      give(window);
      made.run();
      return y.slice();
    },
  };"""
