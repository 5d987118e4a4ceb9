"""Arrays as text in a page: deflated, in base64."""

import base64
import zlib
from typing import Any

import numpy as np

TYPES = {np.dtype(kind): kind for kind in ("u1", "i4", "f4", "f8")}  # as bytes.js knows them


def pack(array: np.ndarray) -> dict[str, Any]:
    array = np.ascontiguousarray(array)
    kind = TYPES[array.dtype]
    packed = zlib.compress(array.astype(f"<{kind}").tobytes(), 6)
    return {"type": kind, "shape": list(array.shape), "data": base64.b64encode(packed).decode()}


def pack_levels(rows: np.ndarray) -> dict[str, Any]:
    """A table of levels (units, steps) as differences from step to step, most of which are 0: a hundredth of it."""
    changes = rows.copy()
    changes[:, 1:] -= rows[:, :-1]
    return pack(changes) | {"rows": "differences"}
