"""What code written for `torch.nn.LSTM` expects of a layer besides its outputs."""

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import parametrizations, prune
from torch.utils.flop_counter import FlopCounterMode

import glstm
from glstm import GLSTM, LSTM, PLSTM, SequenceModel
from glstm.errors import ShapeError
from glstm.ops import gated_lstm
from helpers import operator_inputs, relative_error


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}], ids=str)
def test_all_weights_are_torchs(options):
    theirs, ours = nn.LSTM(2, 4, **options), LSTM(2, 4, **options)
    ours.load_state_dict(theirs.state_dict())
    assert ours._flat_weights_names == theirs._flat_weights_names
    for mine, right in zip(ours.all_weights, theirs.all_weights, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, right, strict=True))
    assert all(a is b for a, b in zip(ours._flat_weights, ours.parameters(), strict=True))


def test_weights_and_gate_values_by_place():
    layer = PLSTM(2, 4, 2, bidirectional=True)
    for (_, suffix), flat in zip(layer.places(), layer.all_weights, strict=True):
        weights = layer.weights(suffix)
        assert all(a is b for a, b in zip(weights, flat, strict=True))
        assert torch.equal(weights.bias, flat[2] + flat[3])
        assert {name: id(value) for name, value in layer.gate_values(suffix).items()} == {
            name: id(getattr(layer, name + suffix)) for name in ("tau", "s", "r")
        }
    times = torch.arange(1.0, 9.0)
    each = [layer.openness_at(suffix, times) for _, suffix in layer.places()]
    assert torch.equal(torch.stack(each), layer.openness(8))
    assert LSTM(2, 4, bias=False).weights("_l0")[2:] == (None, None)
    assert LSTM(2, 4, bias=False).weights("_l0").bias is None
    closed = GLSTM(2, 4, mu=1.0, sigma=1.0).openness_at("_l0", times, threshold=0.5, training=False)
    assert (closed[1:] == 0).all()


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_torchs_tools_for_weights_work():
    x = torch.randn(5, 3, 2)
    layer = GLSTM(2, 4, mu=(1, 5), sigma=2.0)
    before = layer(x)[0].detach()
    nn.utils.weight_norm(layer, "weight_hh_l0")
    assert [type(part) is nn.Parameter for part in layer._flat_weights] == [True, False, True, True]
    assert torch.allclose(layer(x)[0], before, atol=1e-6)
    layer(x)[0].sum().backward()
    assert layer.weight_hh_l0_g.grad is not None

    layer = LSTM(2, 4)
    prune.l1_unstructured(layer, "weight_ih_l0", 0.5)
    assert sum(type(part) is nn.Parameter for part in layer._flat_weights) == 3
    assert (layer._flat_weights[0] == 0).sum() == 16
    masked = layer(x)[0].detach()
    prune.remove(layer, "weight_ih_l0")
    assert layer._flat_weights[0] is layer._parameters["weight_ih_l0"]
    assert torch.equal(layer(x)[0], masked)

    layer = GLSTM(2, 4, mu=(1, 5), sigma=2.0).eval()
    parametrizations.weight_norm(layer, "weight_hh_l0")
    with torch.no_grad():
        before = layer(x)[0]
        layer.parametrizations.weight_hh_l0.original0.mul_(2)
        assert not torch.allclose(layer(x)[0], before, atol=1e-4)


@pytest.mark.parametrize("error", [ValueError, RuntimeError])
def test_a_wrong_shape_is_both_kinds_of_error(error):
    layer = GLSTM(2, 4)
    zeros = torch.zeros(1, 3, 5)
    wrong = [
        lambda: layer(torch.zeros(5, 3, 3)),
        lambda: layer(torch.zeros(5)),
        lambda: layer(torch.zeros(5, 3, 2), (zeros, zeros)),
    ]
    for position in range(7):
        inputs = operator_inputs(3, 2, 2, 2)
        inputs[position] = torch.zeros(7)
        wrong.append(lambda inputs=inputs: gated_lstm(*inputs))
    for call in wrong:
        with pytest.raises(error, match="must"):
            call()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("state", [None, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_on_the_cpu(weights, given, state, training):
    layer, x = GLSTM(2, 4, 2, mu=(1, 5), sigma=2.0, dtype=weights).train(training), torch.randn(5, 3, 2).to(given)
    hx = None if state is None else tuple(torch.randn(2, 2, 3, 4).to(state))
    with torch.autocast("cpu", torch.bfloat16), torch.set_grad_enabled(training):
        output, (h_n, _) = layer(x, hx)
    assert output.dtype == h_n.dtype == weights
    hx = None if hx is None else tuple(part.to(weights) for part in hx)
    assert torch.equal(output, layer(x.to(weights), hx)[0])
    if training:
        output.sum().backward()
        assert layer.weight_hh_l0.grad.dtype == weights


@pytest.mark.parametrize("cell", [GLSTM, PLSTM, LSTM])
def test_without_values(cell):
    """On torch's meta device, and of fake tensors: shapes come out, of gradients too."""
    layer, x = cell(2, 4, 2, bidirectional=True, device="meta"), torch.empty(5, 3, 2, device="meta")
    output, (h_n, c_n) = layer(x)
    output.sum().backward()
    assert [part.shape for part in (output, h_n, c_n)] == [(5, 3, 8), (4, 3, 4), (4, 3, 4)]
    assert all(parameter.grad.is_meta for parameter in layer.parameters())
    with torch.no_grad():
        assert layer.eval()(x, times=torch.empty(5, device="meta"))[0].is_meta
    with FakeTensorMode():
        layer = cell(2, 4)
        output, _ = layer(torch.randn(5, 3, 2), times=torch.arange(5.0))
        output.sum().backward()
        assert isinstance(layer.weight_hh_l0.grad, FakeTensor)
        assert output.shape == (5, 3, 4)
        with torch.no_grad():
            assert isinstance(layer.eval()(torch.randn(5, 3, 2))[0], FakeTensor)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("training", [True, False])
def test_a_traced_layer_is_the_layer(training):
    """Without a warning about what was traced, at other lengths and batches too, and it can be trained."""
    layer, x = GLSTM(2, 4, 2, mu=(1, 5), sigma=2.0).train(training), torch.randn(5, 3, 2)
    traced: Callable = torch.jit.trace(layer, x)  # pyright: ignore[reportAssignmentType]
    for shape in ((5, 3, 2), (9, 1, 2)):
        x = torch.randn(shape)
        assert torch.allclose(traced(x)[0], layer(x)[0], atol=1e-6)
    gradients = [torch.autograd.grad(one(x)[0].sin().sum(), list(layer.parameters())) for one in (layer, traced)]
    assert all(relative_error(mine, right) < 1e-5 for mine, right in zip(*gradients, strict=True))


def test_the_flop_counter_knows_the_operator():
    layer, x = GLSTM(2, 4, mu=(1, 5), sigma=2.0), torch.randn(5, 3, 2)
    with FlopCounterMode(display=False) as counter:
        output = layer(x)[0]
    assert counter.get_total_flops() == 2 * 5 * 3 * 16 * (2 + 4)
    with FlopCounterMode(display=False) as counter:
        output.sum().backward()
    assert counter.get_total_flops() == 2 * 2 * 5 * 3 * 16 * (2 + 4)


@pytest.mark.parametrize("called_before", [False, True])
def test_make_fx_sees_the_operator(called_before):
    layer, x = GLSTM(2, 4, mu=(1, 5), sigma=2.0).eval(), torch.randn(5, 3, 2)
    with torch.no_grad():
        if called_before:  # it then has its tables
            layer(x)
            layer(x)
        graph = make_fx(lambda x: layer(x)[0])(x)
        assert torch.allclose(graph(x + 1), layer(x + 1)[0], atol=1e-6)
    assert "glstm.gated_lstm" in graph.code


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_what_cannot_be_said_in_a_graph_is_said_in_a_sentence():
    for model in (GLSTM(2, 4), SequenceModel(GLSTM(2, 4), nn.Linear(4, 1))):
        with pytest.raises(
            TypeError, match=r"torch.fx.symbolic_trace cannot go through this layer.*: use torch.export"
        ):
            torch.fx.symbolic_trace(model)
        with pytest.raises(TypeError, match=r"torch.jit.script does not know glstm's layers: use torch.export"):
            torch.jit.script(model)


def test_torchs_weights_do_not_load_strictly_into_gates():
    theirs, ours = nn.LSTM(2, 4), GLSTM(2, 4)
    with pytest.raises(
        RuntimeError, match=r"mu and sigma are missing: make the layer with glstm.from_lstm, or .*strict=False"
    ):
        ours.load_state_dict(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict(), strict=False)
    LSTM(2, 4).load_state_dict(theirs.state_dict())
    with pytest.raises(RuntimeError, match=re.escape('Missing key(s) in state_dict: "mu_l0"')):
        ours.load_state_dict({name: value for name, value in ours.state_dict().items() if name != "mu_l0"})


def negated(tensor: torch.Tensor) -> torch.Tensor:
    """A view of the same numbers, which torch reads with the other sign: the imaginary part of a conjugate."""
    return torch.complex(torch.zeros_like(tensor), tensor).conj().imag


def test_a_negated_view_is_read_with_its_sign():
    layer, x = GLSTM(2, 4, mu=(1, 5), sigma=2.0), torch.randn(5, 3, 2)
    assert negated(x).is_neg()
    assert torch.equal(layer(negated(x))[0], layer(-x)[0])
    output = layer(x)[0]
    arriving = torch.randn_like(output)
    found = [
        torch.autograd.grad(output, layer.weight_hh_l0, one, retain_graph=True)[0]
        for one in (negated(arriving), -arriving)
    ]
    assert torch.equal(*found)


def test_a_deployed_network_reads_a_negated_view_with_its_sign():
    model, x = SequenceModel(GLSTM(2, 4, mu=(1, 5), sigma=2.0), nn.Linear(4, 1)).eval(), torch.randn(5, 3, 2)
    runtime = glstm.deploy(model, 5)
    assert torch.equal(runtime(negated(-x)), runtime(x))
    one, other = runtime.stream(), runtime.stream()
    for sample in x[:, 0]:
        one.step(sample)
        other.step(negated(-sample))
    assert (one.output() == other.output()).all()


@pytest.mark.parametrize("how", ["a slice", "16 bits"])
def test_a_weight_that_became_another_is_seen_after_a_call(how):
    """Its address and its layout are the same as before."""
    layer, x = GLSTM(2, 4, mu=(1, 5), sigma=2.0).eval(), torch.randn(5, 3, 2)
    with torch.no_grad():
        layer(x)
        layer(x)
        weight = layer.weight_hh_l0
        weight.data = weight.data[:8] if how == "a slice" else weight.data.view(torch.float16)
        with pytest.raises((ShapeError, TypeError), match=r"w_hh must have shape|the layer float16"):
            layer(x)


@pytest.mark.parametrize("size", [(5, 3, 0, 4), (5, 3, 2, 0), (5, 0, 2, 4), (0, 3, 2, 4), (0, 0, 0, 0)])
def test_empty_sizes(size):
    """No inputs, units, samples or steps: nothing to do, and no crash."""
    single = [tensor.detach().float().requires_grad_() for tensor in operator_inputs(*size)]
    double = [tensor.detach().double().requires_grad_() for tensor in single]
    for tensors in (single, double):
        out = gated_lstm(*tensors, cells=True)
        (out.h.sum() + out.c_n.sum() + out.h_n.sum()).backward()
    with torch.no_grad():
        assert relative_error(gated_lstm(*single).h_n.double(), gated_lstm(*double).h_n) < 1e-6
    for mine, right in zip(single, double, strict=True):
        assert relative_error(mine.grad.double(), right.grad) < 1e-5


@pytest.mark.parametrize("compiled", [False, True])
def test_who_rounds_what_is_saved_does_not_break_the_backward_pass(compiled):
    layer, x = GLSTM(2, 40, mu=(1, 30), sigma=3.0, threshold=0.01), torch.randn(30, 20, 2)
    run: Callable = torch.compile(layer, backend="aot_eager") if compiled else layer
    layer(x)[1][0].sum().backward()
    expected = layer.weight_hh_l0.grad.clone()
    layer.zero_grad()

    def halved(tensor):
        return tensor / 2 if tensor.is_floating_point() else tensor

    def doubled(tensor):
        return tensor * 2 if tensor.is_floating_point() else tensor

    with torch.autograd.graph.saved_tensors_hooks(halved, doubled), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        final = run(x)[1][0].sum()
    final.backward()
    assert relative_error(layer.weight_hh_l0.grad, expected) < 1e-5


def test_numpys_arrays_are_taken():
    """In any type of number, also read-only ones; the state, too."""
    layer, x = GLSTM(2, 4, mu=(1, 5), sigma=2.0), torch.randn(5, 3, 2)
    state = layer(x)[1]
    fixed = x.double().numpy()
    fixed.setflags(write=False)
    found, _ = layer(fixed, (state[0].detach().numpy(), state[1].detach().numpy()))
    assert torch.equal(found, layer(x, state)[0])
    assert layer(np.ones((5, 3, 2), np.int64))[0].dtype == torch.float32
    with pytest.raises(TypeError, match="an array must hold real numbers, not complex128"):
        layer(np.ones((5, 3, 2), complex))
    with pytest.raises(TypeError, match="an array must hold real numbers, not <U1"):
        layer(np.full((5, 3, 2), "a"))


@pytest.mark.parametrize("form", ["backwards", "foreign", "transposed", "fixed", "unsigned", "wide"])
def test_arrays_of_any_form_are_taken_as_inputs_and_as_times(form):
    """torch itself refuses most of these."""
    layer = GLSTM(3, 4, mu=(1, 6), sigma=3.0)
    x = np.arange(36).reshape(6, 2, 3)
    times = np.arange(1, 7)
    make = {
        "backwards": lambda values: values[::-1].copy()[::-1],
        "foreign": lambda values: values.astype(">f4"),
        "transposed": lambda values: values.T.copy().T,
        "fixed": lambda values: np.frombuffer(values.tobytes(), values.dtype).reshape(values.shape),
        "unsigned": lambda values: values.astype(np.uint16),
        "wide": lambda values: values.astype(np.longdouble),
    }[form]
    expected, _ = layer(torch.tensor(x, dtype=torch.float32), times=torch.tensor(times))
    found, _ = layer(make(x), times=make(times))
    torch.testing.assert_close(found, expected)
    model = SequenceModel(layer, torch.nn.Linear(4, 1))
    torch.testing.assert_close(model(make(x), times=make(times)), model(torch.tensor(x, dtype=torch.float32)))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("x", "layer", "says"),
    [
        (torch.float64, torch.float32, r"is float64 and the layer float32: use x.float\(\) or layer.double\(\)"),
        (torch.float32, torch.float64, r"is float32 and the layer float64: use x.double\(\) or layer.float\(\)"),
        (torch.float16, torch.float32, r"is float16 and the layer float32: use x.float\(\) or layer.half\(\)"),
        (torch.bfloat16, torch.float32, r"is bfloat16 and the layer float32: use x.float\(\) or layer.bfloat16\(\)"),
        (torch.int64, torch.float32, r"is int64 and the layer float32: use x.float\(\)$"),
    ],
)
def test_an_input_of_another_type_is_one_sentence(x, layer, says, packed):
    given: Any = torch.ones(5, 2, 3).to(x)
    given = nn.utils.rnn.pack_padded_sequence(given, torch.tensor([5, 2])) if packed else given
    with pytest.raises(TypeError, match=f"the input {says}"):
        GLSTM(3, 4).to(layer)(given)
