"""A training step as one CUDA graph: the host says 'go', and the device does the rest by itself."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

WARM_UP = 3  # runs before a capture; torch's own figure


def captured(step: Callable[[], None], state: Sequence[Tensor]) -> Callable[[], None]:
    """`step` as a graph. `state` is every tensor that a step changes: it is as before when this returns.

    A step reads and writes tensors that stay where they are, and asks the device for nothing.
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
            for _ in range(WARM_UP):
                step()
                undo()  # at once: a step further might be one too many
        here.wait_stream(side)
        with torch.cuda.graph(graph):
            step()
    return graph.replay
