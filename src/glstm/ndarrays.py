"""numpy's arrays, and lists, where tensors are taken."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def on_device(value: Any, device: Any, dtype: torch.dtype | None = None) -> Any:
    """An array as a tensor there, of this type or its own; what is no array stays as it is."""
    return as_tensor(value).to(device, dtype) if isinstance(value, np.ndarray) else value


def as_tensor(array: np.ndarray) -> Tensor:
    """A copy: torch has no arrays of another byte order, none that run backwards, and warns if one cannot be written.
    Numbers without a sign become int64 and those of more than 64 bits float64, with which torch can compute."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind not in "biuf":
        raise TypeError(f"an array must hold real numbers, not {array.dtype}")
    wide = np.int64 if kind == "u" else np.float64 if kind == "f" and size > 8 else array.dtype.newbyteorder("=")
    return torch.from_numpy(np.array(array, dtype=wide, order="C"))


def like(value: Any, weight: Tensor) -> Any:
    """An array as a tensor of the type and device of a network's weight; what is no array stays as it is."""
    return on_device(value, weight.device, weight.dtype)


def unlisted(values: Any) -> Any:
    """A list of numbers as an array; what is no list stays as it is."""
    if not isinstance(values, list | tuple):
        return values
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError):  # of unequal lengths, or of tensors elsewhere
        raise ValueError(
            "a list must hold numbers, in rows that are equally long: pad sequences, and give lengths"
        ) from None
