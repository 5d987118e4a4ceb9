"""Rates that fit the times, and sentences where gates and times do not fit: said once, and only then."""

import re
import warnings

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from glstm import (
    GLSTM,
    LSTM,
    PLSTM,
    Clockwork,
    GatedLSTM,
    GateWarning,
    Periodic,
    SequenceModel,
    check,
    parameter_groups,
)

STEPS = 200
NOW = 1_700_000_000.0
COUNTED = torch.arange(1, STEPS + 1, dtype=torch.float64)
# A mistake: how the layer was made, the times it is called with (None: counted), and what is said.
MISTAKES = {
    "mu elsewhere": (
        {"mu": (5000, 6000), "sigma": 50.0},
        None,
        "mu of 20 of 20 units.* outside the times, .*1 to 200",
    ),
    "mu of longer sequences": ({"mu": (1, 2000), "sigma": 50.0}, None, "is outside the times"),
    "sigma far too narrow": ({"mu": (1, 200), "sigma": 0.01}, None, "about 0.01, is far below the step .* about 1:"),
    "sigma absurdly wide": ({"mu": (1, 200), "sigma": 1e6}, None, "more than 100 times the span .* at more cost"),
    "seconds for steps": ({"mu": (1, 200), "sigma": 50.0}, COUNTED / 100, "give mu and sigma in the unit of the times"),
    "milliseconds for steps": ({"mu": (1, 200), "sigma": 50.0}, COUNTED * 1000, "in the unit of the times"),
    "times forgotten": ({"mu": (1000, 200_000), "sigma": 900.0}, None, "if the sequence has timestamps, pass them"),
    "unix for steps": ({"mu": (1, 200), "sigma": 50.0}, NOW + COUNTED, "outside the times, which are from 170000000"),
    "nothing ever open": ({"mu": 230.0, "sigma": 1.0}, None, "no unit opens at any step: the largest k is 0"),
}


def make(**options):
    torch.manual_seed(0)
    return GLSTM(2, 20, **options)


def said(layer, times=None, steps=STEPS):
    """The warnings of one call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        layer(torch.randn(steps, 2, 2), times=times)
    assert all(one.category is GateWarning for one in caught)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_mistake_is_said_once_in_training_and_whenever_asked(mistake):
    options, times, sentence = MISTAKES[mistake]
    layer = make(**options)
    assert check(layer, STEPS if times is None else times) != []
    assert said(layer.eval(), times) == []
    first = said(layer.train(), times)
    assert len(first) == 1
    with pytest.warns(GateWarning, match=sentence):
        warnings.warn(first[0], GateWarning, stacklevel=1)
    assert said(layer, times) == []
    assert check(layer) == first  # at the times that it has seen
    assert check(SequenceModel(layer, torch.nn.Linear(20, 1))) == first


def test_widths_that_optimisers_or_hands_left_at_0_or_below():
    layer = make(mu=(1, 200), sigma=5.0)
    layer.sigma_l0.data.zero_()
    assert "sigma is 0 in 20 of 20 units" in check(layer)[0]
    assert "a sigma of about 63.7" in check(layer, STEPS)[0]
    layer.sigma_l0.data.fill_(-5.0)
    (sentence,) = check(layer, STEPS)
    assert "sigma is below 0 in 20 of 20 units" in sentence
    layer.sigma_l0.data[3:] = 5.0  # a few crossed 0 in training
    assert check(layer, STEPS) == []


@pytest.mark.parametrize(
    "sigma", [0, -1, -0.5, (0, 5), (-3, 3), torch.tensor([1.0, 0.0, 2.0]), np.array([1.0, -2.0, 1])]
)
def test_a_width_that_is_given_is_above_0(sigma):
    with pytest.raises(ValueError, match=r"sigma must be above 0, not .*: it is a width, in the unit of the times"):
        GLSTM(2, 3, sigma=sigma)
    layer = GLSTM(2, 3)
    with pytest.raises(ValueError, match="sigma must be above 0"):
        layer.set_gate(sigma=sigma)


SPANS = {
    "counted": None,
    "steps": COUNTED,
    "irregular": torch.rand(STEPS, generator=torch.Generator().manual_seed(1)).cumsum(0),
    "milliseconds": COUNTED * 250,
    "days": 19675 + COUNTED / 86400,
    "unix": NOW + COUNTED,
    "unix, whole numbers": torch.arange(1_700_000_000, 1_700_000_000 + STEPS),
    "from 0 to 1": torch.linspace(0, 1, STEPS),
    "per sample": NOW + torch.stack((COUNTED, COUNTED + 5000)).T,
}


@pytest.mark.parametrize("times", SPANS.values(), ids=SPANS)
def test_defaults_are_silent_and_learn_whatever_the_clock(times):
    layer = make()
    assert check(layer, STEPS if times is None else times) == []
    assert layer.unfitted  # to check changes nothing
    assert said(layer, times) == []
    optimizer = torch.optim.Adam(parameter_groups(layer))
    assert check(layer, times, optimizer) == check(layer, optimizer=optimizer) == []
    before = layer.gate_in_time("_l0")["mu"]
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.randn(STEPS, 2, 2), times=times)[0].square().mean().backward()
        optimizer.step()
    assert layer.seen is not None
    moved = (layer.gate_in_time("_l0")["mu"] - before).abs() / layer.seen.width
    assert 1e-4 < moved.median() < 1e-2


RIGHT = {
    "adding": ({"mu": (300.0, 700.0), "sigma": 40.0}, 1000),
    "adding, one moment": ({"mu": 500.0, "sigma": 40.0}, 1000),
    "adding-a1": ({"mu": (300.0, 700.0), "sigma": 1.0}, 1000),
    "adding-a2": ({"mu": (0.0, 400.0), "sigma": 40.0}, 1000),
    "adding-a3": ({"mu": (600.0, 1000.0), "sigma": 40.0}, 1000),
    "smnist": ({"mu": (1.0, 784.0), "sigma": 250.0}, 784),
    "budget": ({"mu": (1.0, 784.0), "sigma": 25.0, "threshold": 0.01}, 784),
    "scifar": ({"mu": (1.0, 1024.0), "sigma": 650.0}, 1024),
    "open at the end": ({"mu": (1.0, 1024.0), "sigma": 5000.0}, 1024),
}


@pytest.mark.parametrize("right", RIGHT)
def test_the_papers_settings_are_silent(right):
    options, steps = RIGHT[right]
    layer = make(**options)
    assert said(layer, steps=steps) == check(layer, steps) == []


def test_other_gates_are_doubted_only_if_they_never_open():
    assert said(PLSTM(2, 20), steps=1000) == []
    assert said(GatedLSTM(2, 20, gate=Clockwork())) == []
    assert said(LSTM(2, 20)) == []
    (sentence,) = said(PLSTM(2, 20, tau=10_000.0, s=(5000.0, 6000.0)), steps=100)
    assert "no unit opens at any step" in sentence


def periodic(**values):
    torch.manual_seed(0)
    return GatedLSTM(2, 20, gate=Periodic(**values))


@pytest.mark.parametrize(
    ("values", "times", "sentence"),
    [
        ({"tau": 0.5}, None, r"tau, about 0.5, is below the step of the times, about 1: .* leave it open \(None\)"),
        ({"tau": 24.0, "sigma": 4.0}, COUNTED * 1000, "is below the step of the times, about 1000"),
        ({"tau": 24_000.0, "sigma": 500.0}, None, "more than 10 times the span of the times, 199: no unit comes back"),
        ({"tau": 10.0, "sigma": 60.0}, None, "more than 2 times the period tau, about 10: .* of about 3.2, 0.32 of"),
        ({"mu": 100.5, "sigma": 0.1, "tau": 100.0}, None, "no unit opens at any step"),
    ],
)
def test_periods_that_do_not_fit_are_doubted(values, times, sentence):
    layer = periodic(**values)
    (found,) = said(layer, times)
    assert re.search(sentence, found), found
    assert check(layer, STEPS if times is None else times) == [found]


def test_periods_that_an_optimiser_spoiled_are_doubted():
    for name in ("sigma", "tau"):
        for value, sentence in ((0.0, f"{name} is 0 in 20 of 20"), (-3.0, f"{name} is below 0 in 20 of 20 units")):
            layer = periodic(mu=(1, 10), sigma=3.0, tau=10.0)
            with torch.no_grad():
                layer.get_parameter(f"{name}_l0").fill_(value)
            (found,) = check(layer, STEPS)
            assert sentence in found


def test_usual_periods_are_silent():
    for values in ({}, {"tau": 24.0}, {"tau": (5.0, 50.0)}, {"mu": (0, 24), "sigma": 2.0, "tau": 24.0}):
        for times in (None, COUNTED, NOW + 3600 * COUNTED):
            scaled = {name: value if times is None or times[0] < 2 else None for name, value in values.items()}
            assert said(periodic(**scaled), times) == []


def test_values_that_reach_less_far_than_the_span_have_lower_rates():
    """A change of tau moves the last of 50 pulses by 50 changes."""
    layer = periodic(mu=(1, 4), sigma=1.0, tau=4.0).fit_times(201)
    names = {id(value): name for name, value in layer.named_parameters()}

    def rates(**options):
        groups = parameter_groups(layer, **options)
        return {names[id(value)]: group["lr"] for group in groups for value in group["params"] if value.dim() == 1}

    found = rates(lr=1e-3)
    assert found["mu_l0"] == found["sigma_l0"] == pytest.approx(1e-3 * 4)
    assert found["tau_l0"] == pytest.approx(1e-3 * 4 / 50)
    found = rates(gate_lr=0.5)
    assert found["mu_l0"] == found["sigma_l0"] == 0.5
    assert found["tau_l0"] == pytest.approx(0.5 / 50)
    alone = parameter_groups(periodic().fit_times(NOW + 60 * COUNTED), lr=1e-3)  # stored in a unit of 60 s
    assert sorted(group["lr"] for group in alone[1:]) == pytest.approx([1e-3 * 199 / 16, 1e-3 * 199 / 4])


def test_nothing_is_said_where_nothing_can_be_told():
    for times in (torch.tensor([500.0]), torch.zeros(0)):
        assert said(make(mu=(1, 200), sigma=5.0), times, len(times)) == []
    far = make(mu=(5000, 6000), sigma=5.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.vmap(lambda x: far(x)[0])(torch.randn(1, STEPS, 2, 2))
        torch.compile(far, backend="aot_eager", fullgraph=True)(torch.randn(STEPS, 2, 2))
        torch.export.export(far, (torch.randn(STEPS, 2, 2),))
    assert len(said(far)) == 1


def test_a_sequence_in_pieces_is_silent_if_all_its_times_were_named():
    x = COUNTED[:20]
    assert len(said(make(mu=(1, 200), sigma=5.0), x, 20)) == 1
    assert said(make(mu=(1, 200), sigma=5.0).fit_times(STEPS), x, 20) == []
    assert said(make().fit_times(STEPS), x, 20) == []
    assert len(said(make().fit_times(STEPS), NOW + x, 20)) == 1


def test_check_takes_times_of_any_form_and_names_layers():
    layer = make(mu=(5000, 6000), sigma=50.0)
    rows = torch.stack((COUNTED, COUNTED + 3)).T
    for times in (STEPS, COUNTED, COUNTED.numpy(), COUNTED.tolist(), rows, pack_sequence([COUNTED, COUNTED[:5]])):
        assert len(check(layer, times)) == 1
    assert check(layer) == []  # without times, only widths can be judged
    assert check(torch.nn.Linear(1, 1), STEPS) == []
    both = torch.nn.ModuleDict({"near": make(), "far": layer})
    (sentence,) = check(both, STEPS)
    assert sentence.startswith("far: mu of 20 of 20 units")
    with pytest.raises(TypeError, match="check takes a model or a layer, not list"):
        check([layer])  # pyright: ignore[reportArgumentType]


def test_gates_that_fly_away_and_gates_that_cannot_move():
    layer = make()
    layer(torch.randn(STEPS, 2, 2), times=torch.linspace(0, 1, STEPS))
    weights = [{"params": [layer.weight_hh_l0], "lr": 1e-3}]
    by_hand = [{"params": list(layer.gate_parameters()), "lr": 1.0 / layer.unit}]
    (sentence,) = check(layer, optimizer=torch.optim.Adam(weights + by_hand))
    assert "learning rate of 1 is more than 10% of the span of the times, 1:" in sentence
    long = make().fit_times(784)
    (sentence,) = check(long, optimizer=torch.optim.Adam(long.parameters(), lr=1e-3))
    assert "share a learning rate of 0.001, with which 1000 updates move a gate by 1 at most" in sentence
    assert "the times span 783" in sentence
    assert check(make(), 784, torch.optim.Adam(long.parameters())) == []  # not of this network
    unfitted = make()
    assert len(check(unfitted, 784, torch.optim.Adam(unfitted.parameters()))) == 1
    assert check(make().fit_times(50), optimizer=torch.optim.Adam(make().parameters())) == []
    frozen = make().fit_times(784)
    frozen.freeze_gate()
    assert check(frozen, optimizer=torch.optim.Adam(frozen.parameters())) == []


def test_groups_have_rates_for_what_is_stored():
    model = SequenceModel(make().fit_times(784), torch.nn.Linear(20, 1))
    weights, gates = parameter_groups(model, lr=2e-3)
    assert (weights["lr"], gates["lr"]) == (2e-3, pytest.approx(2e-3 * 783))
    assert {id(one) for one in gates["params"]} == {id(model.layer.mu_l0), id(model.layer.sigma_l0)}
    everything = {id(one) for group in (weights, gates) for one in group["params"]}
    assert everything == {id(one) for one in model.parameters()}
    assert parameter_groups(model, gate_lr=0.5)[1]["lr"] == 0.5
    seconds = make().fit_times(NOW + 60 * COUNTED)
    assert seconds.unit == 60
    assert parameter_groups(seconds, gate_lr=30.0)[1]["lr"] == 0.5
    assert parameter_groups(seconds, lr=1e-3)[1]["lr"] == pytest.approx(1e-3 * 199)
    given = make(mu=torch.linspace(100, 200, 20), sigma=10.0)
    assert parameter_groups(given, lr=1e-3)[1]["lr"] == pytest.approx(1e-3 * 120)
    assert parameter_groups(given, lr=1e-3, times=1001)[1]["lr"] == pytest.approx(1.0)


def test_groups_without_empty_ones():
    layer = make().fit_times(100)
    layer.freeze_gate()
    assert len(parameter_groups(layer)) == 1
    assert len(parameter_groups(torch.nn.Linear(2, 3))) == 1
    assert len(parameter_groups(LSTM(2, 3))) == 1
    assert len(parameter_groups(GatedLSTM(2, 4, gate=Clockwork()))) == 1
    ratio, times = parameter_groups(PLSTM(2, 3))
    assert [len(group["params"]) for group in (ratio, times)] == [5, 2]  # r is no time
    alike = torch.nn.ModuleList([make().fit_times(100), make().fit_times(100)])
    assert len(parameter_groups(alike)) == 2
    other_units = torch.nn.ModuleList([make().fit_times(100), make().fit_times(COUNTED / 1000)])
    assert len(parameter_groups(other_units, gate_lr=0.1)) == 3
    torch.optim.AdamW(parameter_groups(other_units))


def test_groups_need_times():
    with pytest.raises(ValueError, match=r"has not seen any times yet .*times=784 for 784 steps"):
        parameter_groups(make())
    layer = make()
    assert parameter_groups(layer, times=784)[1]["lr"] == pytest.approx(0.783)
    assert not layer.unfitted
    with pytest.raises(TypeError, match="parameter_groups takes a model or a layer, not list"):
        parameter_groups([layer])  # pyright: ignore[reportArgumentType]
