"""Streams without an end, and at times that nobody knows beforehand: that they are right, and what a step costs.

Each is compared with the layer in PyTorch. Inputs are a hash of the step's number, so that Python and C make the same
ones, and nobody has to keep them.
"""

import math
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glstm.bench import cortex_m4
from glstm.bench.race import Call, Contender, race
from glstm.errors import UserError
from glstm.gated import GatedLSTM
from glstm.gates import Periodic
from glstm.layers import GLSTM
from glstm.models import SequenceModel
from glstm.runtime import deploy
from glstm.runtime.export_c import Times, export_c, vectors_from, whole_vectors
from glstm.runtime.int8_states import int8_states
from glstm.runtime.quantize import dequantized, quantize
from glstm.runtime.stream import Stream
from glstm.runtime.timed_runtime import TimedRuntime
from glstm.streaming import stream as read_in_pieces

HIDDEN, OUTPUTS = 110, 10
PERIOD = 784  # steps, on average
V_T = 0.01
REACH = math.sqrt(-math.log(V_T))  # widths from the middle of a gate to where it closes
SHARES = (0.02, 0.05, 0.1)  # openness
PIECE = 100_000  # steps
TICK = 0.001  # of times in C


def one_shot(share: float) -> SequenceModel:
    """Every unit opens once in PERIOD steps, for this share of them."""
    torch.manual_seed(0)
    sigma = share * PERIOD / (2 * REACH)
    reach = REACH * sigma
    return _network(GLSTM(1, HIDDEN, mu=(1 + reach, PERIOD - reach), sigma=sigma))


def periodic(share: float) -> SequenceModel:
    """Every unit is open for this share of a period of its own, around PERIOD steps."""
    torch.manual_seed(1)
    tau = torch.empty(HIDDEN).uniform_(0.8 * PERIOD, 1.2 * PERIOD)
    return _network(GatedLSTM(1, HIDDEN, gate=Periodic((0.0, float(PERIOD)), share * tau / (2 * REACH), tau)))


def _network(layer: GatedLSTM) -> SequenceModel:
    """Weights as torch draws them: with much larger ones a network is chaotic, and rounding errors grow and grow."""
    return SequenceModel(layer, torch.nn.Linear(HIDDEN, OUTPUTS)).eval()


def timed(model: SequenceModel) -> TimedRuntime:
    runtime = deploy(model, threshold=V_T, reads="last")
    assert isinstance(runtime, TimedRuntime)
    return runtime


def inputs(first: int, count: int) -> np.ndarray:
    """x (count, 1) of the steps from `first` on, between -2 and 2. The C program below has the same function."""
    bits = np.arange(first, first + count, dtype=np.uint64).astype(np.uint32) * np.uint32(2654435761)
    bits ^= bits >> np.uint32(15)
    bits *= np.uint32(2246822519)
    bits ^= bits >> np.uint32(13)
    return ((bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-22) - np.float32(2))[:, None]


def speed(seconds: float) -> list[dict[str, Any]]:
    """Microseconds a step, in C and from Python: a known window of gates that open once, and gates that come back."""
    found = []
    for share in SHARES:
        known, once = deploy(one_shot(share), PERIOD, V_T), timed(one_shot(share))
        again = timed(periodic(share))
        running = again.stream()
        running.take(inputs(1, 2 * PERIOD))  # until all units have been open
        contenders = {
            "known window, C": _in_c(known.stream(), resets=True),
            "known window, Python": _in_python(known.stream(), resets=True),
            "one-shot, in time, C": _in_c(once.stream(), resets=True),
            "periodic, C": _in_c(running, resets=False),
            "periodic, Python": _in_python(running, resets=False),
        }
        timings = race({name: _anyway(call) for name, call in contenders.items()}, (1,), seconds)
        steps = {name: 1e6 * timing.seconds / PERIOD for name, timing in timings.items()}
        ratios = {where: steps[f"periodic, {where}"] / steps[f"known window, {where}"] for where in ("C", "Python")}
        found.append(
            {
                "openness": {"known window": known.openness, "periodic": again.openness},
                "operations_a_step": {"known window": known.ops / PERIOD, "periodic": again.ops / again.plan.steps},
                "microseconds_a_step": steps,
                "periodic_by_known": ratios,
            }
        )
    return found


def _anyway(call: Call) -> Contender:
    """A contender for which the number of threads does not matter."""
    return lambda threads: call


def _in_c(stream: Stream, resets: bool) -> Call:
    x = inputs(1, PERIOD)

    def call() -> None:
        if resets:
            stream.reset()
        stream.take(x)

    return call


def _in_python(stream: Stream, resets: bool) -> Call:
    numbers = [float(value) for value in inputs(1, PERIOD)[:, 0]]

    def call() -> None:
        if resets:
            stream.reset()
        for value in numbers:
            stream.step(value)

    return call


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def endless(steps: int, share: float = 0.03) -> dict[str, Any]:
    """A periodic stream of so many steps, one Python call for each, and in C; after every tenth of them its output is
    compared with that of the layer."""
    model = periodic(share)
    marks = steps // 10
    runtime = timed(model)
    stream, ours = runtime.stream(), []
    spent, early = 0.0, 0
    for first in range(1, steps + 1, PIECE):
        block = [float(value) for value in inputs(first, min(PIECE, steps + 1 - first))[:, 0]]
        before = time.process_time()  # not what others do on this machine meanwhile
        for value in block:
            stream.step(value)
        spent += time.process_time() - before
        if stream.position % marks == 0:
            ours.append(stream.output())
            early = early or resident()
    grown = resident() - early
    theirs = _of_the_layer(model, steps, marks)
    in_c, seconds_c = _exported_endless(model, steps, marks)
    return {
        "steps": steps,
        "openness": runtime.openness,
        "state_bytes": runtime.memory.state,
        "python": {
            "microseconds_a_step": 1e6 * spent / steps,
            "memory_grown_bytes": grown,  # after the first tenth
            "largest_difference": float(np.abs(np.array(ours) - theirs).max()),
        },
        "c": {
            "microseconds_a_step": 1e6 * seconds_c / steps,
            "largest_difference": float(np.abs(in_c - theirs).max()),
        },
        "largest_output": float(np.abs(theirs).max()),
    }


@torch.no_grad()
def _of_the_layer(model: SequenceModel, steps: int, marks: int) -> np.ndarray:
    model.layer.threshold = V_T

    def pieces() -> Iterator[torch.Tensor]:
        for first in range(1, steps + 1, PIECE):
            yield torch.from_numpy(inputs(first, min(PIECE, steps + 1 - first)))[:, None]

    found, done = [], 0
    for number, (_, (h, _)) in enumerate(read_in_pieces(model.layer, pieces(), sequence=False)):
        done = min(steps, (number + 1) * PIECE)
        if done % marks == 0:
            found.append(model.head(h[-1])[0].numpy())
    return np.array(found)


ENDLESS_MAIN = """#include <stdio.h>
#include "net.h"
int main(void) {
  static net_state state;
  float y[NET_OUTPUTS];
  uint32_t n;
  int i;
  net_reset(&state);
  for (n = 1; n <= STEPS; n++) {
    uint32_t bits = n * 2654435761u;
    float x[1];
    bits ^= bits >> 15, bits *= 2246822519u, bits ^= bits >> 13;
    x[0] = (float)(bits >> 8) * 2.384185791015625e-07f - 2.0f;
    net_step(&state, x);
    if (n % MARKS) continue;
    net_output(&state, y);
    for (i = 0; i < NET_OUTPUTS; i++) printf("%.9g ", (double)y[i]);
    puts("");
  }
  return 0;
}
"""


def _exported_endless(model: SequenceModel, steps: int, marks: int) -> tuple[np.ndarray, float]:
    """Outputs at the marks, and seconds of the processor."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise UserError("to measure exported C, this machine needs a C compiler, cc")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        x = torch.from_numpy(inputs(1, 2 * PERIOD))[:, None]
        export_c(timed(model).plan, folder, "net", vectors_from(model, V_T, x))
        (folder / "main.c").write_text(ENDLESS_MAIN)
        options = [f"-DSTEPS={steps}u", f"-DMARKS={marks}u", "-std=c99", "-O2"]
        _checked([compiler, *options, "main.c", "net.c", "-o", "main"], folder)
        _checked([compiler, "-std=c99", "-O2", "-DNET_TEST", "net.c", "-o", "check"], folder)
        _checked(["./check"], folder)
        before = os.times().children_user
        said = _checked(["./main"], folder)
        seconds = os.times().children_user - before
    return np.array([line.split() for line in said.splitlines()], np.float64), seconds


def _checked(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{command[0]} ended with {done.returncode}: {(done.stderr or done.stdout)[:300]}")
    return done.stdout


def gaps(steps: int) -> np.ndarray:
    """Times in whole ticks: mostly near each other, with some gaps in which whole periods pass."""
    draws = np.random.default_rng(0)
    between = draws.exponential(1.0, steps) * np.where(draws.random(steps) < 0.01, 300.0, 1.0)
    return np.cumsum(np.maximum(1, np.rint(between / TICK))) * TICK


def irregular(steps: int = 5000, share: float = 0.05) -> dict[str, Any]:
    """Samples at times that nobody knew beforehand, compared after every one, in Python, in C and in ONNX Runtime."""
    from glstm.runtime.check_onnx import session
    from glstm.runtime.export_onnx import export_whole

    found = {}
    times = gaps(steps)
    for name, model in (("periodic", periodic(share)), ("one-shot", one_shot(share))):
        model.reads = "every"
        x = torch.from_numpy(inputs(1, steps))[:, None]
        at = times if name == "periodic" else times * (PERIOD / times[-1])
        at = np.unique(np.rint(at / TICK)) * TICK
        vectors = vectors_from(model, V_T, x[: len(at)], at)
        runtime = deploy(model, threshold=V_T)
        stream = runtime.stream()
        rows = [stream.step(sample, t) for sample, t in zip(x[: len(at), 0].numpy(), at) if not stream.finished]
        ours = np.array(rows)
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            export_c(runtime.plan, folder, "net", vectors, times=Times(TICK))
            _checked(["cc", "-std=c99", "-O2", "-DNET_TEST", "net.c", "-o", "check"], folder)
            in_c = float(_checked(["./check"], folder).split()[-1])
        python = float(np.abs(ours - vectors.y[0, : len(ours)]).max())
        model.layer.threshold = V_T
        given = {"x": x[: len(at)].numpy(), "times": at[:, None]}
        (y,) = session(export_whole(model, times_as_input=True)).run(None, given)
        in_onnx = float(np.abs(np.asarray(y)[:, 0] - vectors.y[0]).max())
        found[name] = {"samples": len(ours), "largest_difference": {"python": python, "c": in_c, "onnx": in_onnx}}
    return found


def on_a_cortex_m4(share: float = 0.05) -> dict[str, dict[str, Any]]:
    """Flash, RAM and instructions of one-shot, periodic and timed streams, with float32 and int8 weights; of known
    steps, also with int8 states."""
    found = {}
    steps = np.arange(1.0, PERIOD + 1)
    x = torch.from_numpy(inputs(1, PERIOD))[:, None]
    for name, model in (("one-shot, known window", one_shot(share)), ("periodic, counted", periodic(share))):
        for kind in ("float32", "int8"):
            plan = deploy(model, PERIOD if "known" in name else None, V_T).plan
            table = plan if "known" in name else timed(model).plan.at(steps)
            int8 = quantize(table, x) if kind == "int8" else None
            says = dequantized(model, plan, int8) if int8 else model
            vectors = vectors_from(says, V_T, x, steps)
            before = 0 if "known" in name else PERIOD
            found[f"{name}, {kind}"] = asdict(cortex_m4.measure(plan, vectors, int8, before=before, steps=PERIOD))
            if "known" not in name:
                ticks = Times(TICK)
                one = cortex_m4.measure(plan, vectors, int8, times=ticks, before=before, steps=PERIOD)
                found[f"periodic, with times, {kind}"] = asdict(one)
            elif int8:
                states = int8_states(plan, x)
                found[f"{name}, int8 states"] = asdict(cortex_m4.measure(plan, whole_vectors(states, x), states))
    return found
