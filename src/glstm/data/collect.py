"""Arrays in any usual form, as `Sequences`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from glstm.data.labels import (
    are_labels,
    doubts_about_classes,
    doubts_about_minus_one,
    in_order,
    labels_of,
    minus_one_is_a_class,
    one_label_each,
)
from glstm.data.sequences import Sequences
from glstm.errors import UserError

VALUES = "say values=True"
Found = tuple[Any, tuple[str, ...] | None, tuple[str, ...]]  # y as `Sequences` hold it, its classes, and doubts


def as_sequences(
    x: Any,
    y: Any = None,
    times: Any = None,
    lengths: Any = None,
    *,
    classes: Sequence[str] | None = None,
    per_step: bool | None = None,
    values: bool = False,
    minus_one: bool | None = None,
) -> Sequences:
    """x, y, times and lengths as `ArrayTask` takes them.

    `minus_one`: whether -1 at a step is a class; None: y decides.
    """
    if values and classes is not None:
        raise UserError("values says that y holds numbers to predict, and classes that it holds labels: give one")
    if isinstance(x, Sequences):
        given = {"y": y, "times": times, "lengths": lengths, "classes": classes, "per_step": per_step}
        if said := [name for name, value in given.items() if value is not None] + ["values"] * values:
            raise UserError(f"Sequences hold their own targets, times and classes: leave out {said[0]}")
        return x.checked()
    each = _inputs(x, lengths)
    found = Sequences(each, times=_times(times, each), time_unit="seconds" if _are_dates(times) else None)
    if y is None:
        return found.checked()
    names = None if classes is None else tuple(map(str, classes))
    y, found_classes, doubts = _targets(y, each, per_step, whole_steps(x), names, values, minus_one)
    if names is not None:
        if found_classes is None:
            raise UserError("classes are given, but y holds numbers with a fraction: give labels, or leave classes out")
        if unknown := sorted(set(found_classes) - set(names)):
            raise UserError(f"the label {unknown[0]!r:.50} is not among the classes {', '.join(names)}")
    own_classes = found_classes if names is None else names
    return Sequences(each, y, found.times, own_classes, time_unit=found.time_unit, doubts=doubts).checked()


def _inputs(x: Any, lengths: Any) -> list[np.ndarray]:
    if isinstance(x, list | tuple) and any(np.ndim(one) > 0 for one in x) and _unequal(x):
        if lengths is not None:
            raise UserError("lengths are for padded arrays; x is a list of sequences, which have their own")
        return [_steps(one, f"sequence {number} of x") for number, one in enumerate(x, 1)]
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
        own = [_moments(one, f"times of sequence {number}") for number, one in enumerate(times, 1)]
    else:
        whole = _moments(times, "times")
        if whole.ndim == 1:
            own = [whole] * len(each)
        elif whole.ndim == 2 and len(whole) == len(each):
            own = list(whole)
        else:
            raise UserError(f"times must be (T,) for all, or one row a sequence, but have the shape {whole.shape}")
    for number, (one, count) in enumerate(zip(own, steps, strict=True), 1):
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
    y: Any,
    each: list[np.ndarray],
    per_step: bool | None,
    padded: int | None,
    names: tuple[str, ...] | None,
    values: bool,
    minus_one: bool | None,
) -> Found:
    """`padded` is the number of steps in the array of x."""
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
        return _of_steps(own, lengths, names, values, minus_one)
    if own.ndim > 2:
        raise UserError(f"y must be (N,), (N, K), or have a target for each step, but has the shape {own.shape}")
    if not values and are_labels(own):
        (labels,) = labels_of([one_label_each(own, VALUES)], names)
        if "" in labels and "" not in (names or ()):
            raise UserError(f"sequence {int(np.argmax(labels == '')) + 1} has no label: leave it out")
        classes = in_order([labels])
        return labels, classes, () if names else doubts_about_classes([labels], classes, VALUES)
    numbers = _numbers(own, "y")
    return (numbers if numbers.ndim == 2 else numbers[:, None]), None, ()


def _of_steps(
    own: Any, lengths: list[int], names: tuple[str, ...] | None, values: bool, minus_one: bool | None
) -> Found:
    rows = [one[:length] for one, length in zip(own, lengths, strict=True)]
    for number, (one, length) in enumerate(zip(rows, lengths, strict=True), 1):
        if len(one) != length:
            raise UserError(f"sequence {number} has {length} steps, and {len(one)} targets")
    if not values and are_labels(*rows):
        rows = [one_label_each(one, VALUES) for one in rows]
        is_class = minus_one_is_a_class(rows, names) if minus_one is None else minus_one
        labels = labels_of(rows, names, minus_one_is_missing=not is_class)
        classes = in_order(labels)
        if names is not None:
            return labels, classes, ()
        doubts = () if is_class else doubts_about_minus_one(rows, classes)
        return labels, classes, doubts + doubts_about_classes(labels, classes, VALUES)
    numbers = [_numbers(one, f"targets of sequence {number}") for number, one in enumerate(rows, 1)]
    return [one if one.ndim == 2 else one[:, None] for one in numbers], None, ()


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
