"""Heads with the usual functions say what PyTorch says: whole, in streams, in C and in ONNX."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from networks import STEPS, network, raw_network, raw_sequences, thresholded
from test_export_c import SANITIZED, STRICT, built, exported, needs_gcc, run
from torch import nn

import glstm
from glstm import deploy
from glstm.models import deep_head
from glstm.runtime.check_onnx import differences
from glstm.runtime.export_onnx import export_step, export_whole
from glstm.runtime.plan import constant_bytes

V_T = 0.01
NATIVE = Path(glstm.__file__).parent / "native"


def usual(inputs, outputs):
    return nn.Sequential(
        nn.LayerNorm(inputs), nn.Dropout(0.5), nn.Linear(inputs, 7), nn.GELU(), nn.Linear(7, 9, bias=False), nn.SiLU(),
        nn.LayerNorm(9, elementwise_affine=False), nn.LeakyReLU(0.2), nn.Linear(9, outputs), nn.LogSoftmax(-1),
    )  # fmt: skip


def nested(inputs, outputs):
    first = nn.Sequential(nn.Flatten(), nn.Sigmoid(), nn.Linear(inputs, 6), nn.GELU("tanh"))
    return nn.Sequential(first, nn.ReLU(), nn.Linear(6, outputs), nn.Tanh(), nn.Softmax(1))


def none(inputs, outputs):
    return nn.Identity()


HEADS = {"usual": usual, "nested": nested, "none": none}


def made(head: str) -> glstm.SequenceModel:
    """Some of its units never open: what a LayerNorm or a Sigmoid makes of these is not nothing."""
    model = network("some never open", HEADS[head])
    for part in model.head.modules():
        if isinstance(part, nn.LayerNorm) and part.elementwise_affine:
            nn.init.uniform_(part.weight, 0.5, 2.0)
            nn.init.uniform_(part.bias, -1.0, 1.0)
    return model


@pytest.mark.parametrize("head", HEADS)
def test_whole_sequences_streams_and_onnx(head):
    model = made(head)
    x = torch.randn(STEPS, 5, 1)
    runtime = deploy(model, STEPS, V_T)
    assert runtime.units[0] < 16
    expected = thresholded(model, V_T, x)
    assert torch.allclose(runtime(x), expected, atol=1e-6)
    stream = runtime.stream()
    answers = [stream.step(sample) for sample in x[:, 0].numpy()]
    assert np.allclose(answers[-1], expected[0], atol=1e-6)
    model.layer.threshold = V_T
    assert max(differences(model, export_whole(model), export_step(model), STEPS).values()) < 1e-5


@needs_gcc
@pytest.mark.parametrize(("head", "int8"), [("usual", False), ("usual", True), ("nested", True), ("none", False)])
def test_c_without_any_library(head, int8, tmp_path):
    exported(made(head), tmp_path, int8=int8)
    done = run(built(["gcc", "-std=c99"], tmp_path, "-DNET_TEST", *SANITIZED))
    assert done.returncode == 0, done.stdout + done.stderr
    subprocess.run(["gcc", "-std=c99", *STRICT, "-c", "net.c"], cwd=tmp_path, check=True)
    symbols = subprocess.run(["nm", "-u", "net.o"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1] for line in symbols.splitlines()} <= {"memcpy", "memset", "memmove", "__stack_chk_fail"}


def test_what_a_head_does_not_do_is_not_exported(tmp_path):
    exported(network("g-LSTM", lambda i, o: deep_head(i, o, width=17)), tmp_path)
    assert "gelu" not in (tmp_path / "net.c").read_text()
    exported(made("nested"), tmp_path)
    text = (tmp_path / "net.c").read_text()
    assert "#define GLSTM_WITH_GELU_TANH\n" in text
    assert "#define GLSTM_WITH_GELU\n" not in text


def test_its_constants_are_counted():
    plain = deploy(network("some never open"), STEPS, V_T)
    model = network("some never open", lambda i, o: nn.Sequential(nn.LayerNorm(i), nn.Linear(i, o)))
    left, closed = plain.units[0], 16 - plain.units[0]
    more = 4 * 2 * 16 + 2 * left + 4 * 3 * closed  # gain and shift, places, and columns of units that never open
    assert constant_bytes(deploy(model, STEPS, V_T).plan) == constant_bytes(plain.plan) + more


def test_raw_numbers_after_a_function():
    """A Rescale behind a Softmax is a linear layer of its own."""
    model = raw_network(rescaled=True, head=lambda i, o: nn.Sequential(nn.Linear(i, o), nn.Softmax(-1)))
    x = raw_sequences()
    expected = thresholded(model, V_T, x)
    unit = deploy(model, STEPS, V_T).plan.unit
    ours = deploy(model, STEPS, V_T)(x)
    assert ((ours - expected).abs().numpy() <= unit.allowed(expected.numpy())).all()


FUNCTIONS = """
#define GLSTM_HEAD
#define GLSTM_WITH_GELU
#define GLSTM_WITH_GELU_TANH
#define GLSTM_WITH_LAYER_NORM
#define GLSTM_WITH_SILU
#define GLSTM_WITH_LOG_SOFTMAX
#include "stream.h"
#define OF_MANY(name) \\
  void many_##name(const float *x, float *y, int n) { int i; for (i = 0; i < n; i++) y[i] = glstm_##name(x[i]); }
OF_MANY(falling) OF_MANY(gelu) OF_MANY(gelu_tanh) OF_MANY(root) OF_MANY(log) OF_MANY(sigmoid) OF_MANY(tanh)
"""


def x_times(function):
    return lambda x: x * function(x)


# The function, its inputs, what it should be in float64, what errors are measured by, and how large they may be.
WIDE = np.concatenate([np.linspace(-30, 30, 400_001), [-1e30, -200.0, 200.0, 1e30, 0.0]])
LARGE = np.geomspace(1e-30, 1e30, 400_001)
TWICE = 2 * (2 / np.pi) ** 0.5
ERRORS = {
    "falling": (np.linspace(-87, 0, 400_001), torch.exp, torch.exp, 1.5e-7),
    "gelu": (WIDE, x_times(torch.special.ndtr), torch.abs, 3e-7),
    "gelu_tanh": (WIDE, x_times(lambda x: torch.sigmoid(TWICE * (x + 0.044715 * x**3))), torch.abs, 2e-7),
    "root": (LARGE, torch.sqrt, torch.sqrt, 1.5e-7),
    "log": (np.geomspace(1, 1e30, 400_001)[1:], torch.log, torch.log, 1.5e-7),
    "sigmoid": (WIDE, torch.sigmoid, torch.ones_like, 2e-7),
    "tanh": (WIDE, torch.tanh, torch.abs, 3e-7),
}  # fmt: skip


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("functions")
    (folder / "many.c").write_text(FUNCTIONS)
    command = ["gcc", "-std=c99", "-O2", f"-I{NATIVE}", "-shared", "-fPIC", "many.c", "-o", "many.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "many.so"))


@needs_gcc
@pytest.mark.parametrize("name", ERRORS)
def test_functions_are_as_exact_as_the_header_says(functions, name):
    given, right, scale, allowed = ERRORS[name]
    x = given.astype(np.float32)
    y = np.empty_like(x)
    pointers = (one.ctypes.data_as(ctypes.c_void_p) for one in (x, y))
    getattr(functions, f"many_{name}")(*pointers, len(x))
    exact = torch.from_numpy(x).double()
    expected, unit = right(exact).numpy(), scale(exact).numpy()
    assert (np.abs(y - expected) <= allowed * unit + 2e-38).all()
    nan = np.array([np.nan], np.float32)
    if name != "root":
        getattr(functions, f"many_{name}")(nan.ctypes.data_as(ctypes.c_void_p), nan.ctypes.data_as(ctypes.c_void_p), 1)
        assert np.isnan(nan).all()


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (nn.Sequential(nn.Linear(4, 2), nn.Softmax(0)), "a Softmax of a head is over its outputs, .* not over dim=0"),
        (nn.Sequential(nn.Linear(4, 2), nn.LayerNorm(3)), "LayerNorm is of 3 numbers, but the linear layer .* gives 2"),
        (nn.Sequential(nn.Linear(4, 2), nn.Softplus()), r"a head is made of Linear, ReLU, .* not of Softplus"),
        (nn.Bilinear(4, 4, 2), "not of Bilinear"),
    ],
)  # fmt: skip
def test_what_cannot_be_deployed_is_named(head, says):
    model = glstm.SequenceModel(glstm.GLSTM(1, 4, mu=(1, 9), sigma=3.0), head)
    for use in (lambda: deploy(model, 9), lambda: export_whole(model)):
        with pytest.raises(ValueError, match=says):
            use()
