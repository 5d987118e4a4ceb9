"""Files that are written completely or not at all; an error of the disk becomes one sentence."""

import json
import os
import threading
from pathlib import Path

from glstm.errors import UserError


def cache_folder() -> Path:
    """Where what can be had again is kept for this user: fetched data, compiled kernels."""
    return (Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "glstm").expanduser()


def write_atomically(path: Path | str, content: bytes) -> None:
    """Write to a temporary file beside `path`, then rename it: there is never half a file, even after a crash."""
    path = Path(path)
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


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
