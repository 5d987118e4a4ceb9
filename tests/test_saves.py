"""Saves: one step each, found by one function, readable through links; locks and leftovers."""

import os
import resource
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import pytest

from glstm.errors import UserError
from glstm.saves import current, number_of, read_current, require_current, tidy, write_save
from glstm.storage import is_locked_here, lock, remove_temporary, write_atomically

LOCK_AND_WAIT = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked_by_another(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", LOCK_AND_WAIT, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        yield


@contextmanager
def largest_file(size: int):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_save_takes_the_place_of_the_one_before(tmp_path):
    assert current(tmp_path) == tmp_path
    assert write_save(tmp_path, {"a": b"1", "b": b"1"}) == 1
    assert write_save(tmp_path, {"a": b"2", "c": b"2"}, keep=["b", "nothing"]) == 2
    assert current(tmp_path) == tmp_path / "saved" / "000002"
    for folder in (tmp_path, current(tmp_path)):
        assert {name: (folder / name).read_bytes() for name in "abc"} == {"a": b"2", "b": b"1", "c": b"2"}
    inside = [f"saved/000002/{name}" for name in "abc"]
    assert names(tmp_path) == ["a", "b", "c", "saved", "saved/000002", *inside, "saved/now"]
    write_save(tmp_path, {"a": b"3"})
    assert names(tmp_path) == ["a", "saved", "saved/000003", "saved/000003/a", "saved/now"]


def test_files_of_an_older_version_become_a_save(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text("old")
    write_save(tmp_path, {"a": b"new"}, keep=["b"])
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("new", "old")
    assert (tmp_path / "b").is_symlink()


def test_a_copy_without_links_goes_on(tmp_path):
    write_save(tmp_path / "one", {"a": b"1"})
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert not (tmp_path / "two" / "a").is_symlink()
    write_save(tmp_path / "two", {"a": b"2"})
    assert (tmp_path / "two" / "a").read_text() == "2"
    assert (tmp_path / "one" / "a").read_text() == "1"


def test_a_save_that_cannot_be_written_leaves_the_last_one(tmp_path):
    write_save(tmp_path, {"a": b"small"})
    before = names(tmp_path)
    with (
        largest_file(1000),
        pytest.raises(UserError, match=r"cannot be saved: File too large; its last save is intact"),
    ):
        write_save(tmp_path, {"a": b"large" * 1000})
    assert names(tmp_path) == before
    assert (tmp_path / "a").read_text() == "small"


def test_a_reader_that_is_overtaken_reads_again(tmp_path):
    write_save(tmp_path, {"a": b"1"})
    seen = []

    def read(save):
        seen.append(save.name)
        if len(seen) == 1:
            write_save(tmp_path, {"a": b"2"})
        return (save / "a").read_bytes()

    assert read_current(tmp_path, read) == b"2"
    assert seen == ["000001", "000002"]
    with pytest.raises(FileNotFoundError):
        read_current(tmp_path, lambda save: (save / "b").read_bytes())


def test_what_killed_processes_left_is_removed(tmp_path):
    write_save(tmp_path, {"a": b"1"})
    whole = names(tmp_path)
    for name in (".a.png.123-456", "saved/.now.12-3", "saved/.unfinished/a", "saved/000000/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("half")
    (tmp_path / "saved" / "now").unlink()
    (tmp_path / ".keep").write_text("mine")
    tidy(tmp_path)
    assert names(tmp_path) == [".keep", *whole]


def test_temporary_files_of_living_processes_stay_where_several_write(tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    for process in (ended.pid, os.getpid()):
        (tmp_path / f".x.json.{process}-1").write_text("")
    remove_temporary(tmp_path, of_others=True)
    assert [path.name for path in tmp_path.iterdir()] == [f".x.json.{os.getpid()}-1"]
    write_atomically(tmp_path / "x.json", b"")


def test_a_save_on_top_of_anothers_is_refused(tmp_path):
    run = tmp_path / "run"
    write_save(run, {"a": b"1"})
    require_current(run, 1)
    write_save(run, {"a": b"2"})
    with pytest.raises(UserError, match="was changed while it was being trained"):
        require_current(run, 1)
    shutil.rmtree(run)
    with pytest.raises(UserError, match="run was removed while it was being trained: there is nowhere to save it"):
        require_current(run, 2)
    assert number_of(run) == 0


def test_a_lock_is_one_processs(tmp_path):
    path = tmp_path / "deep" / ".lock"
    with ExitStack() as held:
        with locked_by_another(path):
            assert not lock(path, held)
            assert not is_locked_here(path)
        assert lock(path, held)
        assert is_locked_here(path)
        assert not lock(path, held)
    assert not is_locked_here(path)
