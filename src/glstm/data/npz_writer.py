"""The parts of a task as an .npz file that `read_npz` reads back exactly."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from glstm.data.sequences import Sequences

Array = np.ndarray


def npz_bytes(parts: Mapping[str, Sequences]) -> bytes:
    """A file with the parts, all of one kind, as a task has them; not compressed."""
    arrays = {f"{name}_{part}": array for part, own in parts.items() for name, array in _arrays(own).items()}
    first = next(iter(parts.values()))
    for name in ("classes", "channels", "targets"):
        names = getattr(first, name)
        if names and len(set(names)) == len(names) and "" not in names:  # others could not be read again
            arrays[name] = np.array(names, np.str_)
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def npz_size(parts: Mapping[str, Sequences]) -> int:
    """About how many bytes that will be: inputs, padded to the longest sequence of a part."""
    return sum(8 * len(own) * _steps(own) * own.x[0].shape[1] for own in parts.values())


def _steps(own: Sequences) -> int:
    """Steps to pad to. K values of a sequence are not told from those of K steps, so there is one step more then."""
    steps = max(len(one) for one in own.x)
    values = own.y.shape[1:] if isinstance(own.y, np.ndarray) else ()
    return steps + 1 if values == (steps,) else steps


def _arrays(own: Sequences) -> dict[str, Array]:
    steps = _steps(own)
    found = {"x": _padded(own.x, steps), "lengths": np.array([len(one) for one in own.x])}
    if own.times is not None:
        found["times"] = _padded(own.times, steps)
    y: Any = own.y
    if isinstance(y, list):  # with an axis for values also where there is one: it says that there is one for each step
        y = _padded([one if one.ndim == 2 else one[:, None] for one in y], steps)
    if y is not None:
        found["y"] = y
    return found


def _padded(each: list[Array], steps: int) -> Array:
    whole = np.zeros((len(each), steps, *each[0].shape[1:]), np.result_type(*each))
    for row, one in zip(whole, each, strict=True):
        row[: len(one)] = one
    return whole
