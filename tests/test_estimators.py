"""scikit-learn's convention: its own checks, and what they do not know of sequences."""

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import glstm
from glstm import SequenceClassifier, SequenceRegressor
from glstm.data import ArrayTask
from glstm.errors import UserError
from glstm.recipes import OWN_DATA, Recipe, model_maker
from glstm.training import Population

SMALL = {"units": 8, "lr": 0.02, "batch": 64, "epochs": 30, "random_state": 0}
SMALL_RECIPE = {"units": 8, "lr": 0.02, "batch": 64, "patience": 0, "reads": "last"}
# scikit-learn asks for 1e-7, and the head's product rounds in float32, by how many sequences there are.
ROUNDED = {"check_methods_subset_invariance": "a float32 has fewer digits"}
STEPS = 12


def events(count: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Noise on two channels (n, 2, T), and a peak at step 3: its channel is the class."""
    draws = np.random.default_rng(seed)
    x = draws.normal(0, 0.3, (count, 2, STEPS))
    channel = draws.integers(0, 2, count)
    x[np.arange(count), channel, 3] += 3
    return x, np.array(["first", "second"])[channel]


def classifier(**changes) -> SequenceClassifier:
    return SequenceClassifier(**(SMALL | changes))


def regressor(**changes) -> SequenceRegressor:
    return SequenceRegressor(**(SMALL | changes))


@pytest.mark.parametrize(("estimator", "least"), [(classifier(), 53), (regressor(epochs=60, batch=16), 51)])
def test_scikit_learns_own_checks(estimator, least):
    results = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=ROUNDED)
    failed = [f"{one['check_name']}: {one['exception']!r:.200}" for one in results if one["status"] == "failed"]
    assert failed == []
    assert sum(one["status"] == "passed" for one in results) >= least - 2  # some need pandas, or a setting of scipy


def test_the_defaults_are_those_for_own_data():
    own = SequenceClassifier().get_params()
    for name, value in OWN_DATA.items():
        assert own.get(name, value) == value
    assert {"units", "lr", "gate_lr", "batch", "epochs", "patience", "optimizer"} <= set(own) & set(OWN_DATA)


def test_finds_the_class_of_new_sequences():
    found = classifier().fit(*events())
    assert found.score(*events(seed=1)) > 0.95
    assert found.classes_.tolist() == ["first", "second"]
    assert found.model_.classes == ("first", "second")
    assert found.n_features_in_ == 2
    probable = found.predict_proba(events(seed=1)[0])
    assert np.allclose(probable.sum(1), 1)


def test_the_network_itself_takes_x_as_it_is():
    x, y = events()
    found = classifier().fit(100 + 7 * x, y)
    with torch.no_grad():
        direct = found.model_(torch.from_numpy(100 + 7 * x).float().permute(2, 0, 1)).softmax(1)
    assert np.allclose(direct.numpy(), found.predict_proba(100 + 7 * x), atol=1e-6)
    assert isinstance(found.model_, glstm.SequenceModel)


@pytest.mark.parametrize("cell", ["glstm", "plstm", "lstm", "gru"])
@pytest.mark.parametrize("reads", ["last", "mean", "max"])
def test_every_cell_and_reading_learns(cell, reads):
    x, y = events()
    found = classifier(cell=cell, reads=reads, batch=16, epochs=60).fit(x, y)
    assert found.history_[-1]["train_loss"] < 0.7 * found.history_[0]["train_loss"]


def test_both_layouts_give_the_same_bits():
    x, y = events()
    first = classifier(epochs=3).fit(x, y)
    last = classifier(epochs=3, layout="channels_last").fit(x.transpose(0, 2, 1), y)
    assert np.array_equal(first.predict_proba(x), last.predict_proba(x.transpose(0, 2, 1)))
    assert last.n_features_in_ == 2


def test_a_table_holds_series_of_one_channel():
    x, y = events()
    table, deep = classifier(epochs=3).fit(x[:, 0], y), classifier(epochs=3).fit(x[:, :1], y)
    assert np.array_equal(table.predict_proba(x[:, 0]), deep.predict_proba(x[:, :1]))
    assert np.array_equal(table.predict_proba(x[:, 0]), table.predict_proba(x[:, :1]))
    assert np.array_equal(deep.predict_proba(x[:, 0]), deep.predict_proba(x[:, :1]))
    assert (table.n_features_in_, deep.n_features_in_) == (STEPS, 1)


@pytest.mark.parametrize("reads", ["last", "mean", "max"])
def test_sequences_of_different_lengths(reads):
    x, y = events()
    ragged = [piece[:, : 6 + number % 7] for number, piece in enumerate(x)]
    found = classifier(reads=reads).fit(ragged, y)
    assert found.score(ragged, y) > 0.9
    together = found.predict_proba(ragged[:9])
    alone = np.concatenate([found.predict_proba([piece]) for piece in ragged[:9]])
    assert np.allclose(together, alone, atol=1e-6)
    as_objects = np.empty(9, dtype=object)
    as_objects[:] = ragged[:9]
    assert np.array_equal(together, found.predict_proba(as_objects))


def test_a_list_of_series_of_one_channel():
    x, y = events()
    flat = [piece[0, : 6 + number % 7] for number, piece in enumerate(x)]
    deep = [piece[:1, : 6 + number % 7] for number, piece in enumerate(x)]
    found = classifier(epochs=3).fit(flat, y)
    assert np.array_equal(found.predict_proba(flat), classifier(epochs=3).fit(deep, y).predict_proba(deep))


@pytest.mark.parametrize("missing", ["carry", "mask"])
def test_missing_values(missing):
    x, y = events()
    x[np.random.default_rng(3).random(x.shape) < 0.2] = np.nan
    x[:7] = 0.0
    number, channel, step = np.argwhere(np.isnan(x[:8]))[0] + 1
    with pytest.raises(UserError, match=f"^sequence {number} has a NaN.* at step {step}, channel {channel}: choose"):
        classifier().fit(x, y)
    found = classifier(missing=missing, standardize=False).fit(x, y)
    assert found.score(x, y) > 0.8
    assert np.isfinite(classifier(missing=missing, epochs=1).fit(x, y).predict_proba(x)).all()
    with pytest.raises(UserError, match="sequence 8 has a missing value, NaN, and the network was trained without"):
        classifier(epochs=1).fit(np.nan_to_num(x), y).predict(x)


def test_times_of_the_steps_matter_and_may_differ():
    """The same values; only when they were measured tells the classes apart."""
    draws = np.random.default_rng(0)
    x, y = np.ones((80, 1, 6)), draws.integers(0, 2, 80)
    times = np.sort(draws.uniform(0, 50, (80, 6)), 1) + 50 * y[:, None]
    found = classifier(epochs=60, lr=0.05, from_start=False).fit(x, y, times=times)
    assert found.score(x, y, times=times) > 0.95
    assert found.score(x, 1 - y, times=times) < 0.05
    mu = found.model_.layer.gate_in_time("_l0")["mu"]
    assert mu.max() - mu.min() > 40  # spread over the whole time, not over six steps

    ragged, own = [piece[:, :4] for piece in x[:40]] + list(x[40:]), [row[:4] for row in times[:40]] + list(times[40:])
    assert classifier(epochs=2).fit(ragged, y, times=own).predict(ragged, times=own).shape == (80,)
    as_objects = np.empty(80, dtype=object)
    as_objects[:] = own
    either = [classifier(epochs=2).fit(ragged, y, times=given) for given in (own, as_objects)]
    assert np.array_equal(*(one.predict_proba(ragged, times=own) for one in either))
    with pytest.raises(UserError, match="X has no times, and the network was trained with them"):
        found.predict(x)
    with pytest.raises(UserError, match="X has times, and the network was trained without them"):
        classifier(epochs=1).fit(x, y).predict(x, times=times)


def test_times_that_are_dates_count_from_each_sequences_start():
    x, y = events()
    days = np.arange(STEPS) + 100.0 * np.arange(len(x))[:, None]
    found = classifier(epochs=3).fit(x, y, times=days)
    as_dates = (1e9 * 86400 * days).astype("datetime64[ns]")
    dated = classifier(epochs=3).fit(x, y, times=as_dates)
    assert np.allclose(found.predict_proba(x, times=days), dated.predict_proba(x, times=as_dates), atol=1e-5)
    assert np.array_equal(found.predict_proba(x, times=days), found.predict_proba(x, times=days + 12345))
    either = [classifier(epochs=3, from_start=own).fit(x, y, times=days) for own in (True, False)]
    assert not np.allclose(*(one.predict_proba(x, times=days) for one in either))


@pytest.mark.parametrize(
    ("times", "says"),
    [
        (np.arange(5), "has 6 steps, and 5 times"),
        (np.ones((3, 6)).cumsum(1), "for all, or one row a sequence, but have the shape .3, 6."),
        (np.zeros(6), "the time of step 2 is not after the one before it"),
        ([np.arange(6)] * 8 + [np.arange(5)], "sequence 9 has 6 steps, and 5 times"),
    ],
)
def test_wrong_times(times, says):
    with pytest.raises(ValueError, match=says):
        classifier(epochs=1).fit(np.ones((9, 1, 6)), [0, 1, 0] * 3, times=times)


def test_same_seed_same_bits_and_torchs_generator_stays():
    x, y = events()
    before = torch.get_rng_state()
    one, other = classifier(epochs=3).fit(x, y), classifier(epochs=3).fit(x, y)
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(one.predict_proba(x), other.predict_proba(x))
    assert not np.array_equal(one.predict_proba(x), classifier(epochs=3, random_state=1).fit(x, y).predict_proba(x))


def test_a_pickle_holds_a_description_and_values():
    x, y = events()
    found = classifier(epochs=2, missing="mask").fit(x, y)
    found.set_params(units=99)  # of the next fit, not of the network that is there
    again = pickle.loads(pickle.dumps(found))
    assert np.array_equal(found.predict_proba(x), again.predict_proba(x))
    assert again.get_params() == found.get_params()
    assert b"SequenceModel" in pickle.dumps(found)  # named in the description
    assert b"_rebuild_parameter" not in pickle.dumps(found)
    assert not hasattr(clone(found), "model_")


def test_grid_search_over_a_pipeline():
    x, y = events()
    pipeline = make_pipeline(StandardScaler(), classifier(epochs=5))
    grid = {"sequenceclassifier__lr": np.logspace(-4, -2, 2), "sequenceclassifier__units": np.array([4, 8])}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(x[:, 0], y)
    assert search.best_params_["sequenceclassifier__lr"] == pytest.approx(0.01)
    assert search.predict(x[:, 0]).shape == (120,)


def test_cross_validation_cuts_lists_and_times():
    x, y = events()
    ragged = [piece[:, : 6 + number % 7] for number, piece in enumerate(x)]
    assert cross_val_score(classifier(), ragged, y, cv=2, error_score="raise").mean() > 0.8
    times = np.tile(np.arange(STEPS) / 10, (len(x), 1))
    with config_context(enable_metadata_routing=True):
        asking: Any = classifier()  # scikit-learn makes these methods from the signatures of fit and score
        asking.set_fit_request(times=True).set_score_request(times=True)
        scores = cross_val_score(asking, x, y, cv=2, error_score="raise", params={"times": times})
    assert scores.mean() > 0.8


def test_values_are_given_in_their_own_unit():
    x, _ = events()
    y = x[:, 0, 3]
    found = regressor(epochs=80).fit(x, y)
    assert found.score(x, y) > 0.8
    moved = regressor(epochs=80).fit(x, 1e4 + 100 * y)
    assert np.allclose(moved.predict(x), 1e4 + 100 * found.predict(x), rtol=1e-3)


def test_several_values_for_each_sequence():
    x, _ = events()
    y = np.stack((x[:, 0, 3], -1000 * x[:, 1, 3]), 1)
    found = regressor(epochs=80).fit(x, y)
    assert found.predict(x).shape == y.shape
    assert found.score(x, y) > 0.8


def test_patience_ends_training_and_the_best_network_is_kept():
    x, y = events(40)
    y = np.random.default_rng(0).permutation(y)  # nothing to learn: the loss on what is held out rises
    found = classifier(epochs=200, patience=4).fit(x, y)
    scores = [(row["validation_error"], row["validation_loss"]) for row in found.history_]
    best = scores.index(min(scores)) + 1
    assert len(scores) == best + 4 < 200
    assert len(classifier(epochs=len(scores) + 3, patience=None).fit(x, y).history_) == len(scores) + 3
    until_then = classifier(epochs=best, patience=None).fit(x, y)
    assert np.array_equal(found.predict_proba(x), until_then.predict_proba(x))


def test_the_error_of_values_is_the_mean_absolute_one_and_they_end_by_patience():
    x, _ = events(40)
    y = np.random.default_rng(0).normal(5, 3, 40)
    found = regressor(epochs=200, patience=4, validation=0.5).fit(x, y)
    errors = [row["validation_error"] for row in found.history_]
    assert len(errors) == int(np.argmin(errors)) + 1 + 4 < 200
    task = ArrayTask(x.transpose(0, 2, 1), y, validation=0.5, test=0, seed=seed_of(0))
    held = task.sequences["validation"]
    missed = np.abs(found.predict([one.T for one in held.x]) - np.asarray(held.y)[:, 0]).mean()
    assert min(errors) == pytest.approx(missed, rel=1e-5)


def seed_of(random_state: int) -> int:
    """What fit draws first from a random state."""
    return int(np.random.RandomState(random_state).randint(np.iinfo(np.int32).max))


def test_the_same_network_as_the_population_trains():
    """No second road: the same task, recipe and seed give the same bits."""
    x, y = events()
    found = classifier(epochs=4, patience=None, validation=0).fit(x, y)
    task = ArrayTask(x.transpose(0, 2, 1), y, validation=0, test=0, name="X")
    recipe = Recipe("arrays", **OWN_DATA).changed(**{**SMALL_RECIPE, "epochs": 4, "seed": seed_of(0)})
    population = Population(task, model_maker(recipe, task), recipe)
    losses = [population.train(epoch)[0] for epoch in range(1, 5)]
    assert [row["train_loss"] for row in found.history_] == losses
    for name, value in population.models[0].state_dict().items():
        assert torch.equal(value, found.model_.state_dict()[name])


def test_a_loss_that_is_no_number_ends_training():
    x, _ = events(40)
    y = x[:, 0, 3]
    with pytest.raises(UserError, match="the loss became nan or infinite in epoch 2: lower lr or gate_lr"):
        regressor(lr=1e18, validation=0).fit(x, y)
    with pytest.warns(ConvergenceWarning, match="in epoch 2.*; the best epoch before that is kept"):
        found = regressor(lr=1e18).fit(x, y)
    assert len(found.history_) == 2
    assert np.isfinite(found.predict(x)).all()


def test_few_sequences_of_a_class():
    """A class with one sequence trains; where nothing can be held out, a sentence says so."""
    x, y = events(20)
    y[3] = "rare"
    assert classifier(epochs=1).fit(x, y).classes_.tolist() == ["first", "rare", "second"]
    with pytest.raises(UserError, match=r"of 3 sequences none is left for the validation part .* or 0 for none"):
        classifier().fit(x[:3], ["a", "b", "c"])
    assert classifier(epochs=1, validation=0).fit(x[:3], ["a", "b", "c"]).predict(x).shape == (20,)
    with pytest.raises(UserError, match="only one class, 'a'"):
        classifier().fit(x[:3], ["a", "a", "a"])


@pytest.mark.parametrize("names", [[str(n) for n in range(11)], ["", "a"], [-1, 0, 1], [1.0, 2.0], [True, False]])
def test_labels_keep_their_order_whatever_they_are(names):
    """'10' sorts before '2' as text, -1 is no missing label, and floats are classes if a classifier gets them."""
    draws = np.random.default_rng(0)
    codes = np.tile(np.arange(len(names)), 110 // len(names) + 1)
    x = np.zeros((len(codes), 1, 5)) + codes[:, None, None] + draws.normal(0, 0.05, (len(codes), 1, 5))
    y = np.array(names)[codes]
    found = classifier(epochs=120, units=16).fit(x, y)
    assert found.classes_.tolist() == sorted(names)
    assert found.model_.classes == tuple(map(str, found.classes_))
    assert found.score(x, y) > 0.9


def test_probabilities_add_up_for_scikit_learns_own_scores():
    x, y = events()
    found = classifier(epochs=3).fit(x, y)
    assert 0 < log_loss(y, found.predict_proba(x)) < 1  # which warns if they do not


def test_without_validation_all_sequences_train():
    row = classifier(epochs=2, validation=0.0).fit(*events()).history_[-1]
    assert set(row) == {"epoch", "train_loss"}
    assert regressor(epochs=1, validation=0).fit(np.ones((1, 1, 3)), [4.0]).predict(np.ones((1, 1, 3))).shape == (1,)


def test_a_budget_closes_gates():
    x, y = events()
    free, charged = (classifier(budget=budget, sigma=4.0).fit(x, y).model_ for budget in (0.0, 5.0))
    assert glstm.budget(charged, STEPS) < 0.9 * glstm.budget(free, STEPS)


def test_verbose_tells_every_epoch(capsys):
    classifier(epochs=2, verbose=True).fit(*events())
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == ["epoch 1", "epoch 2"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"cell": "lstn"}, "there is no cell 'lstn'"),
        ({"cell": "lstm", "mu": 3.0}, "the cell lstm cannot be made with these options"),
        ({"cell": "gru", "budget": 1.0}, "has no gates that could close"),
        ({"reads": "every"}, "one answer for each sequence"),
        ({"layout": "time"}, "layout must be one of"),
        ({"missing": "drop"}, "missing must be one of"),
        ({"optimizer": "adamax"}, "optimizer must be one of"),
        ({"validation": 1.0}, "validation must be a share"),
        ({"patience": 0}, "patience must be a number of epochs"),
        ({"units": 0}, "units must be a whole number of at least 1"),
        (
            {"mu": 500.0, "sigma": 1.0},
            "no gate opens within the 12 steps of X: mu of 8 of 8 units, from 500 to 500, is outside",
        ),
        ({"gate_lr": -1.0}, "gate_lr must be 0 or more"),
        ({"lr": -1.0}, "^lr must be above 0"),
        ({"device": "gpu"}, "device 'gpu' cannot be used here"),
    ],
)
def test_wrong_options(changes, says):
    with pytest.raises(UserError, match=says):
        classifier(**changes).fit(*events(20))


@pytest.mark.parametrize(
    ("x", "says"),
    [
        ([np.ones((2, 5)), np.ones((3, 6))], "same number of channels"),
        ([np.ones((2, 5)), np.ones((2, 0))], "sequence 2 has no steps"),
        (np.full((2, 1, 4), 1e300), "too large for float32"),
        (np.ones((2, 2, 2, 2)), r"\(n, channels, time\), of which none is 0, not one of shape \(2, 2, 2, 2\)"),
    ],
)
def test_wrong_sequences(x, says):
    with pytest.raises(ValueError, match=says):
        classifier().fit(x, [0, 1])


def test_another_number_of_channels_is_refused():
    x, y = events(20)
    found = classifier(epochs=1).fit(x, y)
    with pytest.raises(UserError, match="X has 3 channels, but SequenceClassifier was fitted with 2"):
        found.predict(np.ones((2, 3, STEPS)))


def test_nothing_else_is_needed_to_fit():
    """The extra brings scikit-learn alone."""
    code = """
import sys
sys.modules |= dict.fromkeys(("lightning", "rich", "matplotlib", "polars", "typer"))
import glstm, numpy as np
glstm.SequenceClassifier(units=2, epochs=1, verbose=True).fit(np.eye(10), [0, 1] * 5).predict(np.eye(10))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout[:7]) == (0, "epoch 1"), done.stderr


def test_without_scikit_learn_the_error_says_what_to_install():
    code = "import sys; sys.modules['sklearn'] = None; import glstm; glstm.SequenceClassifier"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'glstm[sklearn]'" in done.stderr
