"""The rules for labels are the same for arrays, .npz and tables, and for all parts of the data."""

from decimal import Decimal

import numpy as np
import pytest

from glstm.data import ArrayTask, Task
from glstm.errors import UserError

DRAWS = np.random.default_rng(0)
X = DRAWS.normal(size=(40, 6, 2))


def as_csv(path, x, y):
    """A table with a row for each step; a target of a sequence is in all its rows."""
    rows = ["id,a,b,y,z" if y.ndim == 3 else "id,a,b,y"]
    for number, (one, own) in enumerate(zip(x, y, strict=True)):
        steps = own if y.ndim > 1 and len(own) == len(one) else [own] * len(one)
        for step, target in zip(one, steps, strict=True):
            cells = [cell.decode() if isinstance(cell, bytes) else cell for cell in np.ravel(target).tolist()]
            rows.append(",".join(map(str, [number, *step, *cells])))
    path.write_text("\n".join(rows) + "\n")
    return path


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


STEPS = np.arange(240).reshape(40, 6)


@pytest.mark.parametrize(
    ("y", "names", "classes"),
    [
        (np.arange(40) % 2 == 0, None, ("false", "true")),
        (np.arange(40) % 3, ["a", "b", "c"], ("a", "b", "c")),
        (np.arange(40) % 3, ["2", "1", "0"], ("2", "1", "0")),
        (np.arange(40) % 3 - 1, None, ("-1", "0", "1")),
        (np.array(["10", "9"] * 20), None, ("9", "10")),
        (np.array([b"x", b"y"] * 20), None, ("x", "y")),
        (STEPS % 3 - 1, ["-1", "0", "1"], ("-1", "0", "1")),
        (STEPS % 4 - 1, None, ("0", "1", "2")),
        (STEPS % 4 - 2, None, ("-2", "-1", "0", "1")),
    ],
)
def test_arrays_and_files_name_classes_by_the_same_rules(tmp_path, y, names, classes):
    np.savez(tmp_path / "a.npz", x=X, y=y, **({} if names is None else {"classes": np.array(names)}))
    made = ArrayTask(X, y, classes=names)
    others = [Task.from_file(tmp_path / "a.npz")]
    if names is None and y.dtype.kind != "b":  # True and False are text in a table
        others.append(Task.from_file(as_csv(tmp_path / "a.csv", X, y), id="id", target="y"))
    for other in others:
        assert made.classes == other.classes == classes
        assert made.artifacts() == other.artifacts()  # a fingerprint of inputs and targets


def test_minus_one_beside_zero_and_one_is_doubted(tmp_path):
    y = STEPS % 3 - 1
    np.savez(tmp_path / "a.npz", x=X, y=y)
    as_csv(tmp_path / "a.csv", X, y)
    for make in (
        lambda: ArrayTask(X, y),
        lambda: Task.from_file(tmp_path / "a.npz"),
        lambda: Task.from_file(tmp_path / "a.csv", id="id", target="y"),
    ):
        with pytest.warns(UserWarning, match="-1 at a step was taken as a missing target, and 0 and 1 as the classes"):
            assert make().classes == ("0", "1")


def test_a_table_for_test_takes_minus_one_as_the_training_table(tmp_path):
    y = mostly_minus_one()
    paths = [as_csv(tmp_path / f"{name}.csv", X[own], y[own]) for name, own in (("a", slice(30)), ("b", slice(30, 40)))]
    task = Task.from_file(paths[0], test=paths[1], id="id", target="y")
    assert known(task, "test")["-1"] == int((y[30:] == -1).sum())


@pytest.mark.parametrize(
    "y",
    [
        np.arange(40)[:, None] % 3,
        (np.arange(40) % 2 == 0)[:, None],
        np.array(["up", "down"] * 20)[:, None],
        STEPS[..., None] % 3,
        STEPS[..., None] % 3 == 0,
    ],
)
def test_labels_with_an_axis_for_values_are_labels(tmp_path, y):
    np.savez(tmp_path / "a.npz", x=X, y=y)
    made, read, plain = ArrayTask(X, y), Task.from_file(tmp_path / "a.npz"), ArrayTask(X, y[..., 0])
    assert made.classes == read.classes == plain.classes is not None
    assert made.artifacts() == read.artifacts() == plain.artifacts()


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (
            np.arange(120).reshape(40, 3),
            "y has 3 whole numbers where one class belongs: if they are values to predict, ",
        ),
        (np.arange(480).reshape(40, 6, 2), "y has 2 whole numbers where one class belongs: if they are values to "),
        (np.eye(3, dtype=int)[np.arange(40) % 3], "; if the 1 among them marks the class, give its place alone"),
        (np.eye(3, dtype=bool)[np.arange(40) % 3], "; if the 1 among them marks the class, give its place alone"),
        (np.array([["a", "b"]] * 40), "y has 2 texts where the name of one class belongs"),
    ],
)
def test_several_whole_numbers_are_values_only_if_the_caller_says_so(tmp_path, y, sentence):
    np.savez(tmp_path / "a.npz", x=X, y=y)
    with pytest.raises(UserError, match=sentence):
        ArrayTask(X, y)
    with pytest.raises(UserError, match=sentence):
        Task.from_file(tmp_path / "a.npz")
    if y.dtype.kind != "U":
        made, read = ArrayTask(X, y, values=True), Task.from_file(tmp_path / "a.npz", values=True)
        assert (made.classes, made.outputs) == (read.classes, read.outputs) == (None, y.shape[-1])


def test_several_whole_columns_of_a_table_are_values_only_if_the_caller_says_so(tmp_path):
    y = np.arange(480).reshape(40, 6, 2)
    path = as_csv(tmp_path / "a.csv", X, y)
    columns = {"id": "id", "target": ("y", "z")}
    with pytest.raises(UserError, match=r"the target has 2 whole numbers where one class belongs: .*, add --values"):
        Task.from_file(path, **columns)
    assert Task.from_file(path, values=True, **columns).outputs == 2
    real = as_csv(tmp_path / "real.csv", X, y + 0.5)
    assert Task.from_file(real, test=path, **columns).outputs == 2  # values in training: values for test, too


@pytest.mark.parametrize(
    "some",
    [
        [1, 2, None, 2.5],
        [np.float32(0.5), None, 2, np.float32(1)],
        [Decimal("0.5"), 1, None, Decimal(2)],
        [1, 2, float("nan"), 3.0],
    ],
)
def test_objects_with_a_fraction_among_them_are_values(some):
    y = np.array([[*some, 1, 2]] * 40, dtype=object)
    task = ArrayTask(X, y)
    assert (task.classes, task.outputs, task.per_step) == (None, 1, True)
    task = ArrayTask(X, np.array([some[0], some[3]] * 20, dtype=object))
    assert (task.classes, task.outputs, task.per_step) == (None, 1, False)


@pytest.mark.parametrize(
    ("some", "classes"),
    [
        ([0, 2, None, float("nan")], ("0", "1", "2")),
        (["up", None, "down", ""], ("0", "1", "down", "up")),
        ([True, None, 2.5, False], ("0", "1", "2.5", "false", "true")),
    ],
)
def test_objects_that_are_whole_or_hold_text_are_labels(some, classes):
    assert ArrayTask(X, np.array([[*some, 0, 1]] * 40, dtype=object)).classes == classes


def test_a_sequence_without_any_label_does_not_make_values_of_all():
    y = [["up", None] * 3, ["down", "up"] * 3] * 19 + [[None] * 6, [None] * 6]
    with pytest.raises(UserError, match="sequence 39 has no target: leave it out"):
        ArrayTask(list(X), y)
