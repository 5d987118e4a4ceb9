"""Exported C on an emulated Cortex-M4: does it say what PyTorch says, and how many instructions does it take?"""

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from glstm.errors import UserError
from glstm.layers import LSTM
from glstm.models import SequenceModel, linear_head
from glstm.runtime import deploy
from glstm.runtime.export_c import Vectors, export_c
from glstm.runtime.plan import Plan
from glstm.runtime.quantize import Quantized, as_floats
from glstm.runtime.runtime import Runtime

HERE = Path(__file__).parent
CPU = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2", "-ffp-contract=fast"]
TOOLS = {"arm-none-eabi-gcc": "gcc-arm-none-eabi", "qemu-system-arm": "qemu-system-arm"}
EMULATOR = ["qemu-system-arm", "-machine", "mps2-an386", "-nographic", "-semihosting", "-icount", "shift=0", "-kernel"]


@dataclass(frozen=True)
class Measured:
    flash: int  # bytes of code and constants, of the network alone
    state: int  # bytes of RAM, one network's state
    instructions: int  # of one sequence
    difference: float  # from PyTorch, the largest on the sequences tried

    def per_step(self, steps: int) -> float:
        return self.instructions / steps


def missing_tools() -> list[str]:
    """Debian packages that would be needed."""
    return [package for command, package in TOOLS.items() if not shutil.which(command)]


def dense_lstm(inputs: int, hidden: int, outputs: int, steps: int) -> Plan:
    """A plain LSTM of a size, to be exported the same way; what its weights are does not matter."""
    with torch.random.fork_rng(devices=[]):
        model = SequenceModel(LSTM(inputs, hidden), linear_head(hidden, outputs)).eval()
    return deploy(model, steps).plan


def measure(plan: Plan, x: np.ndarray, int8: Quantized | None = None) -> Measured:
    """x (N, T, inputs): sequences on which the emulated network is compared with PyTorch."""
    if packages := missing_tools():
        raise UserError(f"to run C for a Cortex-M4, this machine needs the packages {', '.join(packages)}")
    says = Runtime(as_floats(plan, int8) if int8 else plan, (plan.steps,))
    y = says(torch.from_numpy(x).transpose(0, 1).contiguous()).numpy()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export_c(plan, folder, "net", Vectors(x, y, tolerance=1e-4), int8)
        _run(["arm-none-eabi-gcc", *CPU, *STRICT, "-c", "net.c", "-o", "net.o"], folder)
        answer = _emulated(folder, "self-test", ["-DNET_TEST", "net.c"])
        counted = _emulated(folder, "count", [*_names(), "net.o", str(HERE / "count.c")])
        sections = _run(["arm-none-eabi-size", "-A", "net.o"], folder)
    sizes = {line.split()[0]: int(line.split()[1]) for line in sections.splitlines() if line.startswith(".")}
    flash = sum(size for section, size in sizes.items() if section.startswith((".text", ".rodata", ".data")))
    state = 4 * (1 + sum(3 + layer.numbers for layer in plan.layers))
    return Measured(flash, state, int(counted.split()[-1]), float(answer.split()[-1]))


def _names() -> list[str]:
    names = {"STATE": "net_state", "RESET": "net_reset", "STEP": "net_step", "OUTPUT": "net_output"}
    sizes = {size: f"NET_{size}" for size in ("STEPS", "INPUTS", "OUTPUTS")}
    return ['-DHEADER="net.h"', "-I.", *(f"-D{name}={value}" for name, value in (names | sizes).items())]


def _emulated(folder: Path, name: str, sources: list[str]) -> str:
    link = ["--specs=rdimon.specs", "-T", str(HERE / "mps2-an386.ld"), str(HERE / "start.c")]
    _run(["arm-none-eabi-gcc", *CPU, "-O2", "-ffp-contract=fast", *sources, *link, "-o", f"{name}.elf"], folder)
    return _run([*EMULATOR, f"{name}.elf"], folder)


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr or done.stdout}")
    return done.stdout
