"""Which targets are classes, and what each class is called: the same rules for arrays and for files."""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glstm.errors import DataError

WHOLE = re.compile("-?[0-9]{1,18}")
SOME, MANY = 10, 50  # classes; fewer whole numbers than SOME are never doubted

Labels = NDArray[np.str_]


def are_labels(*rows: np.ndarray) -> bool:
    """Text, bools and whole numbers are classes, all together. Objects are values if they are numbers that are not all
    whole; None and NaN among them are missing, and say nothing."""
    if all(row.dtype.kind != "O" for row in rows):
        return all(row.dtype.kind in "USbiu" for row in rows)
    known = [one for row in rows for one in row.flatten().tolist() if not _is_missing(one)]
    are_numbers = all(_is_real(one) and not isinstance(one, bool | np.bool_) for one in known)
    return not are_numbers or (bool(known) and all(map(_is_whole, known)))


def one_label_each(y: np.ndarray, advice: str, what: str = "y") -> np.ndarray:
    """Labels (N,) or (N, 1) as (N,). Several numbers are no label: they are values only if the caller says so, and
    `advice` tells how."""
    if y.ndim == 1 or y.shape[-1] == 1:
        return y if y.ndim == 1 else y[:, 0]
    if y.dtype.kind not in "biuO" or not all(one is None or _is_real(one) for one in y.flatten().tolist()):
        raise DataError(f"{what} has {y.shape[-1]} texts where the name of one class belongs")
    raise DataError(
        f"{what} has {y.shape[-1]} whole numbers where one class belongs: if they are values to predict, {advice}"
        + (
            "; if the 1 among them marks the class, give its place alone, as y.argmax(-1) does"
            if _is_one_hot(y)
            else ""
        )
    )


def minus_one_is_a_class(rows: Iterable[np.ndarray], names: Sequence[str] | None) -> bool:
    """Whether -1 at a step is a class, and not a missing target: if others are below it, or a class is called so.

    It is decided once for all parts of the data, by all their targets, or by the classes of the part to train on.
    """
    below_zero = any(WHOLE.fullmatch(name) and int(name) < 0 for name in names or ())
    return below_zero or any(map(_goes_below_minus_one, rows))


def doubts_about_minus_one(rows: Iterable[np.ndarray], classes: Sequence[str] | None) -> tuple[str, ...]:
    """What to say if -1 at a step was taken as a missing target: beside 0 and 1 it is often a class."""
    if tuple(classes or ()) != ("0", "1") or not any(map(_has_minus_one, rows)):
        return ()
    return (
        "-1 at a step was taken as a missing target, and 0 and 1 as the classes: if -1 is a class, too, write the "
        "classes as text, such as down, flat and up",
    )


def labels_of(
    rows: Sequence[np.ndarray], names: Sequence[str] | None, *, minus_one_is_missing: bool = False
) -> list[Labels]:
    """The targets as names of classes, "" where one is missing.

    Whole numbers count into the names given from 0, unless these are whole numbers themselves.
    """
    places = None if names is None or all(map(WHOLE.fullmatch, names)) else names
    return [_labels(row, places, minus_one_is_missing) for row in rows]


def in_order(labels: Iterable[Labels]) -> tuple[str, ...]:
    """All classes of these: in the order of numbers if they are numbers, else of the alphabet."""
    names = {name for row in labels for name in np.unique(row).tolist()} - {""}
    if all(map(WHOLE.fullmatch, names)):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def doubts_about_classes(labels: Sequence[Labels], classes: Sequence[str] | None, advice: str) -> tuple[str, ...]:
    """What to say if classes that nobody named look like values: whole numbers that are more than half of all targets,
    or many that leave numbers out, which nobody does who numbers classes."""
    if classes is None or len(classes) < SOME or not all(map(WHOLE.fullmatch, classes)):
        return ()
    numbers = [int(name) for name in classes]
    known = sum(int((row != "").sum()) for row in labels)
    leave_out = max(numbers) - min(numbers) >= len(numbers)
    if 2 * len(numbers) <= known and not (leave_out and len(numbers) > MANY):
        return ()
    return (f"{len(numbers):,} different whole numbers were taken as classes: if they are values to predict, {advice}",)


def _is_one_hot(y: np.ndarray) -> bool:
    return y.dtype.kind != "O" and bool(((y == 0) | (y == 1)).all() and (y.sum(-1) == 1).all())


def _goes_below_minus_one(row: np.ndarray) -> bool:
    if row.dtype.kind == "O":
        return any(_is_whole(one) and one < -1 for one in row.tolist())
    return row.dtype.kind == "i" and bool((row < -1).any())


def _has_minus_one(row: np.ndarray) -> bool:
    if row.dtype.kind == "O":
        return any(_is_whole(one) and one == -1 for one in row.tolist())
    return row.dtype.kind == "i" and bool((row == -1).any())


def _labels(row: np.ndarray, names: Sequence[str] | None, minus_one: bool) -> Labels:
    if row.dtype.kind == "U":
        return row.astype(np.str_)
    if row.dtype.kind == "O":
        return np.array([_label(one, names, minus_one) for one in row.tolist()], dtype=np.str_)
    different, places = np.unique(row, return_inverse=True)
    return np.array([_label(one, names, minus_one) for one in different.tolist()], dtype=np.str_)[places]


def _label(value: Any, names: Sequence[str] | None, minus_one: bool) -> str:
    if _is_whole(value):
        return _whole_label(int(value), names, minus_one)
    if _is_missing(value):
        return ""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value).lower() if isinstance(value, bool | np.bool_) else str(value)


def _whole_label(value: int, names: Sequence[str] | None, minus_one: bool) -> str:
    if minus_one and value == -1:
        return ""
    if names is None:
        return str(value)
    if not 0 <= value < len(names):
        raise DataError(f"y must count from 0 to {len(names) - 1}, as classes has {len(names)} names, not {value}")
    return names[value]


def _is_missing(value: Any) -> bool:
    return value is None or (_is_real(value) and value != value)


def _is_real(value: Any) -> bool:
    return isinstance(value, Real | Decimal | np.bool_)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
