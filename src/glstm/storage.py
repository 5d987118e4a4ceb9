"""Files that are written completely or not at all, and locks; an error of the disk becomes one sentence."""

import json
import os
import re
import threading
from contextlib import ExitStack
from pathlib import Path

from glstm.errors import UserError

LOCK = ".lock"
_held: dict[str, int] = {}  # the locks of this process, with its number: a process that it forks does not have them


def cache_folder() -> Path:
    """Where what can be had again is kept for this user: fetched data, compiled kernels."""
    return (Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "glstm").expanduser()


def write_atomically(path: Path | str, content: bytes) -> None:
    """Write to a temporary file beside `path`, then rename it: there is never half a file, even after a crash."""
    path = Path(path)
    make_folder(path.parent)
    temporary = temporary_name(path)
    try:
        write_synced(temporary, content)
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def temporary_name(path: Path) -> Path:
    """Beside `path`, hidden, and no other process or thread uses it."""
    return path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")


def remove_temporary(folder: Path, *, of_others: bool = False) -> None:
    """Remove temporary files of processes that were killed. `of_others`: other processes may be writing here."""
    for path in folder.glob(".*"):
        mark = re.fullmatch(r"\..+\.([0-9]+)-[0-9]+", path.name)
        if mark and not (of_others and _is_alive(int(mark[1]))):
            path.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it is another user's
        return True
    return True


def write_synced(path: Path, content: bytes) -> None:
    """Write a file, and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Wait until the disk has the folder's list of files."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def lock(path: Path, held: ExitStack, *, wait: bool = False) -> bool:
    """Lock this file until `held` is closed; False: somebody has the lock, and it does not wait.

    The system releases a process's locks when it ends, in whatever way.
    """
    import fcntl  # here: there are systems without it, and this module is imported by everything

    make_folder(path.parent)
    try:
        fcntl.flock(held.enter_context(path.open("a")), fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        raise UserError(f"{path} cannot be locked against other processes: {error.strerror}") from None
    name = os.path.realpath(path)
    _held[name] = os.getpid()
    held.callback(_held.pop, name, None)
    return True


def is_locked_here(path: Path) -> bool:
    """Whether this process has the lock."""
    return _held.get(os.path.realpath(path)) == os.getpid()


def write_together(folder: Path | str, files: dict[str, bytes]) -> None:
    """Write several files, or none: all are written under temporary names before the first is renamed. A name may be a
    path below the folder."""
    folder = Path(folder)
    make_folder(folder)
    if taken := [name for name in files if (folder / name).is_dir()]:
        raise UserError(f"{folder / taken[0]} cannot be written: it is a folder")
    mark = f"{os.getpid()}-{threading.get_ident()}"
    staged = {name: folder / f".{name.replace('/', '-')}.{mark}" for name in files}
    try:
        for name, content in files.items():
            staged[name].write_bytes(content)
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        for name, temporary in staged.items():
            temporary.replace(folder / name)
    except OSError as error:
        raise UserError(f"{folder} cannot be written to: {error.strerror}") from error
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)


def make_folder(path: Path | str) -> None:
    """Make a folder if it does not exist; an error if it cannot be written to."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the folder {path} cannot be made: {error.strerror or error}") from error
    if not os.access(path, os.W_OK):
        raise UserError(f"the folder {path} cannot be written to")


def write_json(path: Path | str, value: object, *, indent: int | None = 2) -> None:
    write_atomically(path, (json.dumps(value, indent=indent) + "\n").encode())
