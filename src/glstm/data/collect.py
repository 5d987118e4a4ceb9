"""Arrays in any usual form, as `Sequences`."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from glstm.data.sequences import Sequences
from glstm.errors import UserError


def as_sequences(
    x: Any,
    y: Any = None,
    times: Any = None,
    lengths: Any = None,
    *,
    classes: Sequence[str] | None = None,
    per_step: bool | None = None,
) -> Sequences:
    """x, y, times and lengths as `ArrayTask` takes them."""
    if isinstance(x, Sequences):
        if not (y is None and times is None and lengths is None):
            raise UserError("Sequences hold their own targets and times: leave out y, times and lengths")
        return x.checked()
    each = _inputs(x, lengths)
    found = Sequences(each, times=_times(times, each), time_unit="seconds" if _are_dates(times) else None)
    if y is None:
        return found.checked()
    padded = whole_steps(x)
    y, own_classes = _targets(y, each, per_step, padded)
    if own_classes is not None and classes is not None:
        named = tuple(map(str, classes))
        if own_classes and re.fullmatch("[0-9]+", own_classes[0]) and not set(own_classes) <= set(named):
            y, own_classes = _numbered(y, named), named  # labels are places in the list of names
        if unknown := sorted(set(own_classes) - set(named)):
            raise UserError(f"the label {unknown[0]!r:.50} is not among the classes {', '.join(named)}")
        own_classes = named
    elif classes is not None:
        raise UserError("classes are given, but y holds numbers with a fraction: give labels, or leave classes out")
    return Sequences(each, y, found.times, own_classes, time_unit=found.time_unit).checked()


def _inputs(x: Any, lengths: Any) -> list[np.ndarray]:
    if isinstance(x, list | tuple) and any(np.ndim(one) > 0 for one in x) and _unequal(x):
        if lengths is not None:
            raise UserError("lengths are for padded arrays; x is a list of sequences, which have their own")
        return [_steps(one, f"sequence {number} of x") for number, one in enumerate(x)]
    whole = _numbers(x, "x")
    if whole.ndim not in (2, 3):
        raise UserError(f"x must be (N, T, D), (N, T), or a list of N arrays (T_n, D), but has the shape {whole.shape}")
    if not len(whole):
        raise UserError("x holds no sequence")
    whole = whole if whole.ndim == 3 else whole[..., None]
    return [_steps(one, "x") for one in _cut(whole, lengths, "x")]


def _unequal(x: Sequence[Any]) -> bool:
    return len({np.shape(one) for one in x}) > 1 or any(isinstance(one, np.ndarray | torch.Tensor) for one in x)


def _steps(one: Any, what: str) -> np.ndarray:
    found = _numbers(one, what)
    if found.ndim not in (1, 2):
        raise UserError(f"{what} must be (T, D) or (T,), but has the shape {found.shape}")
    return found if found.ndim == 2 else found[:, None]


def _cut(whole: np.ndarray, lengths: Any, what: str) -> list[np.ndarray]:
    if lengths is None:
        return list(whole)
    each = _plain(lengths)
    steps = whole.shape[1]
    if each.shape != (len(whole),) or each.dtype.kind not in "iu":
        raise UserError(f"lengths must be one whole number for each of the {len(whole)} sequences, not {_form(each)}")
    if len(each) and not (each.min() >= 1 and each.max() <= steps):
        bad = each.min() if each.min() < 1 else each.max()
        raise UserError(f"lengths of {what} must be from 1 to {steps}, its number of steps, and one is {bad}")
    return [one[:length] for one, length in zip(whole, each, strict=True)]


def _times(times: Any, each: list[np.ndarray]) -> list[np.ndarray] | None:
    if times is None:
        return None
    steps = [len(one) for one in each]
    if isinstance(times, np.ndarray) and times.dtype.kind == "O":
        times = list(times)
    if isinstance(times, list | tuple) and times and np.ndim(times[0]) == 1:
        if len(times) != len(each):
            raise UserError(f"times are given for {len(times)} sequences, and there are {len(each)}")
        own = [_moments(one, f"times of sequence {number}") for number, one in enumerate(times)]
    else:
        whole = _moments(times, "times")
        if whole.ndim == 1:
            own = [whole] * len(each)
        elif whole.ndim == 2 and len(whole) == len(each):
            own = list(whole)
        else:
            raise UserError(f"times must be (T,) for all, or one row a sequence, but have the shape {whole.shape}")
    for number, (one, count) in enumerate(zip(own, steps, strict=True)):
        if one.ndim != 1 or len(one) < count:
            raise UserError(f"sequence {number} has {count} steps, and {one.size} times")
    return [np.ascontiguousarray(one[:count]) for one, count in zip(own, steps, strict=True)]


def _are_dates(times: Any) -> bool:
    first = times[0] if isinstance(times, list | tuple) and times else times
    return times is not None and _plain(first).dtype.kind in "Mm"


def _moments(times: Any, what: str) -> np.ndarray:
    """Dates become seconds since 1970."""
    found = _plain(times)
    if found.dtype.kind == "M":
        return found.astype("datetime64[ns]").astype(np.int64) / 1e9
    if found.dtype.kind == "m":
        return found.astype("timedelta64[ns]").astype(np.int64) / 1e9
    return _numbers(found, what)


def whole_steps(x: Any) -> int | None:
    """The steps of an array (N, T, D) or (N, T), padding included; None for a list of sequences."""
    if isinstance(x, list | tuple) and _unequal(x):
        return None
    _, *shape = np.shape(x)
    return shape[0] if len(shape) in (1, 2) else None


def _targets(
    y: Any, each: list[np.ndarray], per_step: bool | None, padded: int | None
) -> tuple[Any, tuple[str, ...] | None]:
    """y as `Sequences` hold it, and the classes, if it has any. `padded` is the number of steps in the array of x."""
    if not hasattr(y, "__len__"):
        raise UserError(f"y must hold a target for each of the {len(each)} sequences, not {y!r:.50}")
    own: Any
    count, lengths = len(each), [len(one) for one in each]
    if len(y) != count:
        raise UserError(f"there are {count} sequences, and {len(y)} targets")
    if isinstance(y, list | tuple) and any(np.ndim(one) > 0 for one in y):
        own = [_plain(one) for one in y]
        if per_step is None:
            per_step = all(one.shape[:1] == (length,) for one, length in zip(own, lengths, strict=True))
        if not per_step:
            own = _plain(y)
    else:
        own = _plain(y)
        if per_step is None:
            per_step = own.ndim == 3 or (own.ndim == 2 and own.shape[1] == (padded or max(lengths)) > 1)
    if per_step:
        return _of_steps(own, lengths)
    if own.ndim > 2 or (own.ndim == 2 and own.dtype.kind in "OSU"):
        raise UserError(f"y must be (N,), (N, K), or have a target for each step, but has the shape {own.shape}")
    if _are_labels(own) and own.ndim == 1:
        labels = np.array([_label(one, minus_one=False) for one in own], dtype=np.str_)
        if "" in labels:
            raise UserError(f"sequence {int(np.argmax(labels == ''))} has no label: leave it out")
        return labels, _classes(labels)
    values = _numbers(own, "y")
    return (values if values.ndim == 2 else values[:, None]), None


def _of_steps(own: Any, lengths: list[int]) -> tuple[Any, tuple[str, ...] | None]:
    rows = [one[:length] for one, length in zip(own, lengths, strict=True)]
    for number, (one, length) in enumerate(zip(rows, lengths, strict=True)):
        if len(one) != length:
            raise UserError(f"sequence {number} has {length} steps, and {len(one)} targets")
    if all(_are_labels(one) and one.ndim == 1 for one in rows):
        minus_one = not any((one.dtype.kind in "iu" and (one < -1).any()) for one in rows)
        labels = [np.array([_label(value, minus_one) for value in one], dtype=np.str_) for one in rows]
        return labels, _classes(np.concatenate(labels))
    values = [_numbers(one, f"targets of sequence {number}") for number, one in enumerate(rows)]
    return [one if one.ndim == 2 else one[:, None] for one in values], None


def _are_labels(y: np.ndarray) -> bool:
    """Text, bools and whole numbers are classes. An object array is, unless it holds numbers with a fraction."""
    if y.dtype.kind == "O":
        return not all(one is None or isinstance(one, float) for one in y.flatten().tolist())
    return y.dtype.kind in "USbiu"


def _label(value: Any, minus_one: bool) -> str:
    """As text; "" if it is missing, for which -1 stands only where the other labels are 0, 1 and so on."""
    missing = value is None or (isinstance(value, float) and value != value)
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return "" if missing or (minus_one and whole and value == -1) else str(value)


def _classes(labels: np.ndarray) -> tuple[str, ...]:
    """In the order of numbers if they are numbers, else of the alphabet."""
    names = set(labels.tolist()) - {""}
    if all(re.fullmatch("-?[0-9]+", name) for name in names):
        return tuple(sorted(names, key=int))
    return tuple(sorted(names))


def _numbered(y: Any, names: tuple[str, ...]) -> Any:
    """Labels that are numbers, as the names at these places."""

    def named(labels: np.ndarray) -> np.ndarray:
        if any(label and not 0 <= int(label) < len(names) for label in labels.tolist()):
            raise UserError(f"labels that are whole numbers count the {len(names)} classes from 0: one is outside")
        return np.array([names[int(label)] if label else "" for label in labels.tolist()], dtype=np.str_)

    return [named(one) for one in y] if isinstance(y, list) else named(y)


def _numbers(values: Any, what: str) -> np.ndarray:
    found = _plain(values)
    if found.dtype.kind == "O":
        try:
            return found.astype(np.float64)
        except (TypeError, ValueError):
            raise UserError(f"{what} must hold numbers, all of one shape or as a list of arrays") from None
    if found.dtype.kind not in "biuf":
        raise UserError(f"{what} must hold numbers, not {_form(found)}")
    return found.astype(np.float64)


def _plain(values: Any) -> np.ndarray:
    """As a numpy array: of tensors, lists and tables with a column each, too."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    try:
        return np.asarray(values)
    except ValueError:  # rows of different lengths
        found = np.empty(len(values), dtype=object)
        found[:] = list(values)
        return found


def _form(values: np.ndarray) -> str:
    return f"{values.dtype} of shape {values.shape}"
