"""What is written is read back exactly."""

from typing import Any

import numpy as np
import pytest

from glstm.data import ArrayTask, file_task
from glstm.data.npz_file import read_npz
from glstm.data.npz_writer import npz_bytes, npz_size

DRAWS = np.random.default_rng(0)
X = [DRAWS.normal(size=(steps, 2)) for steps in DRAWS.integers(3, 8, 30)]
HOLES = [np.where(DRAWS.random(one.shape) < 0.2, np.nan, one) for one in X]
TIMES = [1e9 * number + np.cumsum(DRAWS.uniform(0.1, 2, len(one))) for number, one in enumerate(X)]
LABELS = np.array(["b", "a", "c"])[np.arange(30) % 3]
TASKS: dict[str, dict[str, Any]] = {
    "labels": {"x": X, "y": LABELS},
    "classes in another order": {"x": X, "y": LABELS, "classes": ["c", "b", "a", "never"]},
    "an empty name": {"x": X, "y": np.arange(30) % 3, "classes": ["", "a", "b"]},
    "whole numbers with zeros": {"x": X, "y": np.array(["007", "7", "-1"] * 10)},
    "long labels": {"x": X, "y": [[("up", "", "d" * 150)[n % 3] for n in range(len(one))] for one in X]},
    "-1 is a label of steps": {"x": X, "y": [np.arange(len(one)) % 3 - 1 for one in X], "classes": ["1", "0", "-1"]},
    "numbers for classes": {"x": X, "y": np.arange(30) % 12},
    "own times from the start": {"x": X, "y": LABELS, "times": TIMES},
    "dates": {"x": np.ones((30, 4)), "y": LABELS, "times": np.arange("2001-01-01", "2001-01-05", dtype="M8[D]")},
    "missing": {"x": HOLES, "y": LABELS, "missing": "mask", "standardize": False},
    "as many values as steps": {"x": DRAWS.normal(size=(30, 3, 1)), "y": DRAWS.normal(size=(30, 3)), "per_step": False},
    "one step": {"x": DRAWS.normal(size=(30, 1, 1)), "y": DRAWS.normal(size=(30, 1, 1)), "per_step": True},
    "labels of steps": {"x": X, "y": [["up", "", "down"] + [""] * (len(one) - 3) for one in X], "validation": 0},
    "values of steps": {"x": X, "y": [one.copy() for one in HOLES], "per_step": True, "validation": 0},
    "windows": {"x": DRAWS.normal(size=(2, 90, 1)), "y": DRAWS.normal(size=(2, 90)), "window": 7},
}  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_parts_come_back_exactly(name, tmp_path):
    task = ArrayTask(**TASKS[name])
    (tmp_path / "data.npz").write_bytes(npz_bytes(task.sequences))
    found = read_npz(tmp_path / "data.npz")
    assert list(found) == list(task.sequences)
    for part, own in task.sequences.items():
        other = found[part]
        assert (own.classes, own.per_step) == (other.classes, other.per_step)
        for ours, theirs in ((own.x, other.x), (own.times, other.times), (own.y, other.y)):
            assert type(ours) is type(theirs)
            for one, two in zip([] if ours is None else ours, [] if theirs is None else theirs, strict=True):
                np.testing.assert_array_equal(one, two)
    sizes = sum(array.nbytes for array in np.load(tmp_path / "data.npz").values())
    assert npz_size(task.sequences) == sizes
    none = {part: 0.0 for part in ("validation", "test") if part not in task.sequences}
    again = file_task(
        tmp_path / "data.npz", missing=task.missing, standardize=task.standardize, from_start=task.from_start, **none
    )
    assert again.artifacts() == task.artifacts()
    assert (again.classes, again.clock, again.span) == (task.classes, task.clock, task.span)


def test_labels_are_stored_as_small_numbers():
    x, y = np.zeros((30, 50, 1)), np.array(["up" + 100 * "p", "down"])[np.arange(1500).reshape(30, 50) % 2]
    sequences = ArrayTask(x, y).sequences
    assert npz_size(sequences) < 30 * 50 * (8 + 1) + 2000
