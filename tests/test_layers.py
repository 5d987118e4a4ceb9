"""The layers against `torch.nn.LSTM`, option by option, and what only they can do: times, thresholds, pieces."""

import copy
import itertools
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.nn.utils.rnn import pack_padded_sequence

from glstm import GLSTM, LSTM, PLSTM, Clockwork, GatedLSTM, Periodic, gate_parameters, weight_parameters
from helpers import relative_error, twins

OPTIONS = [
    {"num_layers": layers, "bias": bias, "batch_first": batch_first, "bidirectional": bidirectional}
    for layers, bias, batch_first, bidirectional in itertools.product((1, 3), *[(True, False)] * 3)
]


def run_and_differentiate(layer, x, hx=None):
    """Outputs and every gradient of a scalar that depends on all of them."""
    x = x.detach().clone().requires_grad_()
    state = None if hx is None else tuple(part.detach().clone().requires_grad_() for part in hx)
    layer.zero_grad()
    output, (h_n, c_n) = layer(x, state)
    (output.sin().sum() + h_n.cos().sum() + (c_n**2).sum()).backward()
    gradients = [parameter.grad for parameter in layer.parameters()]
    return [output, h_n, c_n, x.grad, *gradients, *(part.grad for part in state or ())]


@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_lstm_equals_torch_in_outputs_and_all_gradients(options, with_state):
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        theirs, ours = twins(dtype, **options)
        x = torch.randn((4, 9, 3) if options["batch_first"] else (9, 4, 3), dtype=dtype)
        rows = options["num_layers"] * (2 if options["bidirectional"] else 1)
        hx = tuple(torch.randn(2, rows, 4, 5, dtype=dtype)) if with_state else None
        pairs = zip(run_and_differentiate(ours, x, hx), run_and_differentiate(theirs, x, hx), strict=True)
        for mine, expected in pairs:
            assert relative_error(mine, expected) < tolerance


def test_the_same_seed_gives_torchs_own_weights_in_torchs_order():
    for options in OPTIONS:
        theirs, ours = twins(**options)
        assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_dropout_between_layers_drops_what_torch_drops():
    theirs, ours = twins(num_layers=3, dropout=0.5)
    x = torch.randn(6, 4, 3, dtype=torch.float64)
    results = []
    for layer in (theirs, ours):
        torch.manual_seed(7)
        results.append(run_and_differentiate(layer, x))
    for mine, expected in zip(*results, strict=True):
        assert relative_error(mine, expected) < 1e-12
    ours.eval()
    assert torch.equal(ours(x)[0], ours(x)[0])


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_unbatched_input(batch_first, bidirectional):
    theirs, ours = twins(batch_first=batch_first, bidirectional=bidirectional, num_layers=2)
    x = torch.randn(7, 3, dtype=torch.float64)
    hx = tuple(torch.randn(2, 4 if bidirectional else 2, 5, dtype=torch.float64))
    for mine, expected in zip(run_and_differentiate(ours, x, hx), run_and_differentiate(theirs, x, hx), strict=True):
        assert relative_error(mine, expected) < 1e-12


@pytest.mark.parametrize("shape", [(1, 4, 3), (6, 0, 3), (1, 1, 3)])
def test_length_one_and_empty_batch(shape):
    theirs, ours = twins(bidirectional=True)
    x = torch.randn(shape, dtype=torch.float64)
    for mine, expected in zip(run_and_differentiate(ours, x), run_and_differentiate(theirs, x), strict=True):
        assert relative_error(mine, expected) < 1e-12


def test_an_empty_sequence_leaves_the_state_as_it_is():
    layer = GLSTM(3, 5, num_layers=2)
    hx = torch.randn(2, 4, 5), torch.randn(2, 4, 5)
    output, state = layer(torch.randn(0, 4, 3), hx)
    assert output.shape == (0, 4, 5)
    assert all(torch.equal(after, before) for after, before in zip(state, hx, strict=True))


def test_an_input_is_not_read_where_every_unit_is_closed():
    layer = GLSTM(2, 4, mu=(1, 5), sigma=1.0, threshold=0.1)
    x = torch.randn(12, 3, 2)
    assert (layer.openness(12)[0, 8:] == 0).all()
    clean = run_and_differentiate(layer, x)
    x[9], x[11] = float("nan"), float("inf")
    dirty = run_and_differentiate(layer, x)
    assert all(torch.equal(a, b) for a, b in zip(clean, dirty, strict=True))


def test_every_weight_and_gate_value_has_its_gradient():
    x = torch.randn(5, 2, 2, dtype=torch.float64)
    layers = [
        GLSTM(2, 2, num_layers=2, bidirectional=True, mu=(1, 5), sigma=(2.0, 4.0), dtype=torch.float64),
        PLSTM(2, 2, tau=7.3, s=(0.2, 0.4), r=0.8, dtype=torch.float64),
        GLSTM(2, 3, mu=(1, 5), sigma=2.0, threshold=0.2, candidate="sigmoid", dtype=torch.float64),
        GatedLSTM(2, 3, gate=Periodic(mu=(0.2, 0.4), sigma=0.7, tau=2.9), threshold=0.1, dtype=torch.float64),
    ]
    for layer in layers:
        names, parameters = zip(*layer.named_parameters(), strict=True)

        def run(*values, layer=layer, names=names):
            output, (h_n, c_n) = torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))
            return output, h_n, c_n

        assert gradcheck(run, parameters, fast_mode=True)


@given(
    steps=st.integers(1, 12),
    cut=st.integers(0, 12),
    threshold=st.sampled_from([0.0, 0.01, 0.3]),
    per_sample=st.booleans(),
    batch_first=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_sequence_fed_in_pieces_gives_the_same_result(steps, cut, threshold, per_sample, batch_first, seed):
    torch.manual_seed(seed)
    layer = GLSTM(2, 4, num_layers=2, batch_first=batch_first, mu=(0, 6), sigma=2.0, threshold=threshold,
                  dtype=torch.float64).eval()  # fmt: skip
    cut = min(cut, steps)
    gaps = torch.rand((3, steps) if per_sample else (steps,), dtype=torch.float64) + 0.01
    times = gaps.cumsum(-1)
    times = times.T if per_sample and not batch_first else times
    x = torch.randn((3, steps, 2) if batch_first else (steps, 3, 2), dtype=torch.float64)
    axis = 1 if batch_first else 0
    time_axis = axis if per_sample else 0
    whole, state = layer(x, times=times)
    first, middle = layer(x.narrow(axis, 0, cut), times=times.narrow(time_axis, 0, cut))
    rest = steps - cut
    second, end = layer(x.narrow(axis, cut, rest), middle, times.narrow(time_axis, cut, rest))
    assert relative_error(torch.cat((first, second), axis), whole) < 1e-12
    assert all(relative_error(a, b) < 1e-12 for a, b in zip(end, state, strict=True))


def test_the_backward_direction_sees_the_times_of_its_inputs():
    layer = GLSTM(2, 3, bidirectional=True, mu=(1, 8), sigma=2.0, dtype=torch.float64)
    alone = GLSTM(2, 3, dtype=torch.float64)
    alone.load_state_dict({name.removesuffix("_reverse"): value for name, value in layer.state_dict().items()
                           if name.endswith("_reverse")})  # fmt: skip
    x, times = torch.randn(8, 2, 2, dtype=torch.float64), torch.rand(8, dtype=torch.float64).cumsum(0) * 2
    both = layer(x, times=times)[0][..., 3:]
    # Reading backwards from the last input: distances to mu are kept when time runs to minus.
    alone.set_gate(mu=-layer.mu_l0_reverse.detach())
    backwards = alone(x.flip(0), times=-times.flip(0))[0].flip(0)
    assert relative_error(both, backwards) < 1e-12


def test_shared_and_per_sample_times_agree():
    layer = GLSTM(2, 3, mu=(1, 8), sigma=2.0, batch_first=True)
    x, times = torch.randn(4, 8, 2), torch.tensor([0.5, 1.0, 2.5, 3.0, 4.5, 7.0, 7.25, 9.0])
    assert torch.allclose(layer(x, times=times)[0], layer(x, times=times.expand(4, 8))[0], atol=1e-7)
    assert torch.equal(layer(x)[0], layer(x, times=torch.arange(1.0, 9.0))[0])


def test_large_timestamps_keep_their_last_digits():
    start = 1_700_000_000  # seconds since 1970: float32 would round to 128 s
    layer = GLSTM(2, 1, mu=start + 3.0, sigma=2.0, dtype=torch.float64)
    assert layer.mu_l0.item() == start + 3
    layer.set_gate(mu=torch.tensor([start + 3.0], dtype=torch.float64))
    k = layer.openness(torch.arange(start, start + 6))[0, :, 0]
    assert k.argmax() == 3
    assert (k.diff()[:3] > 0).all()


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (torch.tensor([1.0, 2.0, float("nan"), 4.0]), r"times must be finite, but step 2 \(counted from 0\) is at nan"),
        (torch.tensor([1.0, 2.0, 3.0, float("inf")]), "times must be finite"),
        (torch.tensor([1.0, 3.0, 2.0, 4.0]), r"times must increase .* but step 2 \(counted from 0\) is at 2, after 3"),
        (torch.tensor([1.0, 2.0, 2.0, 4.0]), "times must increase"),
        (torch.tensor([[1, 2], [2, 2], [3, 5], [4, 6]]), r"step 1 of sample 1 \(counted from 0\) is at 2, after 2"),
        (torch.arange(5.0), r"times must have shape \(T,\) = \(4,\) shared by all samples or \(T, B\) = \(4, 2\)"),
        (torch.zeros(2, 4), r"but has \(2, 4\)"),
        (torch.tensor([True, False, True, True]), "times must be real numbers"),
    ],
)
def test_bad_times_are_named(times, message):
    layer = GLSTM(3, 5)
    with pytest.raises(ValueError, match=message):
        layer(torch.zeros(4, 2, 3), times=times)


def test_sequence_false_returns_the_same_final_state_and_no_output():
    layer = GLSTM(3, 5, num_layers=2, bidirectional=True, mu=(1, 9), sigma=3.0)
    x = torch.randn(9, 4, 3)
    output, (h_n, c_n) = layer(x, sequence=False)
    assert output is None
    _, (h, c) = layer(x)
    assert torch.equal(h_n, h)
    assert torch.equal(c_n, c)
    packed = pack_padded_sequence(x, torch.tensor([9, 3, 2, 1]))
    assert layer(packed, sequence=False)[0] is None


@given(threshold=st.floats(0, 0.99), sigma=st.floats(0.3, 30), training=st.booleans())
def test_a_thresholded_unit_is_frozen_exactly_while_closed(threshold, sigma, training):
    layer = GLSTM(2, 6, mu=(1, 20), sigma=sigma, threshold=threshold).train(training)
    k = layer.openness(20)[0]
    raw = copy.deepcopy(layer)
    raw.threshold = 0.0
    assert torch.equal(k, torch.where(raw.openness(20)[0] > threshold, raw.openness(20)[0], 0))
    output, _ = layer(torch.randn(20, 3, 2))
    before = torch.cat((torch.zeros(1, 3, 6), output[:-1]))
    closed = (k == 0)[:, None].expand_as(output)
    assert torch.equal(output[closed], before[closed])


def test_openness_has_one_table_a_layer_and_direction():
    layer = GLSTM(2, 5, num_layers=2, bidirectional=True, threshold=0.1)
    assert layer.openness(7).shape == (4, 7, 5)
    assert torch.equal(layer.openness(7), layer.openness(torch.arange(1.0, 8.0)))
    assert layer.openness(torch.arange(1.0, 8.0)[:, None].expand(7, 3)).shape == (4, 7, 3, 5)
    assert (LSTM(2, 5).openness(7) == 1).all()


def test_gates_can_be_set_and_frozen_by_hand():
    layer = GLSTM(2, 4, num_layers=2, mu=(1, 9), sigma=3.0)
    layer.set_gate(mu=torch.tensor([1.0, 2.0, 3.0, 4.0]), sigma=7)
    assert layer.mu_l0.tolist() == layer.mu_l1.tolist() == [1, 2, 3, 4]
    assert (layer.sigma_l1 == 7).all()
    with pytest.raises(ValueError, match="this gate has no value 'tau'; it has mu, sigma"):
        layer.set_gate(tau=3)
    layer.freeze_gate()
    layer(torch.randn(5, 2, 2))[0].sum().backward()
    assert layer.mu_l0.grad is None
    assert layer.weight_hh_l0.grad is not None
    layer.freeze_gate(False)
    layer(torch.randn(5, 2, 2))[0].sum().backward()
    assert layer.mu_l0.grad is not None


def test_gate_and_weight_parameters_part_the_model():
    model = torch.nn.Sequential(GLSTM(2, 4, bidirectional=True), torch.nn.Linear(8, 1))
    gates, weights = list(gate_parameters(model)), list(weight_parameters(model))
    assert len(gates) == 4
    assert {id(p) for p in gates} | {id(p) for p in weights} == {id(p) for p in model.parameters()}
    assert len(gates) + len(weights) == len(list(model.parameters()))
    assert [tuple(p.shape) for p in gates] == [(4,)] * 4


def test_any_gate_fits_the_general_layer():
    layer = GatedLSTM(2, 4, gate=Clockwork((1, 3)))
    assert list(gate_parameters(layer)) == []
    assert "period_l0" in layer.state_dict()
    output, _ = layer(torch.randn(6, 1, 2))
    layer.set_gate(period=(1, 3))
    assert layer.period_l0.tolist() == [1, 1, 3, 3]
    layer.set_gate(period=3)
    assert layer.period_l0.tolist() == [3, 3, 3, 3]
    with pytest.raises(ValueError, match="every clock period must be above 0"):
        layer.set_gate(period=0)
    slow = output[:, 0, 2:]
    assert torch.equal(slow[3], slow[2])
    assert torch.equal(slow[4], slow[2])
    assert not torch.equal(slow[5], slow[4])


def test_a_torch_state_dict_loads_without_reordering():
    theirs = torch.nn.LSTM(3, 5, 2, bidirectional=True)
    layer = GLSTM(3, 5, 2, bidirectional=True, sigma=1e9).eval()
    found = layer.load_state_dict(theirs.state_dict(), strict=False)
    assert not found.unexpected_keys
    assert {name.split("_l")[0] for name in found.missing_keys} == {"mu", "sigma"}
    x = torch.randn(6, 2, 3)
    assert torch.allclose(layer(x)[0], theirs(x)[0], atol=1e-6)


@pytest.mark.parametrize("cell", [GLSTM, PLSTM, LSTM])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtype_and_device_reach_every_tensor(cell, dtype):
    layer = cell(3, 5, dtype=dtype, device="cpu").eval()
    assert {p.dtype for p in layer.parameters()} == {dtype}
    output, (h_n, c_n) = layer(torch.randn(4, 2, 3, dtype=dtype))
    assert output.dtype == h_n.dtype == c_n.dtype == dtype
    assert cell(3, 5, device="meta").weight_hh_l0.is_meta


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"proj_size": 2}, "proj_size must be 0, not 2: a gate freezes unit by unit"),
        ({"hidden_size": 0}, "hidden_size must be a whole number of at least 1"),
        ({"num_layers": 0}, "num_layers must be"),
        ({"dropout": 1.5}, "dropout must be a probability"),
        ({"threshold": 1.0}, "threshold must be a number, at least 0 and below 1, not 1.0"),
        ({"candidate": "relu"}, "candidate must be one of tanh, sigmoid, not 'relu'"),
        ({"backend": "none"}, "backend must be one of"),
        ({"mu": torch.zeros(3)}, r"mu as a tensor must have shape \(5,\)"),
        ({"sigma": (3, 1)}, "sigma as a range"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        GLSTM(**{"input_size": 3, "hidden_size": 5, **options})


def test_dropout_in_a_single_layer_is_warned_about():
    with pytest.warns(UserWarning, match="num_layers=1 it does nothing"):
        GLSTM(3, 5, dropout=0.5)


@pytest.mark.parametrize(
    ("x", "hx", "message"),
    [
        (torch.zeros(4, 2, 7), None, r"with D = 3, but has shape \(4, 2, 7\)"),
        (torch.zeros(3), None, "the input must be"),
        (torch.zeros(4, 2, 3), torch.zeros(1, 2, 5), r"hx must be a pair \(h_0, c_0\), not Tensor"),
        (torch.zeros(4, 2, 3), (torch.zeros(1, 2, 5), torch.zeros(1, 3, 5)), r"c_0 must have shape \(1, 2, 5\)"),
        (torch.zeros(4, 2, 3), (None, None), r"h_0 must be a tensor of shape \(1, 2, 5\), not NoneType"),
        (torch.zeros(4, 3), (torch.zeros(1, 1, 5), torch.zeros(1, 1, 5)), r"h_0 must have shape \(1, 5\)"),
    ],
)
def test_bad_calls_are_named(x, hx, message):
    with pytest.raises(ValueError, match=message):
        GLSTM(3, 5)(x, hx)


def test_layers_can_be_copied_and_pickled():
    layer = GLSTM(3, 5, 2, bidirectional=True, threshold=0.1)
    x = torch.randn(4, 2, 3)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(x)[0], layer(x)[0])
    with pytest.raises(TypeError, match="the input must be a tensor or a PackedSequence, not list"):
        layer([1, 2])


def test_repr_says_what_differs_from_the_default_and_what_the_gate_is():
    layer = GLSTM(3, 5, num_layers=2, threshold=0.02)
    assert repr(layer) == "GLSTM(3, 5, num_layers=2, threshold=0.02, mu=None, sigma=None)"
    layer.set_gate(mu=[1.0, 2.0, 3.0, 4.0, 5.25])
    layer(torch.randn(6, 1, 3))
    share = round(100 * layer.openness(6).gt(0).double().mean().item())
    assert repr(layer) == (
        f"GLSTM(3, 5, num_layers=2, threshold=0.02, mu=1..5.25, sigma=1.6, open {share}% of 6 steps at k > 0.02)"
    )
    assert repr(GLSTM(3, 5, mu=1_700_000_000.5, sigma=2.0)) == "GLSTM(3, 5, mu=1700000000.5, sigma=2)"
    assert repr(PLSTM(3, 5, s=10.0)) == "PLSTM(3, 5, tau=1000, s=10, r=0.1)"
    assert repr(LSTM(3, 5)) == "LSTM(3, 5)"
    assert repr(GLSTM(3, 5, device="meta")) == "GLSTM(3, 5)"
