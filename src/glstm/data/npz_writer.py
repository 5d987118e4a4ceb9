"""The parts of a task as an .npz file that `read_npz` reads back exactly."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glstm.data.labels import WHOLE
from glstm.data.sequences import Sequences

Array = np.ndarray


@dataclass(frozen=True)
class Padded:
    """Arrays of any lengths as one, which is made only when it is written."""

    each: list[Array]
    steps: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.each), self.steps, *self.each[0].shape[1:])

    @property
    def dtype(self) -> np.dtype:
        return np.result_type(*self.each)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        whole = np.zeros(self.shape, self.dtype)
        for row, one in zip(whole, self.each, strict=True):
            row[: len(one)] = one
        return whole


def npz_bytes(parts: Mapping[str, Sequences]) -> bytes:
    """A file with the parts, all of one kind, as a task has them; not compressed."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **{name: np.asarray(array) for name, array in _all_arrays(parts).items()})
    return file.getvalue()


def npz_size(parts: Mapping[str, Sequences]) -> int:
    """How many bytes the arrays in that file will have."""
    return sum(math.prod(array.shape) * array.dtype.itemsize for array in _all_arrays(parts).values())


def _all_arrays(parts: Mapping[str, Sequences]) -> dict[str, Array | Padded]:
    arrays = {f"{name}_{part}": array for part, own in parts.items() for name, array in _arrays(own).items()}
    first = next(iter(parts.values()))
    if first.classes is not None:
        arrays["classes"] = np.array(first.classes, np.str_)
    for name in ("channels", "targets"):
        names = getattr(first, name)
        if names and len(set(names)) == len(names) and "" not in names:  # others could not be read again
            arrays[name] = np.array(names, np.str_)
    return arrays


def _steps(own: Sequences) -> int:
    """Steps to pad to. K values of a sequence are not told from those of K steps, so there is one step more then."""
    steps = max(len(one) for one in own.x)
    values = own.y.shape[1:] if isinstance(own.y, np.ndarray) else ()
    return steps + 1 if values == (steps,) else steps


def _arrays(own: Sequences) -> dict[str, Array | Padded]:
    steps = _steps(own)
    found: dict[str, Array | Padded] = {"x": Padded(own.x, steps), "lengths": np.array([len(one) for one in own.x])}
    if own.times is not None:
        found["times"] = Padded(own.times, steps)
    y: Any = own.y
    if isinstance(y, list):  # with an axis for values also where there is one: it says that there is one for each step
        rows = [_numbered(one, own.classes) for one in y]
        found["y"] = Padded([one if one.ndim == 2 else one[:, None] for one in rows], steps)
    elif y is not None:
        found["y"] = _numbered(y, own.classes)
    return found


def _numbered(y: Array, classes: Sequence[str] | None) -> Array:
    """Labels as their places in the classes, -1 for a missing one: text has as many characters for each label as the
    longest has. Labels that are whole numbers stay text, because a whole number would name them, and -1 may be one."""
    if classes is None or all(map(WHOLE.fullmatch, classes)):
        return y
    places = {name: place for place, name in enumerate(classes)}
    labels, which = np.unique(y, return_inverse=True)
    kind = np.min_scalar_type(-max(2, len(classes)))
    return np.array([places.get(label, -1) for label in labels.tolist()], kind)[which]
