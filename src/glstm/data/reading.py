"""Sequences from a file of any known format, told by its ending."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from glstm.data.npz_file import read_npz
from glstm.data.parsing import existing_file
from glstm.data.sequences import Sequences
from glstm.data.table import read_table
from glstm.data.table_file import ENDINGS as TABLES
from glstm.data.ts_file import read_ts
from glstm.errors import UserError

# The reader of each ending, and the options it takes.
READERS: dict[str, tuple[Callable[..., Sequences | dict[str, Sequences]], tuple[str, ...]]] = {
    ".ts": (read_ts, ("classes",)),
    ".npz": (read_npz, ("per_step", "classes", "minus_one")),
    **dict.fromkeys(TABLES, (read_table, ("id", "time", "target", "inputs", "classes", "minus_one"))),
}


def options_for(path: Path | str, **options: Any) -> dict[str, Any]:
    """Those of the options that the file's reader takes."""
    _, known = READERS.get(Path(path).suffix.lower(), (None, ()))
    return {name: value for name, value in options.items() if name in known}


def read(path: Path | str, **options: Any) -> dict[str, Sequences]:
    """The parts of a file: {"all": ...}, or those that an .npz file names. An option that is None is not given."""
    path = existing_file(path)
    ending = path.suffix.lower()
    if ending not in READERS:
        what = f"the ending {ending}" if ending else "no ending"
        raise UserError(f"{path} has {what}; known are {', '.join(READERS)}")
    reader, known = READERS[ending]
    options = {name: value for name, value in options.items() if value is not None}
    if unknown := [name for name in options if name not in known]:
        takes = f"it takes {', '.join(known)}" if known else "it takes no options"
        raise UserError(f"{unknown[0]} does not apply to a {ending} file; {takes}")
    found = reader(path, **options)
    return found if isinstance(found, dict) else {"all": found}
