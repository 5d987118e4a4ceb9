"""What scikit-learn's users hold as sequences, and how the estimators read it."""

import numpy as np
import pytest

from glstm.errors import UserError
from small_estimators import STEPS, classifier, events


def test_both_layouts_give_the_same_bits():
    x, y = events()
    first = classifier(epochs=3).fit(x, y)
    last = classifier(epochs=3, layout="channels_last").fit(x.transpose(0, 2, 1), y)
    assert np.array_equal(first.predict_proba(x), last.predict_proba(x.transpose(0, 2, 1)))
    assert last.n_features_in_ == 2


def test_axes_that_look_exchanged_are_doubted():
    x = np.random.default_rng(0).normal(size=(8, 40, 2))
    with pytest.warns(
        UserWarning, match="40 channels and at most 2 steps: if .* 40 steps, give layout='channels_last'"
    ):
        classifier(epochs=1).fit(x, [0, 1] * 4)
    classifier(epochs=1, layout="channels_last").fit(x, [0, 1] * 4)


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
