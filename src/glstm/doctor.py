"""What of glstm works on this machine, and what to do about the rest: every finding is one sentence."""

import copy
import os
import platform
import shutil
from collections.abc import Iterator
from ctypes import byref, c_int
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glstm import __version__
from glstm.bench.machine import processor
from glstm.data import DATASETS
from glstm.data.files import data_folder, find
from glstm.extras import EXTRA_WITH
from glstm.layers import GLSTM
from glstm.ops import cpu
from glstm.ops.gpu import runtime

TESTED = ("2.11", "2.13")  # versions of torch that glstm's tests have run with
OLDEST = (2, 11)
ALLOWED = 1e-4  # how far an engine may be from the float64 reference, as a share of the largest value
NEEDED_FOR = {
    "lightning": "training, on one device or many",
    "matplotlib": "pictures",
    "onnx": "glstm export onnx",
    "onnxruntime": "checking ONNX exports, and as a peer in benchmarks",
    "onnxscript": "torch.onnx.export",
    "optuna": "glstm sweep with a search",
    "PIL": "CIFAR-10 out of picture files",
    "polars": "tables of your own, CSV and Parquet",
    "pooch": "glstm data fetch",
    "ray": "--engine ray, on many machines",
    "rich": "showing how training goes",
    "sklearn": "SequenceClassifier and SequenceRegressor",
    "tensorboard": "glstm train --tensorboard",
    "typer": "the command glstm",
    "ziglang": "glstm export wasm",
}
_DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn"}  # whose names differ from what is imported
COMPILERS = ("cc", "gcc", "clang")


@dataclass(frozen=True)
class Finding:
    """`says` tells why, and what to do if it does not work. `difference` is that of an engine's self check.
    `there` is False for what was not installed: it does not work, but nothing is broken."""

    part: str
    name: str
    works: bool
    says: str
    difference: float | None = None
    there: bool = True


@dataclass(frozen=True)
class Report:
    findings: list[Finding]

    @property
    def works(self) -> bool:
        """Whether networks run on the CPU, with right numbers, on the engine that they would take."""
        engines = {finding.name: finding for finding in self.findings if finding.part == "engine"}
        taken = engines["C"] if engines["C"].there else engines["reference"]
        return taken.works and all(finding.works for finding in self.findings if finding.part == "torch")

    def as_dict(self) -> dict[str, Any]:
        return {"works": self.works, "findings": [asdict(finding) for finding in self.findings]}


def examine(data: Path | str | None = None) -> Report:
    """Look at everything; takes about a second."""
    parts = (_machine(), _torch(), _engines(), _packages(), _data(data), _compiler())
    return Report([finding for part in parts for finding in part])


def _machine() -> Iterator[Finding]:
    says = f"{processor()}, Python {platform.python_version()} on {platform.system()}"
    yield Finding("machine", f"glstm {__version__}", True, says)


def _torch() -> Iterator[Finding]:
    found = torch.__version__
    numbers = tuple(int(part) for part in found.split("+")[0].split(".")[:2])
    name, tested = f"torch {found}", ".".join(map(str, numbers)) in TESTED
    if numbers < OLDEST:
        yield Finding("torch", name, False, f"glstm needs torch {OLDEST[0]}.{OLDEST[1]} or later: install a newer one")
    elif tested:
        yield Finding("torch", name, True, "a version that glstm was tested with")
    else:
        says = f"not a version that glstm was tested with, {' and '.join(TESTED)}, but it should work"
        yield Finding("torch", name, True, says)


def _engines() -> Iterator[Finding]:
    yield _c_engine()
    yield _cuda_engine()
    yield _checked("reference", "reference", "cpu", "runs everywhere and with every number type, exact but slow")


def _c_engine() -> Finding:
    try:
        built = cpu.engine() is not None
    except OSError as error:
        return Finding("engine", "C", False, f"it is there but cannot be loaded, {error}: install glstm again")
    if not built:
        return Finding("engine", "C", False, cpu.status(), there=False)
    threads = torch.get_num_threads()
    says = f"{cpu.status().rstrip('.')}, on {threads} thread{'s' if threads > 1 else ''} (torch.set_num_threads)"
    return _checked("C", "native", "cpu", says)


def _cuda_engine() -> Finding:
    if reason := _why_no_cuda():
        return Finding("engine", "CUDA", False, reason, there=False)
    major, minor = torch.cuda.get_device_capability()
    says = f"{torch.cuda.get_device_name()} (sm_{major}{minor}), NVRTC {_nvrtc()}, driver for CUDA {_driver()}"
    return _checked("CUDA", "cuda", "cuda", says)


def _why_no_cuda() -> str | None:
    """One sentence, or None if there is nothing against it."""
    if torch.version.cuda is None:
        return "this build of torch has no CUDA: for an NVIDIA device, install the one from pytorch.org that has"
    try:
        runtime.driver()
    except OSError:
        return "there is no NVIDIA driver (libcuda.so.1): install it, until nvidia-smi lists your device"
    if not torch.cuda.is_available():
        return "torch finds no NVIDIA device that it can use: see what nvidia-smi and CUDA_VISIBLE_DEVICES say"
    if torch.cuda.get_device_capability() < (8, 0):
        return f"{torch.cuda.get_device_name()} is too old: the engine needs compute capability 8.0, from Ampere on"
    if runtime.compiler() is None:
        return "NVRTC, CUDA's run-time compiler, was not found: pip install nvidia-cuda-nvrtc brings it"
    return None


def _nvrtc() -> str:
    major, minor, library = c_int(), c_int(), runtime.compiler()
    assert library is not None
    library.nvrtcVersion(byref(major), byref(minor))
    return f"{major.value}.{minor.value}"


def _driver() -> str:
    number = c_int()
    runtime.driver().cuDriverGetVersion(byref(number))
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def _checked(name: str, backend: str, device: str, says: str) -> Finding:
    """An engine that is there, after a small network went through it forward and backward."""
    try:
        difference = self_check(backend, device)
    except (RuntimeError, ValueError, OSError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        return Finding("engine", name, False, f"its self check failed: {first}; please report it with this text")
    if not difference <= ALLOWED:
        wrong = f"it computes wrong numbers, {difference:.1e} from the reference: install glstm again, or report it"
        return Finding("engine", name, False, wrong, difference)
    return Finding("engine", name, True, says, difference)


def self_check(backend: str, device: str = "cpu") -> float:
    """The largest difference of outputs, states and all gradients of a small network in float32 from the reference in
    float64, as a share of the largest value of each."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = GLSTM(3, 24, num_layers=2, mu=(1.0, 40.0), sigma=8.0, threshold=0.05)
        x = torch.randn(40, 5, 3)
    found = _numbers(layer, x, backend, device, torch.float32)
    exact = _numbers(layer, x, "reference", "cpu", torch.float64)
    shares = [float((own.double().cpu() - true).abs().max() / true.abs().max()) for own, true in zip(found, exact)]
    return max(shares)


def _numbers(layer: GLSTM, x: Tensor, backend: str, device: str, dtype: torch.dtype) -> list[Tensor]:
    own = copy.deepcopy(layer).to(device, dtype)
    own.backend = backend
    inputs = x.to(device, dtype).requires_grad_()
    output, (h, c) = own(inputs)
    assert isinstance(output, Tensor)
    loss = output.square().sum() + h.sum() + c.sum()
    gradients = torch.autograd.grad(loss, [inputs, *own.parameters()])
    return [part.detach() for part in (output, h, c, *gradients)]


def _packages() -> Iterator[Finding]:
    for package, extra in EXTRA_WITH.items():
        purpose = NEEDED_FOR.get(package, f"the extra {extra}")
        if find_spec(package) is None:
            says = f"for {purpose}: pip install 'glstm[{extra}]' brings it"
            yield Finding("package", package, False, says, there=False)
            continue
        try:
            found = version(_DISTRIBUTIONS.get(package, package))
        except PackageNotFoundError:
            found = "of an unknown version"
        yield Finding("package", package, True, f"{found}, for {purpose}")


def _data(given: Path | str | None) -> Iterator[Finding]:
    root = data_folder(given)
    for dataset in DATASETS.values():
        there = sum(find(dataset, file, root) is not None for file in dataset.files)
        if there == len(dataset.files):
            yield Finding("data", dataset.name, True, f"all {there} files are in {root}")
        else:
            says = f"{there} of {len(dataset.files)} files are in {root}: glstm data fetch {dataset.name} brings them"
            yield Finding("data", dataset.name, False, says, there=False)


def _compiler() -> Iterator[Finding]:
    for command in filter(None, (os.environ.get("CC"), *COMPILERS)):
        if path := shutil.which(command):
            yield Finding("compiler", "C compiler", True, f"{path}, for exported C and its self test")
            return
    says = "none of cc, gcc and clang was found, which exported C and its self test need: install GCC or clang"
    yield Finding("compiler", "C compiler", False, says, there=False)
