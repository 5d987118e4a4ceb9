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
