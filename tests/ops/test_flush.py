"""Subnormal numbers count as 0 inside the engine, and nowhere else: not in the caller's threads, not in torch's."""

import ctypes
import ctypes.util
import platform
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from glstm import GLSTM, LSTM, PLSTM, deploy
from glstm.models import SequenceModel
from glstm.ops import cpu, gated_lstm
from helpers import relative_error

if cpu.engine() is None:
    pytest.skip("the engine was not built: no C compiler here", allow_module_level=True)
ENGINE = cpu.engine()
assert ENGINE is not None
SMALLEST = torch.finfo(torch.float32).tiny  # normal: 2^-126
EXACT = torch.float64
STEPS, BATCH, HIDDEN = 400, 20, 12
CONTROL = {"x86_64": (7, 0xFFC0), "aarch64": (0, 0xFFFFFFFF)}  # the word of fenv_t that is a setting, and its bits


@pytest.fixture(params=[False, True], ids=["caller keeps subnormals", "caller flushes"])
def flushing(request):
    """The caller's own choice, for this thread. torch's worker threads take it over if they start later."""
    torch.set_num_threads(2)
    if not torch.set_flush_denormal(request.param):
        pytest.skip("torch cannot flush subnormal numbers on this machine")
    yield request.param
    torch.set_flush_denormal(False)


@contextmanager
def on_lanes(lanes):
    if ENGINE.glstm_lanes(lanes) != lanes:
        ENGINE.glstm_lanes(0)
        pytest.skip("this machine has no vectors of that width")
    try:
        yield
    finally:
        ENGINE.glstm_lanes(0)


def setting() -> int:
    """The control register of this thread: rounding, exceptions, flushing."""
    word, bits = CONTROL[platform.machine()]
    environment = (ctypes.c_uint32 * 16)()
    assert ctypes.CDLL(ctypes.util.find_library("m")).fegetenv(environment) == 0
    return environment[word] & bits


def products() -> torch.Tensor:
    """Subnormal products, by this thread and by torch's worker: zeros where that thread flushes."""
    return torch.full((1_000_000,), 1e-30) * 1e-10


def train(layer, batch):
    output, _ = layer(torch.randn(60, batch, layer.input_size))
    output[-1].sum().backward()


def evaluate(layer, batch):
    with torch.no_grad():
        layer.eval()(torch.randn(60, batch, layer.input_size))


def stream():
    layer = GLSTM(1, 12, mu=(1, 40), sigma=5.0, threshold=0.05)
    running = deploy(SequenceModel(layer, nn.Linear(12, 2)), 40, 0.05).stream()
    for sample in torch.randn(40).tolist():
        running.step(sample)
    running.output()


def whole_at_once():
    layer = GLSTM(1, 12, mu=(1, 40), sigma=5.0, threshold=0.05)
    deploy(SequenceModel(layer, nn.Linear(12, 2)), 40, 0.05)(torch.randn(40, 20, 1))


def functions():
    x, found = torch.randn(64), [torch.empty(64), torch.empty(64)]
    ENGINE.glstm_nonlinearities(*(cpu.c_void_p(t.data_ptr()) for t in (x, *found)), len(x))


def sparse(work, *arguments):
    with cpu.forcing("sparse"):
        work(GLSTM(2, 30, mu=(1, 60), sigma=5.0, threshold=0.05), *arguments)


CALLS = {
    "training, dense": lambda: train(LSTM(2, 30), 40),
    "training, sparse": lambda: sparse(train, 40),
    "training, one by one": lambda: sparse(train, 3),
    "training, a table of another gate": lambda: train(PLSTM(2, 30, tau=20.0, s=(0.0, 20.0)), 3),
    "evaluation, dense": lambda: evaluate(LSTM(2, 30), 40),
    "evaluation, a team": lambda: evaluate(LSTM(2, 128), 2),
    "evaluation, sparse": lambda: sparse(evaluate, 40),
    "evaluation, one by one": lambda: sparse(evaluate, 3),
    "deployed, sample by sample": stream,
    "deployed, whole sequences": whole_at_once,
    "the functions alone": functions,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_leaves_the_floating_point_state_as_it_was(name, flushing):
    before = products()
    assert before[0] == 0 if flushing else before[0] > 0
    known = platform.machine() in CONTROL
    register = setting() if known else 0
    CALLS[name]()
    assert torch.equal(products(), before)
    assert not known or setting() == register


def fading(path: str, backend: str, arrives: float, dtype=torch.float32):
    """Gradients of all inputs, over steps at each of which a unit forgets most of its state: from some step
    on, what arrives is below the smallest subnormal number."""
    torch.manual_seed(3)
    k = torch.rand(STEPS, HIDDEN) * 0.5 + 0.5
    k[torch.arange(STEPS)[:, None] % 7 == torch.arange(HIDDEN) % 7] = 0
    tensors = [
        torch.randn(STEPS, BATCH, 2),
        torch.randn(4 * HIDDEN, 2) * 0.3,
        torch.randn(4 * HIDDEN, HIDDEN) * 0.1,
        torch.tensor([0.0, -2.0, 0.0, 0.0]).repeat_interleave(HIDDEN),
        k,
        torch.randn(BATCH, HIDDEN),
        torch.randn(BATCH, HIDDEN),
    ]
    inputs = [tensor.to(dtype).requires_grad_() for tensor in tensors]
    with cpu.forcing(path):
        output = gated_lstm(*inputs, sequence=False, backend=backend)
        return torch.autograd.grad(output.h_n.sum() * arrives, inputs)


@pytest.mark.parametrize("lanes", [16, 8, 4])
@pytest.mark.parametrize("path", ["dense", "together", "one by one"])
def test_gradients_that_fade_agree_with_float64(path, lanes):
    """Whatever is flushed is below 2^-126, and the steps before it shrink what is lost. A gradient is a sum of at most
    T x 4H such terms for each sample: that many times 2^-126 is the floor below which nothing is promised."""
    with on_lanes(lanes):
        mine = fading(path, "native", 1.0)
    plain, exact = fading(path, "reference", 1.0), fading(path, "reference", 1.0, EXACT)
    floor = SMALLEST * STEPS * 4 * HIDDEN
    subnormal = (plain[0] != 0) & (plain[0].abs() < SMALLEST)
    assert subnormal.any()  # plain float32 passes through them
    assert not ((mine[0] != 0) & (mine[0].abs() < SMALLEST)).any()
    for one, other in zip(mine[:5], exact[:5], strict=True):
        assert relative_error(one.double(), other) < 1e-5
    for one, other in zip(mine[0], exact[0], strict=True):  # a step's gradient beside its own size
        assert (one - other).abs().max() <= 1e-4 * other.abs().max() + floor
    for at in (5, 6):  # the initial state is so far back that nothing arrives
        assert exact[at].abs().max() < SMALLEST
        assert (mine[at] - exact[at]).abs().max() <= floor


@pytest.mark.parametrize("path", ["dense", "together", "one by one"])
def test_a_gradient_that_arrives_subnormal_counts_as_none(path):
    mine, exact = fading(path, "native", 1e-39), fading(path, "reference", 1e-39, EXACT)
    for one, other in zip(mine, exact, strict=True):
        assert (one - other).abs().max() <= SMALLEST * STEPS * 4 * HIDDEN * BATCH


@pytest.mark.parametrize("lanes", [16, 8, 4])
@pytest.mark.parametrize("path", ["dense", "together", "one by one"])
@pytest.mark.parametrize("flushing", [False, True])
def test_a_subnormal_openness_is_open(path, lanes, flushing):
    """Only 0 is closed. Forward and backward must agree about it, whatever the caller's setting is in each."""
    k = torch.rand(30, 17)
    k[::3] = 1e-40
    k[1::3, ::2] = 0
    tensors = [torch.randn(30, 20, 2), torch.randn(68, 2), torch.randn(68, 17) * 0.3, torch.randn(68)]
    tensors += [k, torch.randn(20, 17), torch.randn(20, 17)]
    single, double = ([part.to(dtype, copy=True).requires_grad_() for part in tensors] for dtype in (k.dtype, EXACT))
    with on_lanes(lanes), cpu.forcing(path):
        torch.set_flush_denormal(flushing)
        output = gated_lstm(*single, backend="native").h
        torch.set_flush_denormal(not flushing)
        output.sum().backward()
        torch.set_flush_denormal(False)
    gated_lstm(*double, backend="reference").h.sum().backward()
    for one, other in zip(single, double, strict=True):
        assert relative_error(one.grad.double(), other.grad) < 1e-5
