import dataclasses
import pydoc
import re

import numpy as np
import pytest

from glstm.data import Task
from glstm.data.sequences import Sequences
from glstm.errors import DataError, UserError

X = [np.zeros((3, 2)), np.ones((2, 2))]
WHOLE = Sequences(
    X,
    np.array(["a", "b"]),
    [np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0])],
    classes=("a", "b"),
    channels=("one", "two"),
    names=("first", "second"),
)
VALUES = dataclasses.replace(WHOLE, y=np.array([[1.0], [np.nan]]), classes=None, targets=("dose",))


@pytest.mark.parametrize(
    "sequences",
    [
        WHOLE,
        VALUES,
        Sequences(X),
        Sequences([np.array([[np.nan]])]),
        dataclasses.replace(WHOLE, y=[np.array(["a", "", "b"]), np.array(["b", "b"])]),
        dataclasses.replace(VALUES, y=[np.zeros((3, 1)), np.full((2, 1), np.nan)]),
    ],
)
def test_sequences_that_agree_are_given_back(sequences):
    assert sequences.checked() is sequences


NO_X = "sequence 2 ('second')"
WRONG = {
    "nothing": ({"x": []}, "there are no sequences"),
    "no steps": ({"x": [X[0], np.zeros((0, 2))]}, f"{NO_X} has no steps"),
    "other inputs": ({"x": [X[0], np.zeros((2, 3))]}, f"{NO_X} has 3 inputs where 2 belong"),
    "one dimension": ({"x": [X[0], np.zeros(2)]}, f"{NO_X} is float64 of shape (2,), not float64 (steps, inputs)"),
    "float32": ({"x": [X[0].astype(np.float32), X[1]]}, "is float32 of shape (3, 2)"),
    "infinite": ({"x": [X[0], np.array([[0, 0], [0, np.inf]])]}, f"{NO_X}: its input at step 2 is infinite"),
    "channels": ({"channels": ("one",)}, "channels has 1 name for 2 inputs"),
    "names": ({"names": ("a", "b", "c")}, "names has 3 names for 2 sequences"),
    "times of one": ({"times": [np.arange(3.0)]}, "times are given for 1 sequence where there are 2"),
    "short times": ({"times": [np.arange(3.0), np.arange(3.0)]}, f"{NO_X} has 2 steps and times of shape (3,)"),
    "NaN time": ({"times": [np.arange(3.0), np.array([0, np.nan])]}, f"{NO_X}: the time of step 2 is not a finite"),
    "same time": ({"times": [np.arange(3.0), np.array([1.0, 1.0])]}, f"{NO_X}: the time of step 2 is not after"),
    "labels of one": ({"y": np.array(["a"])}, "targets are given for 1 sequence where there are 2"),
    "unknown label": ({"y": np.array(["a", "z"])}, "the label 'z' is not one of the classes"),
    "empty label": ({"y": np.array(["a", ""])}, "the label '' is not one of the classes"),
    "empty class of steps": (
        {"y": [np.array(["a"] * 3), np.array(["", "a"])], "classes": ("a", "")},
        "an empty text cannot be the name of a class: at a step it is a missing label",
    ),
    "no classes": ({"classes": None}, "classes must name each class of the labels once"),
    "a class twice": ({"classes": ("a", "b", "a")}, "classes must name each class of the labels once"),
    "short labels": ({"y": [np.array(["a"]), np.array(["b", "b"])]}, "has 3 steps and 1 target"),
    "both kinds": ({"y": [np.array(["a", "a", "a"]), np.zeros((2, 1))]}, "all labels or all rows of equally many"),
    "flat values": ({"y": np.zeros(2)}, "all labels or all rows of equally many"),
    "infinite value": (
        {"y": np.array([[1.0], [np.inf]]), "classes": None},
        f"{NO_X}: its target at step 1 is infinite",
    ),
    "target names": ({"y": np.zeros((2, 2)), "targets": ("one",)}, "targets has 1 name for 2 target values"),
}


@pytest.mark.parametrize(("changes", "sentence"), WRONG.values(), ids=WRONG)
def test_sequences_that_do_not_agree_are_refused(changes, sentence):
    with pytest.raises(DataError) as refusal:
        dataclasses.replace(WHOLE, **changes).checked()
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("make", "option", "says"),
    [
        (
            Task.from_arrays,
            "value",
            "Task.from_arrays has no option 'value', did you mean values? it has times, lengths",
        ),
        (Task.from_arrays, "channels", "Task.from_arrays has no option 'channels': it has times, lengths, "),
        (Task.from_file, "targets", "Task.from_file has no option 'targets', did you mean target? it has test, "),
    ],
)
def test_an_option_that_is_not_there_is_one_sentence(make, option, says):
    with pytest.raises(UserError, match=re.escape(says)):
        make("nowhere", **{option: True})


def test_help_shows_the_options():
    arrays, files = (pydoc.plain(pydoc.render_doc(make)) for make in (Task.from_arrays, Task.from_file))
    assert "missing: str = 'refuse'" in arrays
    assert "missing: What a NaN in x means" in arrays
    assert "standardize: bool = True" in files
    assert "time: Of a table: the column of times." in files
