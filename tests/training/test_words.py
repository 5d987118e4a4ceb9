"""Mistakes with gates and times that training says a word about, once; right uses are silent (warnings are errors)."""

import warnings

import numpy as np
import pytest
import torch

from glstm import GLSTM, GateWarning, SequenceModel
from glstm.data import ArrayTask
from glstm.errors import UserError
from glstm.training import Population, Settings

STEPS = 40
X = np.random.default_rng(0).normal(size=(30, STEPS, 1))
Y = np.arange(30) % 2
STEP_TIMES = np.arange(1, STEPS + 1)
SECONDS = 1.7e9 + 60.0 * np.arange(STEPS)


def said(times, gate_lr: float | None = None, seeds: int = 1, **gate) -> list[str]:
    """What a population says about a network with these gates, from its first breath to the end of an epoch."""
    task = ArrayTask(X, Y, times=times, from_start=False)

    def model() -> SequenceModel:
        return SequenceModel(GLSTM(1, 6, **gate), torch.nn.Linear(6, 2))

    settings = [Settings(optimizer="adam", gate_lr=gate_lr, batch=10, epochs=1, seed=seed) for seed in range(seeds)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        population = Population(task, model, settings)
        population.train(1)
        population.test()
    assert all(one.category is GateWarning for one in caught)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(
    ("times", "gate", "sentence"),
    [
        (
            None,
            {"mu": (5000, 6000), "sigma": 50.0},
            "is outside the times, which are from 1 to 40: if the sequence has",
        ),
        (SECONDS, {"mu": (1, 40), "sigma": 10.0}, "give mu and sigma in the unit of the times"),
        (None, {"mu": (1.7e9, 1.7e9 + 2400), "sigma": 800.0}, "is outside the times"),
        (None, {"mu": (1, 40), "sigma": 0.01}, "is far below the step of the times"),
        (None, {"mu": (1, 40), "sigma": 1e6}, "every unit is always open"),
        (
            STEP_TIMES / 40,
            {"mu": (0, 1), "sigma": 0.3, "gate_lr": 1.0},
            "learning rate of 1 is more than 10% of the span",
        ),
    ],
    ids=["outside", "seconds for steps", "times forgotten", "too narrow", "always open", "rate"],
)
def test_each_mistake_is_said_once(times, gate, sentence):
    """As a warning; where nothing could be learned at all, as an error."""
    try:
        found = said(times, **gate)
    except UserError as error:
        found = [str(error)]
    assert len(found) == 1, found
    assert sentence in found[0]


@pytest.mark.parametrize("times", [None, STEP_TIMES / 40, STEP_TIMES * 1000.0, SECONDS, SECONDS / 86400])
def test_networks_whose_gates_are_left_open_fit_any_times(times):
    assert said(times) == []


def test_right_values_are_silent():
    assert said(None, mu=(1, 40), sigma=12.0) == []
    assert said(STEP_TIMES * 1000.0, mu=(1000, 40000), sigma=12000.0) == []
    assert said(SECONDS, mu=(SECONDS[0], SECONDS[-1]), sigma=700.0) == []


def test_milliseconds_days_and_steps_train_alike():
    """The same data in other units of time: the same losses, and gates that move the same share of the span."""
    found = []
    for times in (STEP_TIMES, STEP_TIMES * 1000.0, STEP_TIMES / 86400, 1.7e9 + 60.0 * STEP_TIMES):
        task = ArrayTask(X, Y, times=times, from_start=False)
        torch.manual_seed(0)
        origin, unit = task.clock
        layer = GLSTM(1, 6, mu=(task.first_time, task.last_time), sigma=0.32 * task.span, origin=origin, unit=unit)
        model = SequenceModel(layer, torch.nn.Linear(6, 2))
        before = layer.gate_in_time("_l0")["mu"].clone()
        population = Population(task, model, Settings(optimizer="adam", gate_lr=None, lr=0.01, batch=10, epochs=5))
        losses = [population.train(epoch)[0] for epoch in range(1, 6)]
        moved = (layer.gate_in_time("_l0")["mu"] - before) / task.span
        found.append((losses, moved))
    for losses, moved in found[1:]:
        assert losses == pytest.approx(found[0][0], rel=1e-3)
        assert torch.allclose(moved, found[0][1], atol=1e-3)
    assert found[0][1].abs().max() > 0.01


@pytest.mark.parametrize(
    ("settings", "times", "sentence"),
    [
        (
            {"lr": 1e38, "gate_lr": None},
            None,
            "lr, 1e[+]38, times the length of a sequence, 40, is the gates' rate and",
        ),
        ({"gate_lr": 1e38}, 1e-3 * STEP_TIMES, "gate_lr is the gates' rate in the layer's unit of 0.001 and too large"),
        ({"lr": 1e39}, None, "lr must be at most 3.4e[+]38, the largest float32, not 1e[+]39"),
        ({"gate_lr": 1e39}, None, "gate_lr must be at most 3.4e[+]38"),
    ],
    ids=["lr times span", "unit", "lr", "gate_lr"],
)
def test_rates_beyond_float32_are_refused_before_training(settings, times, sentence):
    task = ArrayTask(X, Y, times=times, from_start=False)
    origin, unit = task.clock
    layer = GLSTM(1, 6, mu=(task.first_time, task.last_time), sigma=0.3 * task.span, origin=origin, unit=unit)
    with pytest.raises(UserError, match=sentence):
        Population(task, SequenceModel(layer, torch.nn.Linear(6, 2)), Settings(**settings, batch=10))
