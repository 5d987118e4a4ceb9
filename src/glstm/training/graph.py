"""A training step as one CUDA graph: the host makes one launch, and the device does the rest."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

WARM_UP = 3  # runs before a capture; torch's own figure


def captured(step: Callable[[], None], state: Sequence[Tensor]) -> Callable[[], None]:
    """`step` as a graph. `state` is every tensor that a step changes; their values are restored before this returns.

    A step must use the same memory every time, and must not wait for a value from the device.
    """
    before = [tensor.detach().clone() for tensor in state]

    @torch.no_grad()
    def undo() -> None:
        for tensor, value in zip(state, before, strict=True):
            tensor.copy_(value)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(before[0].device):
        side, here = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):  # libraries get ready, kernels are compiled: a capture allows neither
            for number in range(WARM_UP):
                try:
                    with _no_waiting() if number else nullcontext():
                        step()
                finally:
                    undo()  # after every run: the next step might be past the last batch
        here.wait_stream(side)
        with torch.cuda.graph(graph):
            step()
    return graph.replay


@contextmanager
def _no_waiting() -> Iterator[None]:
    """A step that waits for the device raises a RuntimeError here. In a capture it would, too, but there it would leave
    torch's random generator unusable."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode")
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)
