"""Shared by all tests: hard conditions for the code, real data where it can be found."""

import signal
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from build_site import build
from emulated import emulated as emulated
from glstm.data import CIFAR10, MNIST
from glstm.data.files import data_folder, missing
from packed_cifar import is_packed, unpack

ROOT = Path(__file__).parents[1]
BESIDE = ROOT.parent / "shared" / "data"  # data kept beside a checkout, CIFAR-10 packed

settings.register_profile("glstm", deadline=None, derandomize=True)
settings.load_profile("glstm")

# A shell may start what runs in the background with Ctrl-C ignored; programs under test inherit that, and do not stop.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def hard_conditions():
    """One thread a worker, a fixed seed, and uninitialised memory full of NaN, so that reading it is seen."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)  # torch then fills what it leaves uninitialised with NaN
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The documentation site, built once in each worker."""
    folder = tmp_path_factory.mktemp("site") / "site"
    build(folder)
    return folder


@pytest.fixture(scope="session")
def real_mnist() -> Path:
    for folder in (data_folder(), BESIDE):
        if not missing(MNIST, folder):
            return folder
    pytest.skip("needs MNIST's real files: 'glstm data fetch mnist'")


@pytest.fixture(scope="session")
def real_cifar() -> Path:
    unpacked = ROOT / ".data"
    if missing(CIFAR10, data_folder()) and missing(CIFAR10, unpacked) and is_packed(BESIDE / "cifar10"):
        unpack(BESIDE / "cifar10", unpacked / "cifar10")
    for folder in (data_folder(), unpacked):
        if not missing(CIFAR10, folder):
            return folder
    pytest.skip("needs CIFAR-10's real files: 'glstm data fetch cifar10'")
