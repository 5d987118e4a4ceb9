"""Memory for tapes and for all outputs: large, written once, soon given back.

New memory costs more than the forward pass that fills it, because the system hands it over zeroed, page by page.
numpy asks for large pages, which helps, and what was given back is kept for the next call, which helps more.
"""

import threading
import weakref

import numpy as np
import torch
from torch import Tensor

LINE = 16  # floats in a line of the cache
KEPT_AT_MOST = 2**29  # bytes that may lie idle

_spare: list[np.ndarray] = []  # the one given back last at the end
_lock = threading.Lock()


def borrow(floats: int) -> Tensor:
    """A tensor of so many floats, holding anything; its memory comes back by itself with the tensor's last user."""
    with _lock:
        fitting = [n for n, memory in enumerate(_spare) if floats <= memory.size <= 2 * floats + LINE]
        memory = _spare.pop(min(fitting, key=lambda n: _spare[n].size)) if fitting else None
    if memory is None:
        memory = np.empty(floats + LINE, np.float32)
        memory = memory[-memory.ctypes.data // 4 % LINE :]  # the engine writes whole lines of the cache
    loan = memory[:floats]
    weakref.finalize(loan, _take_back, memory).atexit = False
    return torch.from_numpy(loan)


def _take_back(memory: np.ndarray) -> None:
    with _lock:
        _spare.append(memory)
        while sum(spare.nbytes for spare in _spare) > KEPT_AT_MOST:
            _spare.pop(0)


def release() -> None:
    """Let go of what lies idle."""
    with _lock:
        _spare.clear()
