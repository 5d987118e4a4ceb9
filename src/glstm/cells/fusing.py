"""Element by element, in one kernel: what is between two matrix products of a step.

On a GPU an eager loop over the steps starts a kernel for every operation, and that is what it costs. `fused` compiles a
function that torch's compiler can make one kernel of, forward and backward; the trainer's captured graph then starts
all of a sequence's kernels at once. On a CPU, and where there is no Triton, the function runs as it is written. It
takes ten seconds or more to compile, so this is for what a loop calls at every step, not once for a sequence.
"""

from collections.abc import Callable
from functools import cache, wraps
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from glstm.ops.recorded import transforming


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of tensors, the first of which says on what device it runs."""

    @wraps(function)
    def run(first: Tensor, *others: Any) -> Any:
        return (_compiled(function) if _worth_it(first) else function)(first, *others)

    return run


def _worth_it(tensor: Tensor) -> bool:
    """Whether it is on a GPU, and nobody else compiles, records or batches the call."""
    on_gpu = tensor.is_cuda and find_spec("triton") is not None
    return on_gpu and not torch.compiler.is_compiling() and not transforming()


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, fullgraph=True, dynamic=True)
