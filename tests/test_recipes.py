"""Recipes: the paper's by name, every value checked."""

import json

import pytest

from glstm.data import Adding
from glstm.errors import UserError
from glstm.gates import Clockwork, Gaussian
from glstm.recipes import PRESETS, Recipe, make_model, make_task, own_recipe, preset
from glstm.training.settings import Settings
from small_runs import SMALL


def test_the_papers_recipes():
    adding = preset("adding")
    assert (adding.data, adding.units, adding.gate) == ({"steps": 1000}, 110, {"mu": (300, 700), "sigma": 40})
    assert (adding.optimizer, adding.lr, adding.gate_lr, adding.epochs) == ("adam", 1e-3, 1.0, 700)
    assert preset("adding", "adding-2000").gate["mu"] == (500, 1500)
    smnist = preset("smnist")
    assert (smnist.optimizer, smnist.decay, smnist.gate["sigma"], smnist.forget_bias) == ("rmsprop", 0.5, 250, 1.0)
    assert preset("smnist", "smnist-budget").budget == 1
    scifar = preset("scifar")
    assert (scifar.units, scifar.gate["sigma"], scifar.decay, scifar.head) == (128, 650, 0.9, "deep")
    curriculum = preset("scifar", "scifar-curriculum")
    assert (curriculum.units, curriculum.gate["sigma"], curriculum.gate_lr) == (110, 50, 0)
    assert (curriculum.alpha, curriculum.rho, curriculum.open_sigma, curriculum.open_epochs) == (1 / 6, 0.15, 5000, 10)


def test_gates_stretch_with_the_sequence():
    short = preset("adding").at_length(100)
    assert (short.data["steps"], short.gate) == (100, {"mu": (30, 70), "sigma": 4})
    comes_back = preset("adding").changed(cell="gated", gate={"kind": "periodic", "tau": 50.0})
    assert comes_back.at_length(100).gate == {"kind": "periodic", "tau": 5.0}
    assert preset("adding", "adding-plstm").at_length(100).gate == {"tau": 100, "s": (25, 65), "r": 0.1}
    clocks = preset("adding").changed(cell="gated", gate={"kind": "clockwork", "period": (10, 20)})
    assert clocks.at_length(500).gate == {"kind": "clockwork", "period": (5, 10)}


@pytest.mark.parametrize("recipe", PRESETS.values(), ids=PRESETS.keys())
def test_a_recipe_survives_json(recipe):
    again = Recipe.from_dict(json.loads(json.dumps(recipe.as_dict())))
    assert again == recipe
    assert hash(again) == hash(recipe)
    parts = json.loads(json.dumps([recipe.names_as_dict(), recipe.settings_as_dict()]))
    assert set(parts[0]).isdisjoint(parts[1])
    assert Recipe.from_dict(parts[0] | parts[1]) == recipe


def test_another_cell_leaves_behind_what_was_the_old_ones():
    budgeted = preset("smnist").changed(options={"threshold": 0.01, "candidate": "sigmoid"}, segment=9)
    plain = budgeted.changed(cell="lstm")
    assert (plain.gate, plain.options, plain.init) == ({}, {"candidate": "sigmoid"}, "orthogonal")
    gru = budgeted.changed(cell="gru")
    assert (gru.gate, gru.options, gru.init, gru.forget_bias, gru.segment) == ({}, {}, "orthogonal", 1.0, None)
    other = budgeted.changed(cell="indrnn", chrono=20.0)
    assert (other.init, other.forget_bias, other.chrono) == (None, None, 20.0)  # what is asked for stays
    assert budgeted.changed(chrono=20.0).changed(cell="gru").chrono == 20.0
    assert budgeted.changed(gate={"sigma": 9.0}).gate == {"mu": (1.0, 784.0), "sigma": 9.0}
    assert budgeted.changed(options={"threshold": None}).options == {"candidate": "sigmoid"}


def test_gates_that_no_recipe_places_lie_over_the_sequence():
    layer = make_model(Recipe("adding", units=50), Adding(40)).layer
    assert 1 <= layer.mu_l0.min() < 10 < 30 < layer.mu_l0.max() <= 40
    assert layer.sigma_l0.unique().tolist() == pytest.approx([12.8])


def test_a_gate_is_found_by_its_name_or_its_place():
    for kind in ("clockwork", "glstm.gates:Clockwork"):
        recipe = SMALL.changed(cell="gated", gate={"kind": kind, "period": 3.0})
        gate = make_model(recipe, Adding(12)).layer.gate
        assert isinstance(gate, Clockwork)
        assert gate.period == 3.0
    assert SMALL.gate_class is Gaussian
    assert SMALL.changed(cell="lstm").gate_class is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"units": 0}, "units must be a whole number of at least 1, not 0"),
        ({"units": "x"}, "units must be a whole number of at least 1, not 'x'"),
        ({"gate": 3}, "gate must be names with values, not 3"),
        ({"cell": 3}, "cell must be a name, not 3"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"lr": "fast"}, "lr must be of type float, not 'fast'"),
        ({"epochs": 2.5}, r"epochs must be of type int, not 2\.5"),
        ({"lr": float("nan")}, "lr must be finite, not nan"),
        ({"lr": float("inf")}, "lr must be finite"),
        ({"forget_bias": float("nan")}, "forget_bias must be a finite number"),
        ({"seed": 2**70}, "seed must fit 64 bits"),
        ({"decay": 1.0}, "decay must be at least 0 and below 1"),
        ({"init": "zeros"}, "init must be one of orthogonal, xavier, not 'zeros'"),
        ({"chrono": 2.0}, "chrono is a T_max above 2 steps"),
        ({"schedule": "step"}, "schedule must be one of constant, linear, cosine, not 'step'"),
        ({"optimizer": "lion"}, "optimizer must be one of adam, rmsprop, sgd, not 'lion'"),
        ({"budget_epochs": -1}, "budget_epochs must be 0 or more"),
        ({"budget_epochs": 3}, r"budget_epochs is how long a budget takes to rise, but budget is 0\.0"),
        ({"alpha": 0.0}, "alpha must be above 0"),
        ({"rho": 2.0}, "rho must be above 0 and at most 1"),
    ],
)
def test_bad_values_are_named(values, message):
    with pytest.raises(UserError, match=message):
        Recipe(**{"task": "adding", **values})


NO_SIZES = {"steps": None, "train_size": None, "test_size": None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "mnist"}, "there is no task 'mnist'; there are adding, smnist, pmnist, scifar, and your own as"),
        ({"task": "nowhere:task"}, "the task 'nowhere:task' cannot be imported: No module named 'nowhere'"),
        ({"task": "math:floor"}, r"the task math:floor cannot be made with these options"),
        ({"task": "fractions:Fraction", "data": NO_SIZES}, "made a Fraction, not a task"),
        (
            {"data": {"shift": 1}},
            "the task adding cannot be made with these options, .*'shift': it takes steps, train_size",
        ),
        ({"data": {"train_size": 0}}, "train_size must be a whole number of at least 1, not 0"),
        ({"cell": "rnn"}, "there is no cell 'rnn'; there are glstm, plstm, lstm, gated, "),
        ({"cell": "glstm:nothing"}, "the cell 'glstm:nothing' cannot be imported"),
        ({"cell": "gated"}, "the cell gated needs a kind of gate: open, gaussian, periodic, phased, clockwork"),
        ({"gate": {"kind": "sieve"}}, "there is no gate 'sieve'"),
        ({"gate": {"kind": "builtins:dict"}}, "is not a gate: that is a class derived from glstm.Gate"),
        ({"gate": {"width": 3.0}}, "the cell glstm cannot be made with these options, .*'width'"),
        ({"gate": {"mu": (9.0, 1.0)}}, r"mu as a range must be \(low, high\) with low <= high"),
        ({"gate": {"mu": (1.0, float("inf"))}}, "mu must be finite"),
        ({"options": {"threshold": -0.1}}, "threshold must be"),
        ({"cell": "mingru", "init": "xavier"}, "starts of an LSTM or a GRU, and mingru has its own"),
        ({"cell": "gru", "segment": 3}, "segment is for gated layers, and gru is none"),
        ({"head": "wide"}, "there is no head 'wide'; there are linear, deep"),
    ],
)
def test_what_cannot_be_made_is_named(changes, message):
    def make() -> None:
        recipe = SMALL.changed(**changes)
        make_model(recipe, make_task(recipe))

    with pytest.raises(UserError, match=message):
        make()


def test_a_task_is_refused_before_anything_is_fetched(tmp_path):
    recipe = Recipe("smnist", data={"steps": 10})
    with pytest.raises(UserError, match="'steps': it takes folder, train_size, test_size, validation, shift, device"):
        make_task(recipe, tmp_path)
    assert not list(tmp_path.iterdir())


def test_presets_belong_to_their_task():
    with pytest.raises(UserError, match="smnist has no preset 'adding-2000'; it has smnist, smnist-budget"):
        preset("smnist", "adding-2000")
    with pytest.raises(UserError, match="there is no task 'mnist'"):
        preset("mnist")
    assert preset("glstm.data:Adding") == own_recipe("glstm.data:Adding")
    with pytest.raises(UserError, match="does not know: colour"):
        Recipe.from_dict({"task": "adding", "colour": "red"})
    with pytest.raises(UserError, match="does not know: task"):
        Settings.from_dict({"task": "adding"})
    with pytest.raises(UserError, match="is not whole"):
        Recipe.from_dict({"units": 3})
