"""Time relative to an origin, in a unit: large and small timestamps are as good as step numbers."""

import copy
import pickle

import numpy as np
import pytest
import torch

from glstm import GLSTM, PLSTM, Clockwork, GatedLSTM, Periodic, SequenceModel, from_lstm, prune, to_lstm
from glstm.weights import TIME_FRAME

STEPS = 40
NOW = 1_700_000_000.0  # seconds since 1970: float32 would round to 128 s
# Clocks that show the same: (what a step lasts, when the first one is), in the unit of the clock.
CLOCKS = {"steps": (1.0, 1.0), "milliseconds": (250.0, 7e6), "days": (0.25 / 86400, 19675.5), "unix": (0.25, NOW)}


def times_of(clock, steps=STEPS):
    step, first = CLOCKS[clock]
    return first + step * torch.arange(steps, dtype=torch.float64)


def layer_for(clock, seed=3, **options):
    """Gates that are in the same place of the sequence, whatever the clock."""
    step, first = CLOCKS[clock]
    torch.manual_seed(seed)
    mu = (first + 4 * step, first + 35 * step)
    return GLSTM(2, 6, mu=mu, sigma=5 * step, origin=first - step, unit=step, **options)


def train(layer, times, steps=12):
    x, y = torch.randn(STEPS, 4, 2, generator=torch.Generator().manual_seed(1)), torch.ones(4, 6)
    groups = [{"params": list(layer.gate_parameters()), "lr": 0.3}, {"params": [layer.weight_hh_l0], "lr": 1e-2}]
    optimizer = torch.optim.Adam(groups)
    losses = []
    for _ in range(steps):
        loss = (layer(x, times=times)[1][0][0] - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("clock", CLOCKS)
def test_every_clock_gives_the_same_openness_and_the_same_training(clock):
    ours, theirs = layer_for(clock), layer_for("steps")
    assert torch.allclose(ours.openness(times_of(clock)), theirs.openness(times_of("steps")), atol=1e-5)
    start = ours.mu_l0.detach().clone()
    assert train(ours, times_of(clock)) == pytest.approx(train(theirs, times_of("steps")), rel=1e-3)
    assert (ours.mu_l0 - start).abs().max() > 0.5
    assert torch.allclose(ours.mu_l0, theirs.mu_l0, atol=1e-2)


def test_without_a_frame_nothing_changes_and_nothing_is_added():
    torch.manual_seed(0)
    plain = GLSTM(2, 6, mu=(1, 40), sigma=5.0)
    torch.manual_seed(0)
    given = GLSTM(2, 6, mu=(1, 40), sigma=5.0, origin=0, unit=1)
    x = torch.randn(STEPS, 3, 2)
    assert torch.equal(plain(x)[0], given(x)[0])
    assert list(plain.state_dict()) == list(given.state_dict())
    assert TIME_FRAME not in plain.state_dict()
    times = torch.arange(1.0, 5.0)
    assert plain._frame.relative(times, torch.float32) is times


def test_moments_that_float32_cannot_hold_get_an_origin_and_learn():
    layer = GLSTM(2, 6, mu=(NOW + 1, NOW + 40), sigma=5.0)
    assert NOW < layer.origin < NOW + 41
    assert layer.unit == 1
    values = layer.gate_in_time("_l0")
    assert values["mu"].dtype == torch.float64
    assert (values["mu"] >= NOW + 1).all()
    assert (values["mu"] <= NOW + 40).all()
    assert values["sigma"].tolist() == [5.0] * 6
    train(layer, NOW + torch.arange(1.0, 41.0, dtype=torch.float64))
    moved = layer.gate_in_time("_l0")["mu"] - values["mu"]
    assert moved.abs().median() > 1
    assert moved.abs().max() < 10


def test_values_are_given_in_the_users_time():
    layer = GLSTM(2, 3, mu=NOW, sigma=30.0, origin=NOW - 60, unit=60.0)
    assert layer.mu_l0.tolist() == [1.0] * 3
    assert layer.sigma_l0.tolist() == [0.5] * 3
    layer.set_gate(mu=(NOW, NOW + 60), sigma=np.array([6.0, 60.0, 120.0]))
    assert layer.sigma_l0.tolist() == pytest.approx([0.1, 1.0, 2.0])
    assert layer.mu_l0.min() >= 1
    assert layer.mu_l0.max() <= 2
    layer.set_gate(mu=[NOW, NOW + 6, NOW + 12])
    assert layer.mu_l0.tolist() == pytest.approx([1.0, 1.1, 1.2])
    plain = GLSTM(2, 3, mu=5.0, sigma=2.0)
    plain.set_gate(mu=NOW)
    assert plain.origin == NOW
    assert plain.gate_in_time("_l0")["sigma"].tolist() == [2.0] * 3


def test_phases_and_clocks_have_moments_and_durations_too():
    times = torch.arange(1.0, 31.0, dtype=torch.float64)
    torch.manual_seed(0)
    steps = PLSTM(2, 5, tau=20.0, s=(2.0, 9.0), r=0.3)
    torch.manual_seed(0)
    late = PLSTM(2, 5, tau=20 * 60.0, s=(NOW + 2 * 60, NOW + 9 * 60), r=0.3, origin=NOW, unit=60.0)
    assert torch.allclose(late.openness(NOW + 60 * times), steps.openness(times), atol=1e-5)
    assert late.r_l0.tolist() == steps.r_l0.tolist()
    torch.manual_seed(0)
    steps = GatedLSTM(2, 5, gate=Periodic(mu=(2.0, 9.0), sigma=1.5, tau=7.0))
    gate = Periodic(mu=(NOW + 2 * 60, NOW + 9 * 60), sigma=1.5 * 60, tau=7 * 60.0)
    for options in ({"origin": NOW, "unit": 60.0}, {}):
        torch.manual_seed(0)
        late = GatedLSTM(2, 5, gate=gate, **options)
        assert torch.allclose(late.openness(NOW + 60 * times), steps.openness(times), atol=1e-4)
    clock = GatedLSTM(2, 4, gate=Clockwork((1, 5)))
    minutes = GatedLSTM(2, 4, gate=Clockwork((60, 300)), origin=NOW, unit=60.0)
    assert torch.equal(minutes.openness(NOW + 60 * times), clock.openness(times))
    assert minutes.gate_in_time("_l0")["period"].tolist() == [60, 60, 300, 300]


def test_the_frame_goes_wherever_the_values_go():
    layer = layer_for("unix", threshold=0.01)
    times = times_of("unix")
    k = layer.openness(times)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin.openness(times), k)
    other = GLSTM(2, 6, mu=3.0, sigma=1.0, threshold=0.01)
    torch.nn.Sequential(other).load_state_dict(torch.nn.Sequential(layer).state_dict())
    assert torch.equal(other.openness(times), k)
    assert (other.origin, other.unit) == (layer.origin, layer.unit)
    # Values from a layer without a frame are in the user's time.
    plain = GLSTM(2, 6, mu=(1, 40), sigma=5.0, threshold=0.01)
    layer.load_state_dict(plain.state_dict())
    assert torch.equal(layer.openness(40), plain.openness(40))
    half_loaded = layer_for("unix")
    half_loaded.load_state_dict({"mu_l0": torch.ones(6)}, strict=False)
    assert half_loaded.gate_in_time("_l0")["sigma"].tolist() == pytest.approx([5 * 0.25] * 6)
    assert half_loaded.gate_in_time("_l0")["mu"].tolist() == [1.0] * 6


def test_conversions_keep_the_frame():
    layer = layer_for("unix")
    times = times_of("unix")
    x = torch.randn(STEPS, 3, 2)
    pruned = prune(layer, times, 0.01)
    assert (pruned.origin, pruned.unit) == (layer.origin, layer.unit)
    layer.threshold = 0.01
    kept = pruned.kept[0]
    assert torch.allclose(pruned(x, times=times)[1][0], layer(x, times=times)[1][0][..., kept], atol=1e-6)
    back = from_lstm(to_lstm(layer), mu=(NOW, NOW + 10), sigma=3.0)
    assert abs(back.origin - NOW) < 10


def test_a_saved_network_keeps_the_frame(tmp_path):
    model = SequenceModel(layer_for("days"), torch.nn.Linear(6, 1)).eval()
    model.save_pretrained(tmp_path)
    again = SequenceModel.from_pretrained(tmp_path)
    x, times = torch.randn(STEPS, 3, 2), times_of("days")
    assert (again.layer.origin, again.layer.unit) == (model.layer.origin, model.layer.unit)
    assert torch.equal(again(x, times), model(x, times))


def test_a_cached_table_is_not_used_in_another_frame():
    layer = GLSTM(2, 6, mu=(1, 40), sigma=5.0).eval()
    x, times = torch.randn(STEPS, 3, 2), torch.arange(1.0, 41.0, dtype=torch.float64)
    with torch.no_grad():
        before = layer(x, times=times)[0]
        state = {**layer.state_dict(), TIME_FRAME: torch.tensor([10.0, 1.0], dtype=torch.float64)}
        layer.load_state_dict(state)
        assert torch.allclose(layer(x, times=times + 10)[0], before, atol=1e-6)
        assert not torch.allclose(layer(x, times=times)[0], before, atol=1e-3)


def test_half_precision_layers_compare_times_in_32_bits():
    layer = GLSTM(2, 1, mu=NOW + 100, sigma=1.0, origin=NOW, dtype=torch.bfloat16)
    k = layer.openness(NOW + torch.arange(98.0, 103.0, dtype=torch.float64))[0, :, 0]
    assert k.float().tolist() == pytest.approx([np.exp(-4), np.exp(-1), 1, np.exp(-1), np.exp(-4)], rel=1e-2)


def test_compile_and_export_go_through_a_frame():
    model = SequenceModel(layer_for("unix"), torch.nn.Linear(6, 1)).eval()
    x, times = torch.randn(STEPS, 3, 2), times_of("unix")
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x, times), model(x, times), atol=1e-6)
    program = torch.export.export(model, (x, times))
    assert torch.allclose(program.module()(x, times), model(x, times), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit": 0.0}, "unit must be above 0, not 0.0"),
        ({"unit": -1.0}, "unit must be above 0"),
        ({"unit": "s"}, "unit must be a finite number, in the unit of the times, not 's'"),
        ({"origin": float("nan")}, "origin must be a finite number"),
    ],
)
def test_bad_frames_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        GLSTM(2, 3, **options)
