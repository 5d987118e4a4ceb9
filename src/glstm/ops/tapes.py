"""Memory for tapes: large, written once, soon given back.

New memory costs more than the forward pass that fills it, because the system hands it over zeroed, page by page.
numpy asks for large pages, which helps, and one tape that was given back is kept for the next call, which helps more.
"""

import threading
import weakref

import numpy as np
import torch
from torch import Tensor

LINE = 16  # floats in a line of the cache
KEPT_AT_MOST = 2**29  # bytes that may lie idle

_spare: list[np.ndarray] = []
_lock = threading.Lock()


def borrow(floats: int) -> Tensor:
    """A tensor of so many floats, holding anything; its memory comes back by itself with the tensor's last user."""
    with _lock:
        memory = _spare.pop() if _spare and floats <= _spare[0].size else None
    if memory is None:
        memory = np.empty(floats + LINE, np.float32)
        memory = memory[-memory.ctypes.data // 4 % LINE :]  # the engine writes whole lines of the cache
    loan = memory[:floats]
    weakref.finalize(loan, _take_back, memory).atexit = False
    return torch.from_numpy(loan)


def _take_back(memory: np.ndarray) -> None:
    if memory.nbytes > KEPT_AT_MOST:
        return
    with _lock:
        if not _spare or _spare[0].size < memory.size:
            _spare[:] = [memory]


def release() -> None:
    """Let go of what lies idle."""
    with _lock:
        _spare.clear()
