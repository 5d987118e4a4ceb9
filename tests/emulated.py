"""The CUDA engine's own kernels on a CPU: compiled by the C++ compiler against `emulation/device.h`, for small sizes.

Everything above the launch is the engine as it is; only the launch itself, and torch's product with float32 results of
16-bit operands, which it has on CUDA alone, are replaced.
"""

import ctypes
import hashlib
import re
import shutil
import subprocess
import tempfile
from ctypes import byref, c_void_p
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from glstm.ops import gpu
from glstm.ops.gpu import scan
from glstm.ops.gpu.runtime import Kernels, _as_argument

DEVICE = Path(__file__).parent / "emulation" / "device.h"
FOLDER = Path(tempfile.gettempdir()) / f"glstm-emulated-{hashlib.sha256(DEVICE.read_bytes()).hexdigest()[:12]}"
COMPILER = shutil.which("g++")
OWN = ("-fvisibility=hidden", "-fno-gnu-unique")  # each library has its own device


def translated(source: str) -> str:
    """Without the assembly, and with tables in shared memory where the emulated block has them."""
    source = source[source.index("// A cell is a unit of a sample.") :]
    source = source.replace("extern __shared__ uint4 rest_of_weights[];", "")
    source = re.sub(
        r"__shared__ (?:__align__\(\d+\) )?(\w+) (\w+)((?:\[[^;]*\])+);",
        r"typedef \1 \2_table\3; \2_table &\2 = *(\2_table *)device::table(__LINE__, sizeof(\2_table));",
        source,
    )
    source = source.replace("rest_of_weights + ", "(uint4 *)device::dynamic_shared() + ")
    kernels = re.findall(r'extern "C" __global__ void (?:[\w() ,]*\s)?(\w+)\(', source)
    calls = "".join(
        f'extern "C" __attribute__((visibility("default"))) void run_{name}(int x, int y, int threads, int together, '
        f"void **arguments) {{ device::launch({name}, x, y, threads, together, arguments); }}\n"
        for name in kernels
    )
    return f'#include "{DEVICE}"\n{source}\n{calls}'


def library(kernels: Kernels) -> ctypes.CDLL:
    defines = [f"-D{name}={int(value)}" for name, value in sorted(kernels.constants.items())]
    source = translated(kernels.source)
    key = hashlib.sha256(repr((source, defines)).encode()).hexdigest()[:16]
    path = FOLDER / f"{key}.so"
    if not path.exists():
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{key}.cpp").write_text(source)
        part = FOLDER / f"{key}.{id(kernels)}"
        command = [
            COMPILER,
            "-std=c++20",
            "-O1",
            "-shared",
            "-fPIC",
            "-w",
            *OWN,
            *defines,
            FOLDER / f"{key}.cpp",
            "-o",
            part,
        ]
        subprocess.run(command, check=True)
        part.rename(path)
    return ctypes.CDLL(str(path))


def prepare(self: Kernels, name: str, blocks, threads: int, *arguments, shared_bytes: int = 0):
    function = getattr(library(self), f"run_{name}")
    values = [_as_argument(argument) for argument in arguments]
    pointers = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    together = self.constants.get("RANKS", 1) if name in ("forward", "backward") else 1

    def launch(last: int | None = None) -> None:
        if last is not None:
            values[-1].value = last
        function(*blocks, threads, together, byref(pointers))

    return launch


@pytest.fixture
def emulated(monkeypatch):
    """The CUDA engine for tensors on the CPU. `emulated(ranks)` lays layers out on so many blocks; 0: step by step."""
    if COMPILER is None:
        pytest.skip("no C++ compiler here")
    properties = SimpleNamespace(major=9, multi_processor_count=132, shared_memory_per_block_optin=232448)
    monkeypatch.setattr(gpu, "properties", lambda device: properties)
    monkeypatch.setattr(gpu, "usable", lambda x, k_h: k_h is None)
    monkeypatch.setattr(Kernels, "prepare", prepare)
    for module in (gpu, scan):
        monkeypatch.setattr(module, "multiply", lambda a, b: torch.bmm(a.float(), b.float()))
    return lambda ranks: monkeypatch.setattr(scan, "ranks_for", lambda *_: ranks or None)
