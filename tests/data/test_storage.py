import json
import os
import stat
from typing import Any

import pytest

from glstm.errors import UserError
from glstm.storage import write_atomically, write_json


def test_writes_content_and_makes_missing_folders(tmp_path):
    path = tmp_path / "a" / "b" / "file.bin"
    write_atomically(path, b"content")
    assert path.read_bytes() == b"content"


def test_replaces_the_whole_of_a_longer_file(tmp_path):
    path = tmp_path / "file.bin"
    path.write_bytes(b"a much longer old content")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file.bin"]


def test_a_reader_of_the_old_file_keeps_the_old_content(tmp_path):
    path = tmp_path / "file.bin"
    path.write_bytes(b"old content")
    with path.open("rb") as reader:
        write_atomically(path, b"new")
        assert reader.read() == b"old content"


def test_content_that_is_no_bytes_leaves_everything_as_it_was(tmp_path):
    path = tmp_path / "file.bin"
    path.write_bytes(b"old")
    no_bytes: Any = "text"
    with pytest.raises(TypeError):
        write_atomically(path, no_bytes)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file.bin"]


def test_a_failing_replacement_leaves_no_temporary_file(tmp_path):
    path = tmp_path / "taken"
    path.mkdir()
    with pytest.raises(UserError, match="taken cannot be written: Is a directory"):
        write_atomically(path, b"content")
    assert os.listdir(tmp_path) == ["taken"]


def test_a_folder_that_cannot_be_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="deep cannot be made: Not a directory"):
        write_atomically(tmp_path / "file" / "deep" / "x", b"")


def test_an_interrupt_leaves_no_temporary_file(tmp_path, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file.bin", b"content")
    assert os.listdir(tmp_path) == []


def test_the_file_is_as_private_as_the_user_wants_files_to_be(tmp_path):
    path = tmp_path / "file.bin"
    before = os.umask(0o027)
    try:
        write_atomically(path, b"content")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_json_is_readable_and_ends_its_last_line(tmp_path):
    path = tmp_path / "value.json"
    write_json(path, {"seed": 3, "order": [2, 0, 1]})
    assert json.loads(path.read_text()) == {"seed": 3, "order": [2, 0, 1]}
    assert path.read_text().endswith("}\n")
