"""Shared by all tests: hard conditions for the code, real data where it can be found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from emulated import emulated as emulated
from glstm.data import CIFAR10, MNIST
from glstm.data.files import data_folder, missing

ROOT = Path(__file__).parents[1]
BESIDE = ROOT.parent / "shared" / "data"  # data kept beside a checkout, with its own way of packing CIFAR-10

settings.register_profile("glstm", deadline=None, derandomize=True)
settings.load_profile("glstm")


@pytest.fixture(autouse=True)
def hard_conditions():
    """One thread a worker, a fixed seed, and uninitialised memory full of NaN, so that reading it is seen."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)  # torch then fills what it leaves uninitialised with NaN
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def real_mnist() -> Path:
    for folder in (data_folder(), BESIDE):
        if not missing(MNIST, folder):
            return folder
    pytest.skip("needs MNIST's real files: 'glstm data fetch mnist'")


@pytest.fixture(scope="session")
def real_cifar() -> Path:
    decoded = ROOT / ".data"
    if missing(CIFAR10, data_folder()) and missing(CIFAR10, decoded) and (BESIDE / "cifar10/decode.py").exists():
        # Another worker may be at it too: each decodes for itself, and the folder appears whole.
        fresh = ROOT / f".data-{os.getpid()}"
        subprocess.run([sys.executable, BESIDE / "cifar10/decode.py", fresh], check=True, capture_output=True)
        decoded.mkdir(exist_ok=True)
        try:
            fresh.rename(decoded / "cifar10")
        except OSError:
            subprocess.run(["rm", "-r", fresh], check=True)
    for folder in (data_folder(), decoded):
        if not missing(CIFAR10, folder):
            return folder
    pytest.skip("needs CIFAR-10's real files: 'glstm data fetch cifar10'")
