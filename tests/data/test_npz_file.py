import io
import zipfile

import numpy as np
import pytest

from glstm.data.npz_file import read_npz
from glstm.errors import DataError

X = np.arange(24).reshape(2, 4, 3)


@pytest.fixture
def read(tmp_path):
    def read(per_step: bool | None = None, values: bool = False, **arrays):
        path = tmp_path / "own.npz"
        np.savez(path, **arrays)
        return read_npz(path, per_step=per_step, classes=False if values else None)

    return read


def test_whole_data(read):
    found = read(x=X, y=np.array(["b", "a"]), times=np.array([1, 2, 4, 8]), channels=np.array(["p", "q", "r"]))
    assert list(found) == ["all"]
    found = found["all"]
    np.testing.assert_array_equal(np.stack(found.x), X)
    assert found.x[0].dtype == np.float64
    assert found.y.tolist() == ["b", "a"]
    assert found.classes == ("a", "b")
    assert found.channels == ("p", "q", "r")
    assert [times.tolist() for times in found.times] == [[1, 2, 4, 8]] * 2


def test_lengths_cut_everything_that_has_steps(read):
    times = np.array([[1.0, 2, 3, 4], [5, 6, np.nan, 0]])
    found = read(x=X, y=X[..., 0].astype(float), times=times, lengths=np.array([4, 2]))["all"]
    assert [x.shape for x in found.x] == [(4, 3), (2, 3)]
    assert [y.tolist() for y in found.y] == [[[0], [3], [6], [9]], [[12], [15]]]
    assert found.times[1].tolist() == [5, 6]


def test_one_channel_may_be_left_out(read):
    assert read(x=X[..., 0])["all"].x[1].tolist() == [[12], [15], [18], [21]]


TARGETS = {
    "whole numbers": (np.array([10, 9]), ("9", "10"), ["10", "9"]),
    "unsigned": (np.array([1, 0], dtype=np.uint8), ("0", "1"), ["1", "0"]),
    "truth values": (np.array([True, False]), ("false", "true"), ["true", "false"]),
    "bytes": (np.array([b"x", b"y"]), ("x", "y"), ["x", "y"]),
    "a column of them": (np.array([[1], [2]]), ("1", "2"), ["1", "2"]),
    "floats": (np.array([1.0, 2.0]), None, [[1], [2]]),
    "rows of floats": (np.array([[1.0, 2], [3, 4]]), None, [[1, 2], [3, 4]]),
}


@pytest.mark.parametrize(("y", "classes", "expected"), TARGETS.values(), ids=TARGETS)
def test_targets_of_sequences(read, y, classes, expected):
    found = read(x=X, y=y)["all"]
    assert not found.per_step
    assert found.classes == classes
    assert found.y.tolist() == expected


PER_STEP = {
    "labels": (np.array([["a", "b", "", "a"]] * 2), ["a", "b", "", "a"]),
    "whole numbers": (np.array([[1, 2, 3, 4]] * 2), ["1", "2", "3", "4"]),
    "labels in a column": (np.arange(8).reshape(2, 4, 1), ["0", "1", "2", "3"]),
    "values": (np.arange(8.0).reshape(2, 4), [[0], [1], [2], [3]]),
    "two values": (np.arange(16.0).reshape(2, 4, 2), [[0, 1], [2, 3], [4, 5], [6, 7]]),
}


@pytest.mark.parametrize(("y", "first"), PER_STEP.values(), ids=PER_STEP)
def test_targets_of_steps(read, y, first):
    found = read(x=X, y=y)["all"]
    assert found.per_step
    assert found.y[0].tolist() == first


def test_per_step_decides_where_shapes_do_not(read):
    y = np.arange(8.0).reshape(2, 4)
    assert read(per_step=False, x=X, y=y)["all"].y.shape == (2, 4)
    one_step = {"x": X[:, :1], "y": np.array([[1.0], [2.0]])}
    assert not read(**one_step)["all"].per_step
    assert read(per_step=True, **one_step)["all"].per_step
    with pytest.raises(DataError, match=r"y must be \(2, 4\) or \(2, 4, K\) .* but its shape is \(2,\)"):
        read(per_step=True, x=X, y=np.array([1.0, 2.0]))


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (np.array([3, -1]), [[3], [-1]]),
        (np.array([True, False]), [[1], [0]]),
        (np.array([[1, 2], [3, 4]], dtype=np.uint8), [[1, 2], [3, 4]]),
        (np.array([[0, -1, 2, 3]] * 2), [[[0], [-1], [2], [3]]] * 2),
    ],
)
def test_whole_numbers_may_be_values(read, y, expected):
    found = read(values=True, x=X, y=y)["all"]
    assert found.classes is None
    assert [row.tolist() for row in found.y] == expected


def test_text_and_named_classes_are_no_values(read):
    with pytest.raises(DataError, match="y must hold numbers to be values, not <U1"):
        read(values=True, x=X, y=np.array(["a", "b"]))
    with pytest.raises(DataError, match="classes are named, so the targets are not values"):
        read(values=True, x=X, y=np.array([0, 1]), classes=np.array(["a", "b"]))


def test_minus_one_is_a_missing_target_of_a_step_and_a_class_of_a_sequence(read):
    steps = np.array([[0, -1, 1, 1], [1, 0, -1, -7]])
    found = read(x=X, y=steps, lengths=np.array([4, 3]))["all"]
    assert ([row.tolist() for row in found.y], found.classes) == ([["0", "", "1", "1"], ["1", "0", ""]], ("0", "1"))
    found = read(x=X, y=steps, lengths=np.array([4, 3]), classes=np.array(["no", "yes"]))["all"]
    assert [row.tolist() for row in found.y] == [["no", "", "yes", "yes"], ["yes", "no", ""]]
    assert read(x=X, y=steps)["all"].classes == ("-7", "-1", "0", "1")  # below -1, too: these are names
    assert read(x=X, y=steps[:, :3].clip(max=0).min(1))["all"].classes == ("-1",)


def test_padding_of_y_is_no_class(read):
    assert read(x=X, y=np.array([[1, 2, 9, 9]] * 2), lengths=np.array([2, 1]))["all"].classes == ("1", "2")


def test_parts_share_classes_names_and_times(read):
    found = read(
        x_train=X, y_train=np.array([3, 1]), x_test=X[:1], y_test=np.array([2]), x_validation=X[:1],
        times=np.arange(4.0), times_test=np.array([[5.0, 6, 7, 8]]), lengths_test=np.array([3]),
        channels=np.array(["a", "b", "c"]),
    )  # fmt: skip
    assert list(found) == ["train", "validation", "test"]
    assert {part.classes for part in found.values()} == {("1", "2", "3")}
    assert {part.channels for part in found.values()} == {("a", "b", "c")}
    assert found["validation"].y is None
    assert found["train"].times[1].tolist() == [0, 1, 2, 3]
    assert found["test"].times[0].tolist() == [5, 6, 7]


@pytest.mark.parametrize("kind", [np.int8, np.uint64])
def test_whole_numbers_count_into_the_classes_given(read, kind):
    found = read(x=X, y=np.array([1, 0], dtype=kind), classes=np.array(["no", "yes", "maybe"]))["all"]
    assert found.y.tolist() == ["yes", "no"]
    assert found.classes == ("no", "yes", "maybe")


@pytest.mark.parametrize("classes", [np.array([3, 2, 1]), np.array(["3", "2", "1"])])
def test_classes_that_are_whole_numbers_are_named_by_y(read, classes):
    found = read(x=X, y=np.array([1, 2]), classes=classes)["all"]
    assert found.y.tolist() == ["1", "2"]
    assert found.classes == ("3", "2", "1")


def test_dates_are_seconds_since_1970(read):
    found = read(x=X, times=np.array(["1970-01-01", "1970-01-02T00:00:00.5", "1971", "1972"], dtype="datetime64[ms]"))
    assert found["all"].times[0][:2].tolist() == [0, 86400.5]
    assert found["all"].time_unit == "seconds"


UNEQUAL = np.empty(2, dtype=object)
UNEQUAL[:] = [[1, 2], [3]]
Y = np.array([0, 1])
WRONG = {
    "no x": ({"y": Y}, "it has no array x, nor x_train, x_validation or x_test"),
    "both": ({"x": X, "x_train": X}, "it has both x and x_train"),
    "unknown": ({"x": X, "labels": Y}, "the array 'labels' is not known; known are x, y, times, lengths, classes"),
    "alone": ({"x_train": X, "y_test": Y}, "it has y_test, but no x_test"),
    "whole y of parts": ({"x_train": X, "y": Y}, "it has y, but no x"),
    "objects": ({"x": UNEQUAL}, "the array x holds Python objects, which are never loaded; store sequences of unequal"),
    "text": ({"x": np.array([["a", "b"]])}, "x must be numbers of shape (N, T, D) or (N, T), not <U1 of shape (1, 2)"),
    "complex": ({"x": X * 1j}, "x must be numbers"),
    "flat": ({"x": np.zeros(3)}, "x must be numbers of shape (N, T, D) or (N, T), not float64 of shape (3,)"),
    "no steps": ({"x": np.zeros((2, 0, 3))}, "x holds nothing: its shape is (2, 0, 3)"),
    "infinite": ({"x": np.array([[1.0, np.inf]])}, "sequence 1: its input at step 2 is infinite"),
    "y of others": ({"x": X, "y": np.zeros(3)}, "y must have 2 rows, one for each sequence, but its shape is (3,)"),
    "deep y": ({"x": X, "y": np.zeros((2, 3, 1))}, "y has the shape (2, 3, 1); (N,), (N, K), (N, T) or (N, T, K)"),
    "dates as y": ({"x": X, "y": np.zeros(2, dtype="M8[s]")}, "y must be numbers or text"),
    "many whole": (
        {"x": X, "y": np.zeros((2, 3), dtype=int)},
        "y has 3 whole numbers where one class belongs",
    ),
    "empty label": ({"x": X, "y": np.array(["a", ""])}, "the label of sequence 2 is empty"),
    "classes of values": ({"x": X, "y": np.zeros(2), "classes": np.array(["a"])}, "y holds floats, which are values"),
    "beyond": ({"x": X, "y": Y + 1, "classes": np.array(["a", "b"])}, "y must count from 0 to 1, as classes has 2"),
    "unknown label": ({"x": X, "y": np.array(["a", "c"]), "classes": np.array(["a", "b"])}, "the label 'c' is not one"),
    "same classes": ({"x": X, "y": Y, "classes": np.array(["a", "a"])}, "classes must hold different names"),
    "no names": ({"x": X, "channels": np.zeros(3)}, "channels must be a list of names, not float64 of shape (3,)"),
    "channels": ({"x": X, "channels": np.array(["a"])}, "channels has 1 name for 3 inputs"),
    "lengths": ({"x": X, "lengths": np.array([4])}, "lengths must be 2 whole numbers, one for each sequence"),
    "long": ({"x": X, "lengths": np.array([4, 5])}, "the length of sequence 2 is 5; it must be from 1 to 4"),
    "none": ({"x": X, "lengths": np.array([0, 4])}, "the length of sequence 1 is 0; it must be from 1 to 4"),
    "times": ({"x": X, "times": np.zeros(3)}, "times must be numbers or dates of shape (4,) or (2, 4), not float64"),
    "same times": ({"x": X, "times": np.zeros(4)}, "sequence 1: the time of step 2 is not after the one before it"),
    "no date": ({"x": X, "times": np.array(["NaT"] * 4, dtype="M8[s]")}, "the time of step 1 is not a finite number"),
    "mixed y": (
        {"x_train": X, "x_test": X, "y_train": Y, "y_test": Y * 1.0},
        "y holds classes in one part and values in another",
    ),
    "mixed names": (
        {"x_train": X, "x_test": X, "y_train": Y, "y_test": np.array(["0", "1"])},
        "y names classes in different ways in different parts",
    ),
    "inputs of parts": ({"x_train": X, "x_test": X[..., :2]}, "its parts have different inputs"),
    "times of parts": (
        {"x_train": X, "x_test": X, "times_test": np.arange(4)},
        "its parts have different kinds of times",
    ),
    "y of parts": (
        {"x_train": X, "x_test": X, "y_train": np.zeros(2), "y_test": np.zeros((2, 4))},
        "its parts have different shapes of y",
    ),
    "part named": ({"x_train": X, "x_test": X, "y_test": np.zeros(3)}, "part test: y must have 2 rows"),
    "times of all": ({"x_train": X, "times": np.zeros((2, 4))}, "times without a part's name must be (T,)"),
}


@pytest.mark.parametrize(("arrays", "sentence"), WRONG.values(), ids=WRONG)
def test_a_fault_is_one_sentence(read, arrays, sentence):
    with pytest.raises(DataError) as refusal:
        read(**arrays)
    assert sentence in str(refusal.value)
    assert str(refusal.value).startswith("own.npz: ")
    assert len(str(refusal.value).splitlines()) == 1


def npy(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def refused(path, entries, match):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    with pytest.raises(DataError, match=match):
        read_npz(path)


def test_a_small_file_may_not_ask_for_much_memory(tmp_path, monkeypatch):
    content = npy(np.zeros((10, 10_000)))
    monkeypatch.setattr("glstm.data.parsing.ALWAYS_ALLOWED", len(content))
    with zipfile.ZipFile(tmp_path / "most.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", content)
    assert len(read_npz(tmp_path / "most.npz")["all"]) == 10
    match = r"would unpack to 800,256 bytes from [0-9,]+, more than 100 times as many"
    refused(tmp_path / "bomb.npz", [("x.npy", content), ("y.npy", npy(np.zeros(10)[:, None])[:128])], match)


def test_a_header_may_not_claim_more_than_there_is(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**13, 2)})
    refused(tmp_path / "huge.npz", [("x.npy", header.getvalue() + bytes(99))], "the array x is broken")
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<U0", "fortran_order": False, "shape": (10**13,)})
    refused(
        tmp_path / "empty.npz", [("x.npy", header.getvalue())], "the array x is broken: it claims 10,000,000,000,000"
    )


def test_a_broken_archive_is_refused(tmp_path):
    whole = npy(X)
    refused(tmp_path / "a.npz", [("x.npy", whole[:-8])], "the array x is broken")
    refused(tmp_path / "b.npz", [("x.npy", b"nothing")], "the array x is broken")
    path = tmp_path / "c.npz"
    np.savez(path, x=X)
    content = path.read_bytes()
    for broken in (content[:-30], content[: len(content) // 2], b"garbage", content.replace(whole, whole[::-1])):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=r"c\.npz: it is no \.npz file, or it is broken: "):
            read_npz(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_arrays_of_one_name_are_refused(tmp_path):
    refused(tmp_path / "twice.npz", [("x.npy", npy(X)), ("x.npy", npy(X))], "two arrays have the same name")
