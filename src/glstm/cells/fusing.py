"""Element by element, in one kernel: what is between two matrix products of a step.

On a GPU an eager loop over the steps starts a kernel for every operation, and that is what it costs. `fused` compiles a
function that torch's compiler can make one kernel of, forward and backward; the trainer's captured graph then starts
all of a sequence's kernels at once. On a CPU, and where there is no Triton, the function runs as it is written. It
takes ten seconds or more to compile, so this is for what a loop calls at every step, not once for a sequence.

Of networks that torch.vmap calls together it is one kernel, too: the function is then compiled for all of them.
"""

from collections.abc import Callable
from functools import cache, wraps
from importlib.util import find_spec
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from glstm.ops.recorded import transforming
from glstm.ops.side_by_side import batched, for_all

Dims = tuple[Any, ...]  # of vmap: 0 or None for each argument; a tuple of them for a list


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of tensors, lists of tensors and numbers, as one kernel on a GPU. The first is a tensor and
    says on what device it runs."""

    @wraps(function)
    def run(first: Tensor, *others: Any) -> Any:
        if not _compiles(first):
            return function(first, *others)
        if not transforming():
            return _compiled(function)(first, *others)
        if not batched(first, *_flat(others)):
            return function(first, *others)
        return _of_all(function, (first, *others))

    return run


def _compiles(tensor: Tensor) -> bool:
    """Whether it is on a GPU, and nobody else compiles or records the call."""
    return tensor.is_cuda and find_spec("triton") is not None and not torch.compiler.is_compiling()


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, fullgraph=True, dynamic=True)


def _of_all(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """The function of arguments that torch.vmap gives to every network."""
    made: list[Any] = []

    def run(size: int, shared: list[bool], *values: Any) -> list[Tensor]:
        dims = _nested([None if same else 0 for same in shared], arguments)
        found = _compiled_for_all(function, tuple(tuple(dim) if isinstance(dim, list) else dim for dim in dims))(
            *_nested(values, arguments)
        )
        made.append(found)
        return _flat(found if isinstance(found, tuple) else (found,))

    values = for_all(run, *_flat(arguments))
    (found,) = made
    return tuple(_nested(values, found)) if isinstance(found, tuple) else values[0]


@cache
def _compiled_for_all(function: Callable[..., Any], dims: Dims) -> Callable[..., Any]:
    in_dims = tuple(list(dim) if isinstance(dim, tuple) else dim for dim in dims)

    def each(*arguments: Any) -> Any:
        return torch.vmap(function, in_dims)(*arguments)

    # With code of its own: torch counts how often it has compiled a piece of code, and gives up after some times.
    own = FunctionType(each.__code__.replace(co_name=function.__name__), globals(), None, None, each.__closure__)
    return torch.compile(own, fullgraph=True, dynamic=True)


def _flat(values: Any) -> list[Any]:
    return [one for value in values for one in (value if isinstance(value, list) else [value])]


def _nested(values: Any, like: Any) -> list[Any]:
    """Values as `_flat` has made them, in lists as long as before."""
    left = iter(values)
    return [[next(left) for _ in one] if isinstance(one, list) else next(left) for one in like]
