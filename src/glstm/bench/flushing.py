"""The contenders again, in a second process in which subnormal numbers count as 0.

`torch.set_flush_denormal` acts on the thread that calls it. torch's worker threads take the setting over when they are
started, and keep it. So it is set before the first of them starts, and the process keeps it to its end.
"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from multiprocessing import get_context

import torch

from glstm.bench.cpu import EAGER, FLUSHING, OURS, TORCH, Case, contenders
from glstm.bench.race import Call, Contender, Elsewhere, turn

NAMES = (OURS, TORCH, EAGER)  # ONNX Runtime has threads, and a setting, of its own


class Flushing:
    """The second process. It waits while others take their turn."""

    def __enter__(self):
        self.process = ProcessPoolExecutor(1, get_context("spawn"))
        self.works = self.process.submit(torch.set_flush_denormal, True).result()
        return self

    def __exit__(self, *_):
        self.process.shutdown()

    def contenders(self, case: Case) -> dict[str, Contender]:
        """None of them where torch cannot flush on this processor."""
        return {name + FLUSHING: partial(self._contender, case, name) for name in NAMES if self.works}

    def _contender(self, case: Case, name: str, threads: int) -> Elsewhere:
        return Elsewhere(lambda seconds: self.process.submit(_turn, case, name, threads, seconds).result())


def _turn(case: Case, name: str, threads: int, seconds: float) -> list[float]:
    torch.set_num_threads(threads)
    with torch.set_grad_enabled(case.kind == "training"):
        return turn(_made(case)[name](threads), seconds)


@lru_cache(1)
def _made(case: Case) -> dict[str, Callable[[int], Call]]:
    return contenders(case)
