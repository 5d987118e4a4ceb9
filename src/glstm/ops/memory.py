"""Memory for tapes and for all outputs: large blocks that are written once and soon released.

New memory takes longer than the forward pass that fills it, because the system zeroes it page by page. numpy requests
large pages, which helps. Released blocks are reused by the next call, which helps more.
"""

import os
import threading
import weakref
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor

LINE = 16  # floats in a line of the cache
LARGE = 2**18  # from so many floats on, a block is worth reusing
MOST_IDLE = 2**29  # bytes of unused blocks, at most

_spare: list[np.ndarray] = []  # in the order in which they were released
_lock = threading.Lock()
# A tensor may be freed at any moment, also by a garbage collection that starts while this thread holds `_lock`. So a
# released block is put into this queue, which needs no lock, and the next `borrow` moves it to `_spare`.
_returned: SimpleQueue[np.ndarray] = SimpleQueue()


def borrow(floats: int) -> Tensor:
    """A tensor of so many floats, uninitialised. Its memory is released when the tensor's last user is gone."""
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
    if floats >= LARGE and memory.nbytes <= MOST_IDLE:
        weakref.finalize(loan, _returned.put, memory).atexit = False
    return torch.from_numpy(loan)


def _put_away() -> None:
    while not _returned.empty():
        _spare.append(_returned.get())
    while sum(spare.nbytes for spare in _spare) > MOST_IDLE:
        _spare.pop(0)


def release() -> None:
    """Free all unused blocks."""
    with _lock:
        _put_away()
        _spare.clear()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
