"""A layer without mu and sigma fits the times of its first call."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from glstm import GLSTM, LSTM, GatedLSTM, Periodic, SequenceModel, budget, deploy, from_lstm, prune, stream

NOW = 1_700_000_000.0


def fresh(seed=0, **options):
    torch.manual_seed(seed)
    return GLSTM(2, 8, **options)


def moments(layer, suffix="_l0"):
    return layer.gate_in_time(suffix)["mu"]


def covers(layer, first, last):
    mu, sigma = moments(layer), layer.gate_in_time("_l0")["sigma"]
    inside = bool((mu >= first - 1e-4 * (last - first)).all() and (mu <= last + 1e-4 * (last - first)).all())
    spread = float(mu.max() - mu.min()) > 0.5 * (last - first)
    return inside and spread and torch.allclose(sigma, torch.full_like(sigma, 0.32 * (last - first)), rtol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_the_first_call_fits_and_later_ones_do_not(training):
    layer = fresh(num_layers=2, bidirectional=True).train(training)
    assert layer.unfitted
    references = list(layer.gate_parameters())
    layer(torch.randn(50, 3, 2))
    assert not layer.unfitted
    assert covers(layer, 1, 50)
    assert (layer.origin, layer.unit) == (0, 1)
    assert all(one is other for one, other in zip(references, layer.gate_parameters(), strict=True))
    before = moments(layer, "_l1_reverse")
    layer(torch.randn(900, 3, 2))
    assert torch.equal(moments(layer, "_l1_reverse"), before)
    assert torch.equal(moments(layer), moments(layer).sort().values)


def test_the_random_draw_is_that_of_the_seed():
    by_hand = fresh(mu=(1, 50), sigma=0.32 * 49)
    fitted = fresh().fit_times(50)
    assert torch.allclose(fitted.mu_l0, by_hand.mu_l0, rtol=1e-5)
    assert torch.equal(fitted.weight_hh_l0, by_hand.weight_hh_l0)


@pytest.mark.parametrize(
    ("times", "first", "last"),
    [
        (30, 1, 30),
        (np.arange(5, 20), 5, 19),
        ([0.5, 1.0, 2.5], 0.5, 2.5),
        (NOW + np.arange(0, 3000, 60), NOW, NOW + 2940),
        (torch.linspace(0, 1, 40), 0, 1),
        (torch.stack((torch.arange(4.0), torch.arange(4.0) + 90)).T, 0, 93),
        (pack_sequence([torch.arange(5.0, 9.0), torch.arange(7.0, 9.0)]), 5, 8),
    ],
    ids=["a number", "numpy", "a list", "unix", "from 0 to 1", "per sample", "packed"],
)
def test_any_times_can_be_fitted(times, first, last):
    assert covers(fresh().fit_times(times), first, last)
    looked_at = fresh()
    looked_at.openness(times)
    assert covers(looked_at, first, last)


def test_large_and_small_times_get_a_frame_and_step_numbers_do_not():
    frames = {}
    for name, times in {
        "steps": torch.arange(1.0, 51.0),
        "irregular": torch.rand(50).cumsum(0) * 3,
        "unix": NOW + 60.0 * torch.arange(50, dtype=torch.float64),
        "days": torch.arange(50, dtype=torch.float64) / 86400,
    }.items():
        layer = fresh()
        layer(torch.randn(50, 3, 2), times=times)
        frames[name] = (layer.origin, layer.unit)
    assert frames["steps"] == frames["irregular"] == (0, 1)
    assert frames["unix"] == (NOW, 60)
    assert frames["days"] == pytest.approx((0, 1 / 86400))
    kept = fresh(origin=NOW - 5, unit=1.0)
    kept(torch.randn(50, 3, 2), times=NOW + 60 * torch.arange(50, dtype=torch.float64))
    assert (kept.origin, kept.unit) == (NOW - 5, 1)


def test_packed_sequences_fit_their_valid_steps():
    sequences = [torch.randn(length, 2) for length in (4, 9)]
    times = [torch.arange(10.0, 14.0), torch.arange(12.0, 21.0)]
    layer = fresh()
    layer(pack_sequence(sequences, enforce_sorted=False), times=pack_sequence(times, enforce_sorted=False))
    assert covers(layer, 10, 20)
    counted = fresh()
    counted(pack_sequence(sequences, enforce_sorted=False))
    assert covers(counted, 1, 9)


def test_a_single_step_has_a_span_of_one_and_an_empty_call_waits():
    layer = fresh()
    layer(torch.randn(0, 3, 2))
    assert layer.unfitted
    layer(torch.randn(1, 3, 2), times=torch.tensor([7.0]))
    assert covers(layer, 7, 8)
    with pytest.raises(ValueError, match="at least one time"):
        fresh().fit_times([])


def test_what_was_given_set_or_loaded_stays():
    x = torch.randn(20, 3, 2)
    narrow = fresh(sigma=3.0)
    narrow(x)
    assert narrow.sigma_l0.tolist() == [3] * 8
    assert moments(narrow).max() <= 20
    placed = fresh(mu=5.0)
    placed(x)
    assert placed.mu_l0.tolist() == [5] * 8
    assert placed.sigma_l0.tolist() == pytest.approx([0.32 * 19] * 8)
    by_hand = fresh()
    by_hand.set_gate(mu=4.0, sigma=2.0)
    by_hand(x)
    assert (by_hand.mu_l0[0], by_hand.sigma_l0[0]) == (4, 2)
    changed = fresh()
    torch.nn.init.constant_(changed.sigma_l0, 40.0)
    changed(x)
    assert changed.sigma_l0.tolist() == [40] * 8
    assert moments(changed).max() <= 20
    loaded = fresh().eval()
    loaded.load_state_dict(fresh(1).fit_times(500).state_dict())
    loaded(x)
    assert covers(loaded, 1, 500)
    assert covers(loaded.fit_times(30), 1, 500)


def test_an_explicit_fit_is_kept_and_can_be_repeated():
    layer = fresh().fit_times(100)
    layer(torch.randn(20, 3, 2))
    assert covers(layer, 1, 100)
    start = moments(layer)
    with torch.no_grad():
        layer.mu_l0.add_(5.0)
    assert torch.equal(moments(layer.fit_times(100)), start)
    assert covers(layer.fit_times(10), 1, 10)
    layer.reset_parameters()
    assert layer.unfitted


@pytest.mark.parametrize("called", [False, True])
def test_copies_and_saved_layers_fit_the_same(called, tmp_path):
    model = SequenceModel(fresh(), torch.nn.Linear(8, 1)).eval()
    x, times = torch.randn(20, 3, 2), NOW + torch.arange(20.0, dtype=torch.float64)
    if called:
        model(x, times)
    initial = copy.deepcopy(model.state_dict())
    model.save_pretrained(tmp_path)
    loaded = SequenceModel(GLSTM(2, 8), torch.nn.Linear(8, 1)).eval()
    loaded.load_state_dict(initial)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), SequenceModel.from_pretrained(tmp_path), loaded]
    expected = model(x, times)
    for twin in copies:
        assert twin.layer.unfitted is not called
        assert torch.equal(twin(x, times), expected)
    # The state from before training brings that from before training back, as for the next fold of a validation.
    model.load_state_dict(initial)
    assert model.layer.unfitted is not called
    assert torch.equal(model(x, times), expected)


def test_a_fit_to_the_placeholders_own_length_is_not_taken_for_none():
    layer = fresh().fit_times(784)
    layer.load_state_dict(copy.deepcopy(layer.state_dict()))
    assert not layer.unfitted
    layer.eval()(torch.randn(30, 1, 2))
    assert covers(layer, 1, 784)


@pytest.mark.parametrize("options", [{"origin": NOW, "unit": 60.0}, {"unit": 60.0}])
def test_a_given_frame_waits_for_times_too(options):
    layer, times = fresh(**options), NOW + 60.0 * torch.arange(50, dtype=torch.float64)
    other = GLSTM(2, 8, **options)
    other.load_state_dict(layer.state_dict())
    for one in (layer, other):
        assert one.unfitted
        one(torch.randn(50, 1, 2), times=times)
        assert covers(one, NOW, NOW + 49 * 60)
        assert one.unit == 60
        assert one.mu_l0.abs().max() < 60
    assert torch.equal(layer.mu_l0, other.mu_l0)


def test_budget_prune_deploy_and_stream_fit_too():
    layer = fresh()
    assert 0.3 < budget(layer, 40).item() < 0.7
    assert covers(layer, 1, 40)
    pruned = prune(fresh(), 40, 0.01)
    assert covers(pruned, 1, 40)
    pruned.eval()(torch.randn(90, 1, 2))
    assert covers(pruned, 1, 40)
    model = SequenceModel(fresh(), torch.nn.Linear(8, 1)).eval()
    deploy(model, 40)
    assert covers(model.layer, 1, 40)
    list(stream(layer := fresh(), torch.randn(40, 1, 2).split(20)))
    assert covers(layer, 1, 20)
    converted = from_lstm(torch.nn.LSTM(2, 8))
    converted(torch.randn(40, 1, 2))
    assert covers(converted, 1, 40)


def test_inside_transforms_nothing_is_fitted_and_outside_it_is():
    x = torch.randn(20, 3, 2)
    layer = fresh()
    values = {name: value.detach() for name, value in layer.named_parameters()}
    torch.func.functional_call(layer, values, (x,))
    torch.func.grad(lambda values: torch.func.functional_call(layer, values, (x,))[0].sum())(values)
    torch.vmap(lambda x: layer(x)[0])(x[None])
    torch.export.export(layer, (x,))
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    compiled(x)
    with torch.device("meta"):
        GLSTM(2, 8)(torch.randn(20, 3, 2))
    assert layer.mu_l0.max() > 50
    with pytest.raises(ValueError, match="outside of torch's transforms"):
        torch.vmap(lambda x: layer.fit_times(x[:, 0, 0]).mu_l0)(x[None])
    layer(x)
    assert covers(layer, 1, 20)
    assert torch.allclose(compiled(x)[0], layer(x)[0], atol=1e-6)


def test_inference_mode_and_half_precision():
    layer = fresh().bfloat16()
    with torch.inference_mode():
        layer(torch.randn(20, 3, 2, dtype=torch.bfloat16))
    assert moments(layer).max() <= 20
    layer(torch.randn(20, 3, 2, dtype=torch.bfloat16))[0].sum().backward()
    assert layer.mu_l0.grad is not None


def test_a_layer_without_gates_has_nothing_to_fit():
    layer = LSTM(2, 3)
    assert not layer.unfitted
    layer.fit_times(10)
    layer(torch.randn(4, 1, 2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_captured_graph_is_not_disturbed_and_a_call_on_the_device_fits():
    times = NOW + torch.arange(20, dtype=torch.float64, device="cuda")
    layer, x = fresh().cuda().eval(), torch.randn(20, 3, 2, device="cuda")
    with torch.no_grad():
        LSTM(2, 8).cuda()(x)  # what is made at a first call
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            layer(x)
        assert layer.unfitted
        layer(x, times=times)
        graph.replay()
    assert covers(layer, NOW, NOW + 19)
    assert layer.mu_l0.is_cuda


def periodic(seed=0, **values):
    torch.manual_seed(seed)
    return GatedLSTM(2, 8, 2, bidirectional=True, gate=Periodic(**values))


def test_gates_that_come_back_fit_their_period_to_the_times():
    layer = periodic()
    assert layer.unfitted
    layer(torch.randn(81, 3, 2))
    values = layer.gate_in_time("_l1")
    assert values["tau"].tolist() == [20.0] * 8
    assert values["sigma"].tolist() == pytest.approx([6.4] * 8)
    assert (values["mu"] >= 1).all()
    assert (values["mu"] <= 21).all()
    assert values["mu"].max() - values["mu"].min() > 10
    assert torch.equal(values["mu"], values["mu"].sort().values)
    by_hand = periodic(mu=(1, 21), sigma=6.4, tau=20.0)
    assert torch.allclose(by_hand.mu_l0, layer.mu_l0, rtol=1e-5)
    layer.fit_times(NOW + 60 * torch.arange(81.0, dtype=torch.float64))
    assert (layer.origin, layer.unit) == (NOW, 60.0)
    assert torch.allclose(layer.tau_l0, torch.full((8,), 20.0))


def test_what_is_left_open_fits_the_period_that_was_given():
    layer = periodic(tau=(3.0, 30.0)).fit_times(81)
    for suffix in ("_l0", "_l1_reverse"):
        values = layer.gate_in_time(suffix)
        assert torch.allclose(values["sigma"], 0.32 * values["tau"], rtol=1e-5)
        assert (values["mu"] >= 1).all()
        assert (values["mu"] <= 1 + values["tau"] + 1e-5).all()
    longer = periodic(tau=500.0).fit_times(81)  # all open within the times, once
    assert longer.gate_in_time("_l0")["mu"].max() <= 81
    assert longer.openness(81).amax(1).min() > 0.9
    assert periodic(sigma=2.0).fit_times(81).gate_in_time("_l0")["tau"].tolist() == [20.0] * 8


def test_a_period_that_waits_for_times_still_waits_when_it_is_loaded():
    for values in ({}, {"tau": 12.0}):
        before = periodic(**values)
        again = periodic(seed=0 if values else 1, **values)
        again.load_state_dict(before.state_dict())
        assert again.unfitted
        assert torch.equal(again.fit_times(50).mu_l0, before.fit_times(50).mu_l0)
        loaded = periodic(seed=2, **values)
        loaded.load_state_dict(before.state_dict())
        assert not loaded.unfitted
        assert torch.equal(loaded.tau_l0, before.tau_l0)
