"""The CUDA engine's own kernels on a CPU: compiled by the C++ compiler against `emulation/device.h`, for small sizes.

Everything above the launch is the engine as it is; only the launch itself, and torch's product with float32 results of
16-bit operands, which it has on CUDA alone, are replaced.
"""

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
from ctypes import byref
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
import torch

from glstm.ops import gpu
from glstm.ops.gpu import fused, scan, wide
from glstm.ops.gpu import runtime as gpu_runtime
from glstm.ops.gpu.runtime import Kernels

DEVICE = Path(__file__).parent / "emulation" / "device.h"
# What is loaded from here runs, so nobody else may write here; workers and later runs share it.
FOLDER = Path(__file__).parents[1] / "build" / "emulated"
COMPILER = shutil.which("g++")
# Not optimised: most kernels run for a few steps only, which takes less time than to optimise them.
FLAGS = ("-std=c++20", "-O0", "-shared", "-fPIC", "-w")
OWN = ("-fvisibility=hidden", "-fno-gnu-unique")  # each library has its own device


def translated(source: str) -> str:
    """Without the assembly, and with tables in shared memory where the emulated block has them."""
    source = source.replace((gpu_runtime.HERE / "instructions.cuh").read_text(), "")
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
    return f'#include "{device_folder()}/device.h"\n{source}\n{calls}'


def library(kernels: Kernels) -> ctypes.CDLL:
    assert COMPILER is not None
    defines = [f"-D{name}={int(value)}" for name, value in sorted(kernels.constants.items())]
    source = translated(kernels.source)
    if "wide_" in kernels.source:  # whose blocks wait for each other, again and again
        defines.append("-O1")
    key = hashlib.sha256(repr((source, FLAGS, defines)).encode()).hexdigest()[:16]
    path = own_folder(device_folder()) / f"{key}.so"
    if not path.exists():
        with TemporaryDirectory(dir=FOLDER) as fresh:
            written, built = Path(fresh) / "kernels.cpp", Path(fresh) / "kernels.so"
            written.write_text(source)
            subprocess.run([COMPILER, *FLAGS, *OWN, *defines, written, "-o", built], check=True)
            built.replace(path)  # whole at once: another worker may be looking for it
    return ctypes.CDLL(str(path))


@cache
def device_folder() -> Path:
    """Where libraries for the present emulated device lie, and its header, compiled: that is a third of the work."""
    text = DEVICE.read_bytes()
    folder = own_folder(FOLDER / hashlib.sha256(repr((text, FLAGS)).encode()).hexdigest()[:16])
    compiled = folder / "device.h.gch"
    if not compiled.exists():
        assert COMPILER is not None
        with TemporaryDirectory(dir=folder) as fresh:
            header, made = Path(fresh) / "device.h", Path(fresh) / "device.h.gch"
            header.write_bytes(text)
            subprocess.run([COMPILER, *FLAGS, *OWN, "-x", "c++-header", header, "-o", made], check=True)
            header.replace(folder / "device.h")
            made.replace(compiled)
    return folder


def own_folder(path: Path) -> Path:
    """The folder, made if it is not there; refused if others can write to it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"others can write to {path}, and libraries are loaded from it: remove it")
    return path


started: list[str] = []  # the names of the kernels that ran


def starter(self: Kernels, name: str, device, blocks, threads: int, shared_bytes: int, together: bool = False):
    function = getattr(library(self), f"run_{name}")
    cluster = self.constants.get("RANKS", 1) if name in ("forward", "backward") else 1
    at_once = blocks[0] if together else cluster  # rows of a grid do not wait for each other

    def start(parameters) -> None:
        started.append(name)
        function(*blocks, threads, at_once, byref(parameters))

    return start


@pytest.fixture
def emulated(monkeypatch):
    """The CUDA engine for tensors on the CPU. `emulated(ranks)` lays layers out on so many blocks; 0: on none.
    `samples` of a thread are chosen as for a device, if not given.

    Then `units` is how many units a block of `wide.py` takes; 0: step by step.
    """
    if COMPILER is None:
        pytest.skip("no C++ compiler here")
    properties = SimpleNamespace(major=9, multi_processor_count=132, shared_memory_per_block_optin=232448)
    monkeypatch.setattr(gpu, "properties", lambda device: properties)
    monkeypatch.setattr(gpu, "usable", lambda x, k_h: True)
    monkeypatch.setattr(Kernels, "starter", starter)
    for module in (gpu, scan, fused):
        monkeypatch.setattr(module, "multiply", lambda a, b: torch.bmm(a.float(), b.float()))
    monkeypatch.setattr(fused, "_plans", {})  # plans made here are of this device, and of one layout
    started.clear()

    def lay_out(ranks: int, units: int = 0, samples: int | None = None):
        monkeypatch.setattr(scan, "ranks_for", lambda *_: ranks or None)
        if samples:
            monkeypatch.setattr(scan, "samples_for", lambda *_: samples)
        monkeypatch.setattr(wide, "UNITS", (units,) if units else ())

    return lay_out
