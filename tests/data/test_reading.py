import os

import numpy as np
import pytest

from glstm.data.reading import read
from glstm.errors import DataError, UserError


def test_the_ending_chooses_the_reader(tmp_path):
    (tmp_path / "a.TS").write_text("@classLabel true u\n@data\n1,2:u\n")
    (tmp_path / "a.csv").write_text("i,a\n1,1\n1,2\n")
    np.savez(tmp_path / "a.npz", x_train=np.array([[1, 2]]), x_test=np.array([[1, 2]]))
    expected = [[[1], [2]]]
    for name, options, parts in (
        ("a.TS", {"id": None}, ["all"]),
        ("a.csv", {"id": "i"}, ["all"]),
        ("a.npz", {}, ["train", "test"]),
    ):
        found = read(str(tmp_path / name), **options)
        assert list(found) == parts
        for part in found.values():
            np.testing.assert_array_equal(part.x, expected)


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path):
    (tmp_path / "empty.csv").touch()
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    for name, sentence in {
        "none.csv": "none.csv does not exist",
        "empty.csv": "empty.csv is empty",
        "folder.csv": "folder.csv is a folder; a file is needed",
        "pipe.csv": "pipe.csv is not a file",
        "nul\0.csv": "cannot be read: embedded null byte",
        f"{'long' * 999}.csv": "cannot be read: File name too long",
    }.items():
        with pytest.raises(DataError) as refusal:
            read(tmp_path / name)
        assert sentence in str(refusal.value)


@pytest.mark.parametrize(("name", "what"), [("a.xlsx", "the ending .xlsx"), ("a", "no ending")])
def test_an_unknown_ending_is_refused_with_those_known(tmp_path, name, what):
    (tmp_path / name).write_text("content")
    with pytest.raises(UserError) as refusal:
        read(tmp_path / name)
    assert str(refusal.value).endswith(
        f"{name} has {what}; known are .ts, .npz, .csv, .tsv, .parquet, .arrow, .feather"
    )


@pytest.mark.parametrize(
    ("name", "option", "sentence"),
    [
        ("a.ts", "id", "id does not apply to a .ts file; it takes classes"),
        ("a.npz", "time", "time does not apply to a .npz file; it takes per_step, classes, minus_one"),
        (
            "a.csv",
            "per_step",
            "per_step does not apply to a .csv file; it takes id, time, target, inputs, classes, minus_one",
        ),
    ],
)
def test_an_option_of_another_format_is_refused(tmp_path, name, option, sentence):
    (tmp_path / name).write_text("content")
    with pytest.raises(UserError) as refusal:
        read(tmp_path / name, **{option: "x"})
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("ending", ["ts", "npz", "csv", "tsv", "parquet", "arrow"])
def test_garbage_is_one_sentence(tmp_path, ending):
    path = tmp_path / f"garbage.{ending}"
    for garbage in (bytes(range(256)), b"\0" * 99, b"\xff\xfe\x00", b"<html>", b"\n\n\n"):
        path.write_bytes(garbage)
        with pytest.raises(UserError) as refusal:
            read(path)
        assert len(str(refusal.value).splitlines()) == 1
        assert path.name in str(refusal.value)
