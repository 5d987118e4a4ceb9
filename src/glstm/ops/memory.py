"""Memory for tapes and for all outputs: large, written once, soon given back.

New memory costs more than the forward pass that fills it, because the system hands it over zeroed, page by page.
numpy asks for large pages, which helps, and what was given back is kept for the next call, which helps more.
"""

import os
import threading
import weakref
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor

LINE = 16  # floats in a line of the cache
LARGE = 2**18  # floats whose memory is worth keeping
KEPT_AT_MOST = 2**29  # bytes that may lie idle

_spare: list[np.ndarray] = []  # the one given back last at the end
_lock = threading.Lock()
# Tensors die anywhere, also inside a garbage collection that began while `_lock` was held by this very thread: what
# comes back is left here, where that is allowed, and put away by the next who borrows.
_returned: SimpleQueue[np.ndarray] = SimpleQueue()


def borrow(floats: int) -> Tensor:
    """A tensor of so many floats, holding anything; its memory comes back by itself with the tensor's last user."""
    memory = None
    if floats >= LARGE:
        with _lock:
            _put_away()
            fitting = [n for n, spare in enumerate(_spare) if floats <= spare.size <= 2 * floats]
            memory = _spare.pop(min(fitting, key=lambda n: _spare[n].size)) if fitting else None
    if memory is None:
        memory = np.empty(floats + LINE, np.float32)
        memory = memory[-memory.ctypes.data // 4 % LINE :]  # the engine writes whole lines of the cache
    loan = memory[:floats]
    if floats >= LARGE and memory.nbytes <= KEPT_AT_MOST:
        weakref.finalize(loan, _returned.put, memory).atexit = False
    return torch.from_numpy(loan)


def _put_away() -> None:
    while not _returned.empty():
        _spare.append(_returned.get())
    while sum(spare.nbytes for spare in _spare) > KEPT_AT_MOST:
        _spare.pop(0)


def release() -> None:
    """Let go of what lies idle."""
    with _lock:
        _put_away()
        _spare.clear()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
