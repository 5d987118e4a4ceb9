"""The rules for labels are the same for arrays, .npz and tables, and for all parts of the data."""

import numpy as np
import pytest

from glstm.data import ArrayTask, Task
from glstm.errors import UserError

DRAWS = np.random.default_rng(0)
X = DRAWS.normal(size=(40, 6, 2))


def known(task, part):
    """How many targets of each class the part has."""
    return {name: sum(int((row == name).sum()) for row in task.sequences[part].y) for name in task.classes}


def mostly_minus_one():
    """Classes from -2 to 2; the last ten sequences have no -2 and are for test."""
    y = np.arange(240).reshape(40, 6) % 5 - 2
    y[30:] = np.where(DRAWS.random((10, 6)) < 0.8, -1, 1)
    return y


@pytest.mark.parametrize("how", ["arrays", "npz of parts", "two npz"])
def test_what_minus_one_means_is_decided_once_for_all_parts(tmp_path, how):
    y = mostly_minus_one()
    if how == "arrays":
        task = ArrayTask(X[:30], y[:30], test=(X[30:], y[30:]))
    elif how == "npz of parts":
        np.savez(tmp_path / "a.npz", x_train=X[:30], y_train=y[:30], x_test=X[30:], y_test=y[30:])
        task = Task.from_file(tmp_path / "a.npz")
    else:
        np.savez(tmp_path / "a.npz", x=X[:30], y=y[:30])
        np.savez(tmp_path / "b.npz", x=X[30:], y=y[30:])
        task = Task.from_file(tmp_path / "a.npz", test=tmp_path / "b.npz")
    assert task.classes == ("-2", "-1", "0", "1", "2")
    assert known(task, "test") == {
        "-2": 0,
        "-1": int((y[30:] == -1).sum()),
        "0": 0,
        "1": int((y[30:] == 1).sum()),
        "2": 0,
    }


def test_minus_one_is_missing_in_all_parts_if_it_is_in_training(tmp_path):
    y = np.arange(240).reshape(40, 6) % 4 - 1
    test = np.where(y[30:] == 0, -2, y[30:])
    with pytest.raises(UserError, match="class '-2', which no training sequence has"):
        ArrayTask(X[:30], y[:30], test=(X[30:], test))
