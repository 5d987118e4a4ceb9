"""Where and with what a figure was measured."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from glstm import __version__
from glstm.ops.cpu import status


def describe() -> dict:
    return {"machine": processor(), "engine": status(), "software": {"glstm": __version__, **versions()}}


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                count = torch.get_num_threads()
                return f"{count} {'core' if count == 1 else 'cores'} of {line.split(':')[1].strip()}"
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("numpy", "onnxruntime"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
