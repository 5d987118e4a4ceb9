"""A task from anybody's files: one that holds everything, or one for each part."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glstm.data.arrays import ArrayTask
from glstm.data.labels import minus_one_is_a_class
from glstm.data.reading import options_for, read
from glstm.data.sequences import Sequences
from glstm.errors import UserError


def file_task(
    path: Path | str,
    *,
    test: Path | str | float | None = None,
    validation: Path | str | float | None = None,
    id: str | None = None,
    time: str | None = None,
    target: str | tuple[str, ...] | None = None,
    inputs: tuple[str, ...] | None = None,
    values: bool = False,
    missing: str = "refuse",
    standardize: bool = True,
    window: int | None = None,
    from_start: bool | None = None,
    seed: int = 0,
    name: str | None = None,
    doubts: bool = True,
    device: torch.device | str = "cpu",
) -> ArrayTask:
    """A task from a file: `.ts`, `.npz`, or a table. The options that are not here are those of `ArrayTask`.

    Args:
        path: The file.
        test: Another file, or a share of the sequences in `path`: 0.2 if the file has no such part.
        validation: As `test`.
        id: Of a table: the column by which rows belong to a sequence.
        time: Of a table: the column of times.
        target: Of a table: the column or columns to learn.
        inputs: Of a table: the columns that are inputs; None: all others.
        values: True: the targets are numbers to predict, not classes, though they are whole.
        doubts: Warn of what may be meant otherwise.
    """
    columns: dict[str, Any] = {"id": id, "time": time, "target": target, "inputs": inputs}
    columns["classes"] = False if values else None
    columns = {column: value for column, value in columns.items() if value is not None}
    parts = read(path, **columns)
    whole = parts.get("train") or parts["all"]
    if not doubts:
        whole = replace(whole, doubts=())
    others: dict[str, Any] = {}
    for part, asked in (("validation", validation), ("test", test)):
        if isinstance(asked, str | Path):
            others[part] = _only(read(asked, **_alike(asked, columns, whole)), part, asked)
        elif asked is None and part in parts:
            others[part] = parts[part]
        else:
            others[part] = 0.2 if asked is None else asked
    task = ArrayTask(
        whole, **others, columns={column: columns[column] for column in ("id", "time", "classes") if column in columns},
        missing=missing, standardize=standardize, window=window, from_start=from_start, seed=seed,
        name=Path(path).stem.removesuffix("_TRAIN") if name is None else name, device=device,
    )  # fmt: skip
    given: dict[str, Any] = {
        "path": _absolute(path), "test": _absolute(test), "validation": _absolute(validation), "id": id, "time": time,
        "target": target, "inputs": inputs, "values": values or None, "missing": missing, "standardize": standardize,
        "window": window, "from_start": from_start, "seed": seed, "name": name,
    }  # fmt: skip
    task.source = {option: value for option, value in given.items() if value is not None}
    return task


def _absolute(part: Path | str | float | None) -> Any:
    return str(Path(part).resolve()) if isinstance(part, str | Path) else part


def _alike(path: Path | str, columns: dict[str, Any], whole: Sequences) -> dict[str, Any]:
    """Options to read another file by: the inputs of the first, by name, whatever the order of its columns is, and what
    -1 and whole numbers mean in the first."""
    found: dict[str, Any] = {} if whole.channels is None else {"inputs": whole.channels}
    if whole.classes is not None:
        found["minus_one"] = minus_one_is_a_class((), whole.classes)
    elif whole.y is not None:  # all its values may be whole by chance
        found["classes"] = False
    return columns | options_for(path, **found)


def _only(parts: dict[str, Sequences], part: str, path: Path | str) -> Sequences:
    found = parts.get(part) or parts.get("all")
    if found is None:
        raise UserError(f"{path} holds the parts {', '.join(parts)}, and no {part} part")
    return found
