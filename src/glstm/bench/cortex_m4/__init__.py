"""Exported C on an emulated Cortex-M4: its outputs compared with PyTorch, and the number of instructions."""

import copy
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from glstm.errors import UserError
from glstm.layers import LSTM
from glstm.models import SequenceModel
from glstm.runtime.export_c import Times, Vectors, export_c
from glstm.runtime.int8_states import Int8States
from glstm.runtime.plan import Plan
from glstm.runtime.quantize import Quantized

HERE = Path(__file__).parent
CPU = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-O2", "-ffp-contract=fast"]
TOOLS = {"arm-none-eabi-gcc": "gcc-arm-none-eabi", "qemu-system-arm": "qemu-system-arm"}
EMULATOR = ["qemu-system-arm", "-machine", "mps2-an386", "-nographic", "-semihosting", "-icount", "shift=0", "-kernel"]


@dataclass(frozen=True)
class Measured:
    flash: int  # bytes of code and constants, of the network alone
    state: int  # bytes of RAM, one network's state ...
    stack: int  # ... and what its functions take of the stack, at most
    instructions: int  # of one sequence
    difference: float  # from PyTorch, the largest on the sequences tried

    def per_step(self, steps: int) -> float:
        return self.instructions / steps


def missing_tools() -> list[str]:
    """Debian packages that would be needed."""
    return [package for command, package in TOOLS.items() if not shutil.which(command)]


def dense_twin(model: SequenceModel) -> SequenceModel:
    """A plain LSTM with as many layers and units and a head of the same shape. Its weights hardly matter, and are
    always the same."""
    layer = model.layer
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain = LSTM(layer.input_size, layer.hidden_size, layer.num_layers)
    around = {name: copy.deepcopy(getattr(model, name)) for name in ("reads", "inputs", "outputs", "classes")}
    return SequenceModel(plain, copy.deepcopy(model.head), **around).eval()


def measure(
    plan: Plan,
    vectors: Vectors,
    int8: Quantized | Int8States | None = None,
    *,
    times: Times | None = None,
    steps: int | None = None,
    before: int = 0,
) -> Measured:
    """`vectors`: sequences on which the emulated network is compared with PyTorch. Instructions are counted over
    `steps` steps, those of the plan if None, after `before` others. `times`: of a plan in time; steps are at 1, 2, ...
    """
    if packages := missing_tools():
        raise UserError(f"to run C for a Cortex-M4, this machine needs the packages {', '.join(packages)}")
    if plan.two_ways:
        raise UserError("a bidirectional network takes whole windows, and this counts the instructions of single steps")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export_c(plan, folder, "net", vectors, int8, times=times)
        _run(["arm-none-eabi-gcc", *CPU, *STRICT, "-fstack-usage", "-c", "net.c", "-o", "net.o"], folder)
        stack = max(int(line.split()[1]) for line in (folder / "net.su").read_text().splitlines())
        answer = _emulated(folder, "self-test", ["-DNET_TEST", "net.c"])
        counted = _emulated(
            folder,
            "count",
            [*_names(plan.steps if steps is None else steps, before, times), "net.o", str(HERE / "count.c")],
        )
        sections = _run(["arm-none-eabi-size", "-A", "net.o"], folder)
    sizes = {line.split()[0]: int(line.split()[1]) for line in sections.splitlines() if line.startswith(".")}
    flash = sum(size for section, size in sizes.items() if section.startswith((".text", ".rodata", ".data")))
    state = int8.state_bytes if isinstance(int8, Int8States) else plan.state_bytes
    return Measured(flash, state, stack, int(float(counted.split()[-1])), float(answer.split()[-1]))


def _names(steps: int, before: int, times: Times | None) -> list[str]:
    names = {"STATE": "net_state", "RESET": "net_reset", "STEP": "net_step", "OUTPUT": "net_output"}
    sizes = {size: f"NET_{size}" for size in ("INPUTS", "OUTPUTS")} | {"STEPS": str(steps), "BEFORE": str(before)}
    sizes |= {} if times is None or times.tick is None else {"TICKS": str(round(1 / times.tick))}
    return ['-DHEADER="net.h"', "-I.", *(f"-D{name}={value}" for name, value in (names | sizes).items())]


def _emulated(folder: Path, name: str, sources: list[str]) -> str:
    link = ["--specs=rdimon.specs", "-T", str(HERE / "mps2-an386.ld"), str(HERE / "start.c")]
    _run(["arm-none-eabi-gcc", *CPU, "-O2", "-ffp-contract=fast", *sources, *link, "-o", f"{name}.elf"], folder)
    return _run([*EMULATOR, f"{name}.elf"], folder)


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise UserError(f"{command[0]} ended with {done.returncode} on the exported network: {said[:300]}")
    return done.stdout
