"""Files that belong together and change together: one save of a run, in one step.

A save is a folder, `saved/000012` in the run's folder. It is written under another name and renamed when it is whole:
that one rename makes it the current save, which is the one with the highest number. So checkpoint, network, metrics and
settings are always of one moment, whenever the process ends. Earlier saves are removed afterwards.

The files are also found in the run's folder itself: they are links there, which lead through `saved/now` to the current
save. Nothing here depends on these links. A folder without saves, such as a model folder, is its own current save.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from glstm.errors import UserError
from glstm.storage import remove_temporary, sync_folder, temporary_name, write_synced

SAVES, NOW, UNFINISHED = "saved", "now", ".unfinished"
Found = TypeVar("Found")


def number_of(folder: Path) -> int:
    """Of the current save; 0: there is none."""
    return max(_numbers(folder), default=0)


def current(folder: Path) -> Path:
    """Where the files of the current save are. This decides it for everybody who reads a run."""
    number = number_of(folder)
    return _path(folder, number) if number else folder


def read_current(folder: Path, read: Callable[[Path], Found]) -> Found:
    """`read` of the current save, and again if a new one took its place meanwhile."""
    while True:
        at = current(folder)
        try:
            return read(at)
        except (OSError, UserError):
            if current(folder) == at:
                raise


def write_save(folder: Path, files: dict[str, bytes], keep: Iterable[str] = ()) -> int:
    """Make a save of these files, and of those to keep, as the current save has them. Returns its number.

    If it cannot be written, the current save stays as it is.
    """
    before, number = current(folder), number_of(folder) + 1
    new, place = folder / SAVES / UNFINISHED, _path(folder, number)
    try:
        _remove(new)
        new.mkdir(parents=True)
        for name in keep:
            if name not in files and (before / name).is_file():
                _copy(before / name, new / name)
        for name, content in files.items():
            write_synced(new / name, content)
        sync_folder(new)
        os.rename(new, place)
        sync_folder(folder / SAVES)
        _show(folder, number)
    except OSError as error:
        intact = "; its last save is intact" if number_of(folder) else ""
        raise UserError(f"{folder} cannot be saved: {error.strerror or error}{intact}") from error
    finally:
        _remove(new)
    _remove_older(folder, number)
    return number


def tidy(folder: Path) -> None:
    """Remove what a killed process has left. Only for the process that has locked the folder."""
    if not folder.is_dir():
        return
    try:
        for place in (folder, folder / SAVES):
            remove_temporary(place)
        _remove(folder / SAVES / UNFINISHED)
        if number := number_of(folder):
            _show(folder, number)
            _remove_older(folder, number)
    except OSError as error:
        raise UserError(f"{folder} cannot be written to: {error.strerror or error}") from error


def require_current(folder: Path, number: int) -> None:
    """This must still be the current save: nobody has saved here, or removed the folder, since it was read."""
    if not folder.is_dir():
        raise UserError(f"{folder} was removed while it was being trained: there is nowhere to save it")
    if number_of(folder) != number:
        raise UserError(f"{folder} was changed while it was being trained: what is there now is left as it is")


def _numbers(folder: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder / SAVES) if re.fullmatch(r"[0-9]{6,}", name)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _path(folder: Path, number: int) -> Path:
    return folder / SAVES / f"{number:06d}"


def _copy(source: Path, target: Path) -> None:
    """A second name for the same file, where the disk has such: a save never changes."""
    try:
        os.link(source, target)
    except OSError:
        write_synced(target, source.read_bytes())


def _show(folder: Path, number: int) -> None:
    """Let the links in the run's folder lead to this save."""
    _link(folder / SAVES / NOW, f"{number:06d}")
    names = os.listdir(_path(folder, number))
    for name in names:
        _link(folder / name, f"{SAVES}/{NOW}/{name}")
    for path in folder.iterdir():
        if path.is_symlink() and path.name not in names and os.readlink(path).startswith(f"{SAVES}/{NOW}/"):
            path.unlink()


def _link(path: Path, target: str) -> None:
    if path.is_symlink() and os.readlink(path) == target:
        return
    if path.is_dir() and not path.is_symlink():  # in a copy of a run's folder, links may have become what they led to
        _remove(path)
    new = temporary_name(path)
    try:
        os.symlink(target, new)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def _remove_older(folder: Path, number: int) -> None:
    for older in _numbers(folder):
        if older < number:
            _remove(_path(folder, older))


def _remove(path: Path) -> None:
    """What is left of it is removed at the next start."""
    shutil.rmtree(path, ignore_errors=True)
