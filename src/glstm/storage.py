"""Files that are either whole or not there; what the disk refuses is said in one sentence."""

import json
import os
import threading
from pathlib import Path

from glstm.errors import UserError


def write_atomically(path: Path, content: bytes) -> None:
    """Write through a temporary file beside `path`: a reader, or a crash, never meets half of it."""
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


def write_together(folder: Path, files: dict[str, bytes]) -> None:
    """Several files, or none of them: all are written under other names before the first gets its own."""
    make_folder(folder)
    if taken := [name for name in files if (folder / name).is_dir()]:
        raise UserError(f"{folder / taken[0]} cannot be written: it is a folder")
    staged = {name: folder / f".{name}.{os.getpid()}-{threading.get_ident()}" for name in files}
    try:
        for name, content in files.items():
            staged[name].write_bytes(content)
        for name, temporary in staged.items():
            temporary.replace(folder / name)
    except OSError as error:
        raise UserError(f"{folder} cannot be written to: {error.strerror}") from error
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder, if it is not there, that can be written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the folder {path} cannot be made: {error.strerror or error}") from error
    if not os.access(path, os.W_OK):
        raise UserError(f"the folder {path} cannot be written to")


def write_json(path: Path, value: object, *, indent: int | None = 2) -> None:
    write_atomically(path, (json.dumps(value, indent=indent) + "\n").encode())
