"""A task in, a trained network out."""

import numpy as np
import pytest
import torch

import glstm
from glstm.data import Adding, Task
from glstm.errors import UserError

X = np.random.default_rng(0).normal(5, 2, (60, 20, 2))
TASK = Task.from_arrays(X, np.where(X[:, 8:12, 0].mean(1) > 5, "high", "low"))


def test_with_and_without_a_folder_is_the_same_network(tmp_path):
    kept = glstm.train(TASK, tmp_path / "run", units=8, epochs=6, seed=3)
    alone = glstm.train(TASK, units=8, epochs=6, seed=3)
    assert kept.folder == tmp_path / "run"
    assert alone.folder is None
    for name in alone.result:
        assert alone.result[name] == pytest.approx(kept.result[name]), name
    for name, value in kept.model.state_dict().items():
        assert (alone.model.state_dict()[name] == value).all()
    assert [row["validation_error"] for row in alone.history] == [row["validation_error"] for row in kept.history]
    assert kept.model.classes == ("high", "low")
    assert glstm.deploy(kept.model, TASK.steps, 0.01).ops > 0


def test_a_task_without_validation(tmp_path):
    task = Adding(12, train_size=40, test_size=20)
    for folder in (None, tmp_path / "run"):
        trained = glstm.train(task, folder, units=4, epochs=2)
        assert trained.result["epoch"] == 2
        assert trained.result["test_error"] > 0


@pytest.mark.parametrize(
    ("given", "says"), [((X, X[:, 0, 0]), "a ndarray"), (("grid.csv",), "the text 'grid.csv'"), ((Task,), "a ABCMeta")]
)
def test_what_is_no_task_is_one_sentence(given, says):
    with pytest.raises(UserError, match=rf"takes a task, not {says}: Task.from_arrays\(x, y\) makes one"):
        glstm.train(*given)


def test_a_display_needs_a_folder():
    from glstm.training.display import Display

    with pytest.raises(UserError, match="give a folder"):
        glstm.train(TASK, display=Display())


@pytest.mark.parametrize("folder", [None, "run"])
def test_patience_that_was_asked_for_needs_validation(folder, tmp_path):
    task = Task.from_arrays(X, X[:, 3, 0], validation=0)
    with pytest.raises(UserError, match="patience waits for a better validation error, and arrays has no validation"):
        glstm.train(task, folder and tmp_path / folder, units=4, epochs=2, patience=50)
    assert not list(tmp_path.iterdir())


HALVES = 0.5 * np.arange(20)


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """A network that was trained at times 0, 0.5, 1, ... and, beside it, the same from its folder."""
    task = Task.from_arrays(X, X[:, 12, 0], times=HALVES)
    trained = glstm.train(task, tmp_path_factory.mktemp("timed") / "run", units=6, epochs=2)
    assert trained.folder is not None
    return task, [glstm.train(task, units=6, epochs=2).model, trained.model]


def test_a_number_of_steps_is_refused_for_a_network_of_other_times(timed):
    task, models = timed
    for model in models:
        with pytest.raises(ValueError, match=r"trained at times from 0 to 9.5: .* task.schedule\(\)"):
            glstm.deploy(model, task.steps)
        assert glstm.deploy(model, task.schedule()).plan.times.tolist() == HALVES.tolist()


def test_sequences_with_their_own_times_have_no_schedule():
    draws = np.random.default_rng(1)
    task = Task.from_arrays(X, X[:, 12, 0], times=np.cumsum(draws.exponential(size=X.shape[:2]), 1))
    model = glstm.train(task, units=4, epochs=1).model
    with pytest.raises(ValueError, match="the network was trained at times from"):
        glstm.deploy(model, task.steps)
    with pytest.raises(UserError, match="each sequence of arrays has its own times"):
        task.schedule()


def test_sequences_whose_starts_differ_are_told_so():
    starts = np.random.default_rng(1).choice([0.0, 0.245, 0.3], len(X))
    times = starts[:, None] + HALVES
    task = Task.from_arrays(X, X[:, 12, 0], times=times)
    with pytest.raises(UserError, match=r"only their starts differ, so train with --from-start \(from_start=True\)"):
        task.schedule()
    task = Task.from_arrays(X, X[:, 12, 0], times=times, from_start=True)
    assert np.allclose(task.schedule(), HALVES)


def test_a_network_by_hand_knows_its_times_too():
    layer = glstm.GLSTM(2, 4)
    model = glstm.SequenceModel(layer, torch.nn.Linear(4, 1))
    model(torch.from_numpy(X[:5]).float().transpose(0, 1), times=HALVES)
    with pytest.raises(ValueError, match=r"trained at times from 0 to 9\.5"):
        glstm.deploy(model, 20)
    assert glstm.deploy(glstm.SequenceModel(glstm.LSTM(2, 4), torch.nn.Linear(4, 1)), 20).plan.steps == 20


def test_the_schedule_of_counted_steps_is_their_number():
    assert TASK.schedule() == TASK.steps
