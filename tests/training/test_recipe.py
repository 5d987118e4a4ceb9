"""Recipes: the paper's by name, every value checked."""

import json

import pytest

from glstm.errors import UserError
from glstm.training.recipe import PRESETS, Recipe, preset


def test_the_papers_recipes():
    adding = preset("adding")
    assert (adding.steps, adding.units, adding.mu, adding.sigma) == (1000, 110, (300, 700), 40)
    assert (adding.optimizer, adding.lr, adding.gate_lr, adding.epochs) == ("adam", 1e-3, 1.0, 700)
    assert preset("adding", "adding-2000").mu == (500, 1500)
    smnist = preset("smnist")
    assert (smnist.optimizer, smnist.decay, smnist.sigma, smnist.forget_bias) == ("rmsprop", 0.5, 250, 1.0)
    assert preset("smnist", "smnist-budget").budget == 1
    scifar = preset("scifar")
    assert (scifar.units, scifar.sigma, scifar.decay, scifar.head) == (128, 650, 0.9, "deep")
    curriculum = preset("scifar", "scifar-curriculum")
    assert (curriculum.units, curriculum.sigma, curriculum.gate_lr) == (110, 50, 0)
    assert (curriculum.alpha, curriculum.rho, curriculum.open_sigma, curriculum.open_epochs) == (1 / 6, 0.15, 5000, 10)


def test_gates_stretch_with_the_sequence():
    short = preset("adding").at_length(100)
    assert (short.steps, short.mu, short.sigma) == (100, (30, 70), 4)
    assert (short.tau, short.s, short.r) == (100, (25, 65), 0.1)


@pytest.mark.parametrize("recipe", PRESETS.values(), ids=PRESETS.keys())
def test_a_recipe_survives_json(recipe):
    assert Recipe.from_dict(json.loads(json.dumps(recipe.as_dict()))) == recipe


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"task": "mnist"}, "task must be one of adding, smnist"),
        ({"cell": "gru"}, "cell must be one of glstm, plstm, lstm, not 'gru'"),
        ({"units": 0}, "units must be at least 1, not 0"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"lr": float("nan")}, "lr must be finite, not nan"),
        ({"lr": float("inf")}, "lr must be finite"),
        ({"forget_bias": float("nan")}, "forget_bias must be finite"),
        ({"mu": (1.0, float("inf"))}, "mu must be finite"),
        ({"seed": 2**70}, "seed must fit 64 bits"),
        ({"decay": 1.0}, "decay must be at least 0 and below 1"),
        ({"threshold": -0.1}, "threshold must be"),
        ({"clip": -1.0}, "clip must be 0 or more"),
        ({"mu": (5.0, 1.0)}, "mu as a range must be"),
        ({"sigma": float("inf")}, "sigma must be finite"),
        ({"chrono": 1.0}, "chrono is a T_max"),
        ({"cell": "lstm", "curriculum": True}, "needs cell=glstm"),
        ({"cell": "lstm", "budget": 1.0}, "the lstm cell is always open"),
        ({"schedule": "step"}, "schedule must be one of constant, linear, cosine, not 'step'"),
        ({"budget_epochs": -1}, "budget_epochs must be 0 or more"),
        ({"budget_epochs": 3}, r"budget_epochs is how long a budget takes to rise, but budget is 0\.0"),
        ({"alpha": 0.0}, "alpha must be above 0"),
        ({"rho": 2.0}, "rho must be above 0 and at most 1"),
    ],
)
def test_bad_values_are_named(values, message):
    with pytest.raises(UserError, match=message):
        Recipe(**{"task": "adding", **values})


def test_presets_belong_to_their_task():
    with pytest.raises(UserError, match="smnist has no preset 'adding-2000'; it has smnist, smnist-budget"):
        preset("smnist", "adding-2000")
    with pytest.raises(UserError, match="there is no task 'mnist'"):
        preset("mnist")
    with pytest.raises(UserError, match="does not know: colour"):
        Recipe.from_dict({"task": "adding", "colour": "red"})
    with pytest.raises(UserError, match="a value of the wrong kind"):
        Recipe.from_dict({"task": "adding", "units": "x"})
