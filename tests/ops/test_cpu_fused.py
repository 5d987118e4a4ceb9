"""A Gaussian layer with its gate on the C engine, in one node of autograd: few sequences and many, on every path."""

import copy
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glstm import GLSTM, LSTM, PLSTM
from glstm.gated import GatedLSTM
from glstm.gates import Gaussian
from glstm.ops import cpu, cpu_fused, cpu_gaussian
from glstm.ops.fused import GAUSSIAN, Call, Gate
from glstm.timed import table
from glstm.times import PLAIN, Frame
from helpers import relative_error

if cpu.engine() is None:
    pytest.skip("the engine was not built: no C compiler here", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore::glstm.errors.GateWarning")  # values of any kind are right here
PATHS = ["as chosen", "dense", "together", "one by one"]
NODE = "FusedBackward"


def on_path(path):
    return nullcontext() if path == "as chosen" else cpu.forcing(path)


def results(layer, x, hx=None, times=None, sequence=True):
    """Outputs and the gradients of everything, of a sum that every output has a share in."""
    inputs = [part.detach().clone().requires_grad_() for part in (x, *(hx or ()))]
    output, (h_n, c_n) = layer(inputs[0], tuple(inputs[1:]) or None, times, sequence=sequence)
    generator = torch.Generator().manual_seed(2)
    parts = [part for part in (output, h_n, c_n) if part is not None]
    loss = torch.stack([(part * torch.randn(part.shape, generator=generator).to(part)).sum() for part in parts]).sum()
    return [*parts, *torch.autograd.grad(loss, [*inputs, *layer.parameters()])]


def assert_close(layer, x, hx=None, times=None, sequence=True):
    exact = copy.deepcopy(layer).double()
    right = results(exact, x.double(), None if hx is None else [part.double() for part in hx], times, sequence)
    found = results(layer, x, hx, times, sequence)
    outputs = ["output"] * (2 + sequence)
    names = [*outputs, "x", *(["h_0", "c_0"] if hx else []), *(name for name, _ in layer.named_parameters())]
    for name, one, other in zip(names, found, right, strict=True):
        # k itself is rounded, too, and more so far from mu, where few steps leave nothing else. The gradients of mu and
        # sigma are sums in which much cancels, whoever adds them up.
        limit = 3e-6 if name == "output" else 1e-4 if name.startswith(("mu", "sigma")) else 2e-5
        assert (one - other).abs().max() < limit * other.abs().max().clamp(min=0.01), name


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=40)
@given(
    steps=st.sampled_from([1, 2, 7, 31, 50, 90]),
    batch=st.sampled_from([1, 2, 3, 4, 7, 17]),
    inputs=st.integers(1, 4),
    hidden=st.sampled_from([1, 3, 8, 15, 17, 40]),
    threshold=st.sampled_from([0.0, 0.05, 0.3]),
    width=st.sampled_from([2.0, 5.0, 12.0, 1e6]),
    kind=st.sampled_from(["counted", "floats", "doubles", "whole numbers", "framed"]),
    layers=st.sampled_from([1, 2]),
    bidirectional=st.booleans(),
    bias=st.booleans(),
    state=st.booleans(),
    sequence=st.booleans(),
    candidate=st.sampled_from(["tanh", "sigmoid"]),
    threads=st.sampled_from([1, 2]),
    seed=st.integers(0, 99),
)
def test_layers_against_float64(
    path, steps, batch, inputs, hidden, threshold, width, kind, layers, bidirectional, bias, state, sequence, candidate,
    threads, seed,
):  # fmt: skip
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    framed = {"origin": 1e6, "unit": 0.5} if kind == "framed" else {}
    start, unit = framed.get("origin", 0.0), framed.get("unit", 1.0)
    mu, sigma = ((start + unit, start + unit * (steps + 1)), (0.5 * width * unit, width * unit))
    layer = GLSTM(
        inputs, hidden, layers, bias, bidirectional=bidirectional, mu=mu, sigma=sigma, threshold=threshold,
        candidate=candidate, **framed,
    )  # fmt: skip
    with torch.no_grad():
        layer.sigma_l0[::2] *= -1  # only its magnitude matters
    times = (torch.rand(steps, dtype=torch.float64) + 0.1).cumsum(0)
    times = {
        "counted": None,
        "floats": times.float(),
        "doubles": times,
        "whole numbers": torch.arange(2, steps + 2),
        "framed": start + unit * times,
    }[kind]
    rows = layers * (1 + bidirectional)
    hx = tuple(torch.randn(2, rows, batch, hidden)) if state else None
    with on_path(path):
        assert_close(layer, torch.randn(steps, batch, inputs), hx, times, sequence)


def test_it_is_one_node_where_gradients_are_wanted():
    layer, x = GLSTM(2, 5, mu=(1, 9), sigma=2.0), torch.randn(9, 1, 2)
    for sequence in (True, False):
        output, (h_n, c_n) = layer(x, sequence=sequence)
        assert {part.grad_fn.name() for part in (output, h_n, c_n) if part is not None} == {NODE}
    assert layer(x, times=torch.arange(9))[0].grad_fn.name() == NODE


class Wider(Gaussian):
    def openness(self, times, unit, training):
        return super().openness(times, unit, training) ** 0.5


def test_what_it_does_not_know_is_left_to_the_table():
    x, each = torch.randn(9, 2, 2), torch.rand(9, 2).cumsum(0)
    own = GatedLSTM(2, 5, gate=Wider((1, 9), 2.0))
    segments, reference = GLSTM(2, 5, mu=(1, 9), sigma=2.0), GLSTM(2, 5, mu=(1, 9), sigma=2.0, backend="reference")
    segments.segment = 4
    calls = {
        "another gate": lambda: own(x),
        "times per sample": lambda: GLSTM(2, 5, mu=(1, 9), sigma=2.0)(x, times=each),
        "segments": lambda: segments(x),
        "another backend": lambda: reference(x),
        "no gate": lambda: LSTM(2, 5)(x),
        "a phase": lambda: PLSTM(2, 5, tau=5.0, s=(0.0, 5.0))(x),
        "float64": lambda: GLSTM(2, 5, mu=(1, 9), sigma=2.0, dtype=torch.float64)(x.double()),
    }
    for name, call in calls.items():
        assert call()[0].grad_fn.name() != NODE, name
    with torch.no_grad():
        assert GLSTM(2, 5, mu=(1, 9), sigma=2.0)(x)[0].grad_fn is None


@pytest.mark.parametrize("path", PATHS[1:])
@pytest.mark.parametrize("batch", [1, 3, 20])
def test_the_same_bits_from_run_to_run(path, batch):
    torch.set_num_threads(2)
    layer, x = GLSTM(2, 40, mu=(1, 60), sigma=6.0, threshold=0.05), torch.randn(60, batch, 2)
    with on_path(path):
        runs = [results(layer, x) for _ in range(4)]
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))


@pytest.mark.parametrize("path", PATHS)
def test_closed_units_keep_their_state_bit_for_bit_in_training(path):
    layer = GLSTM(3, 20, mu=(1, 30), sigma=3.0, threshold=0.05)
    hx = tuple(torch.randn(2, 1, 1, 20))
    hx[0][0, 0, 0] = -0.0
    with on_path(path):
        h = layer(torch.randn(30, 1, 3) * 1e30, hx)[0].detach()
    before = torch.cat((hx[0], h[:-1]))
    closed = (layer.openness(30)[0] == 0)[:, None]
    assert closed.any()
    assert torch.equal(h[closed].view(torch.int32), before[closed].view(torch.int32))


@pytest.mark.parametrize("path", PATHS[1:])
def test_a_gate_that_is_fully_open_makes_the_plain_layer(path):
    """k = 1 exactly: nothing of the old state is left."""
    layer, x = GLSTM(2, 17, mu=20.0, sigma=1e9), torch.randn(50, 2, 2)
    plain = LSTM(2, 17)
    plain.load_state_dict({name: layer.state_dict()[name] for name in plain.state_dict()})
    assert (cpu_gaussian.table(*moments_and_values(layer, 50), 0.0) == 1).all()
    with on_path(path):
        found = results(layer, x)
    right = results(plain.double(), x.double())
    assert all(relative_error(one.double(), other) < 1e-5 for one, other in zip(found, right))


def moments_and_values(layer, steps):
    return torch.arange(1.0, steps + 1), layer.mu_l0.detach(), layer.sigma_l0.detach()


@pytest.mark.parametrize("path", PATHS[1:])
def test_an_input_is_not_read_where_every_unit_is_closed(path):
    layer = GLSTM(2, 4, mu=(1, 5), sigma=1.0, threshold=0.1)
    clean = torch.randn(12, 1, 2)
    dirty = clean.clone()
    dirty[9] = float("nan")
    with on_path("as chosen" if path == "dense" else path):
        gradients = [torch.autograd.grad(layer(x)[0].sum(), list(layer.parameters())) for x in (clean, dirty)]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["mu_l0", "sigma_l0"])
def test_a_value_that_is_not_a_number_is_not_hidden(path, name):
    layer = GLSTM(2, 6, mu=(1, 9), sigma=2.0, threshold=0.1)
    with torch.no_grad():
        getattr(layer, name)[2] = float("nan")
    with on_path(path):
        assert layer(torch.randn(9, 1, 2))[1][0][0, 0, 2].isnan()


def test_gradients_may_be_asked_for_again_and_differentiated():
    layer, x = GLSTM(2, 7, mu=(1, 20), sigma=3.0, threshold=0.02), torch.randn(20, 2, 2)
    exact = copy.deepcopy(layer).double()
    output = layer(x)[0]
    assert output.grad_fn.name() == NODE
    first, second = (torch.autograd.grad(output.sum(), list(layer.parameters()), retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    found = []
    for one, given_x in ((layer, x), (exact, x.double())):
        parameters = list(one.parameters())
        gradients = torch.autograd.grad(one(given_x)[0].pow(2).sum(), parameters, create_graph=True)
        found.append(torch.autograd.grad(torch.stack([part.pow(2).sum() for part in gradients]).sum(), parameters))
    for one, other in zip(*found, strict=True):
        assert relative_error(one.double(), other) < 1e-4


@pytest.mark.parametrize("path", PATHS)
def test_only_some_gradients_may_be_wanted(path):
    layer, x = GLSTM(2, 7, mu=(1, 20), sigma=3.0, threshold=0.02), torch.randn(20, 1, 2, requires_grad=True)
    with on_path(path):
        every = torch.autograd.grad(layer(x)[1][1].sum(), [x, *layer.parameters()])
        layer.freeze_gate()
        assert torch.equal(torch.autograd.grad(layer(x)[1][1].sum(), layer.weight_hh_l0)[0], every[2])
        for parameter in layer.parameters():
            parameter.requires_grad_(False)
        assert torch.equal(torch.autograd.grad(layer(x)[1][1].sum(), x)[0], every[0])


@pytest.mark.parametrize("frame", [PLAIN, Frame(0.7, 1.3)])
@pytest.mark.parametrize("falling", [False, True])
@pytest.mark.parametrize("threshold", [0.0, 0.01, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_table_is_bit_for_bit_what_the_gate_says(frame, falling, threshold, dtype):
    """So that training, evaluation and what a layer says of itself agree about when a unit opens."""
    torch.manual_seed(1)
    times = (torch.rand(200, dtype=torch.float64).cumsum(0) * 3).to(dtype)
    unit = {"mu": torch.rand(37) * 400 - 50, "sigma": torch.randn(37) * 40}
    unit["sigma"][:6] = torch.tensor([0.0, 1e-7, 1e9, float("inf"), float("nan"), 0.3])
    unit["mu"][6:9] = torch.tensor([float("inf"), -1e30, float("nan")])
    right = table(Gaussian(), unit, frame, times, threshold, True, 37, torch.float32)
    call = Call(Gate(GAUSSIAN, 0.0, threshold, *frame), times, falling, "tanh", True)
    k = cpu_gaussian.table(cpu_fused.Plan(call).moments(times), unit["mu"], unit["sigma"], threshold)
    right = right.flip(0) if falling else right
    assert (right == 0).any()
    assert ((right > 0) & (right < 1)).any()
    assert torch.equal(k.isnan(), right.isnan())
    known = ~right.isnan()
    assert torch.equal(k[known].view(torch.int32), right[known].view(torch.int32))
