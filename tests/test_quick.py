"""A task in, a trained network out."""

import numpy as np
import pytest

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
