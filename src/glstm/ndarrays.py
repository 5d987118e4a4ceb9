"""numpy's arrays where tensors are taken."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def on_device(value: Any, device: Any, dtype: torch.dtype | None = None) -> Any:
    """An array as a tensor there, of this type or its own; what is no array stays as it is."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind not in "biuf":
        raise TypeError(f"an array must hold real numbers, not {value.dtype}")
    # A copy, because torch warns about arrays that cannot be written.
    return torch.tensor(value, device=device, dtype=dtype)


def like(value: Any, weight: Tensor) -> Any:
    """An array as a tensor of the type and device of a network's weight; what is no array stays as it is."""
    return on_device(value, weight.device, weight.dtype)
