"""Out of torch.vmap for a while: a function of all networks' tensors at once, where one network's would be given.

torch.vmap turns each operator into one for all networks. Where something better is known, such as one product for all
of them, a kernel of this project, or one that torch's compiler makes, it is called here with the tensors themselves.
Autograd records what it does as it would without vmap.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as transforming
from torch._C._functorch import get_unwrapped, is_batchedtensor, maybe_get_bdim

Run = Callable[..., Sequence[Tensor]]


def batched(*values: Any) -> bool:
    """Whether torch.vmap gives one of these values to every network."""
    return transforming() and any(isinstance(value, Tensor) and is_batchedtensor(value) for value in values)


def for_all(run: Run, *values: Any) -> tuple[Tensor, ...]:
    """run(size, shared, *values) of all `size` networks: each tensor has them as its first axis, but those that are the
    same for all, of which `shared` is True. Its results, which all have that axis, are each network's again."""
    return _ForAll.apply(run, *values)  # pyright: ignore[reportReturnType]


def of_all(value: Tensor) -> Tensor:
    """All networks' values, along a first axis, of one network's; without torch.vmap, the value itself."""
    if not batched(value):
        return value
    return get_unwrapped(value).movedim(maybe_get_bdim(value), 0)


def spread(size: int, shared: Sequence[bool], values: Sequence[Tensor]) -> list[Tensor]:
    """With the networks' axis also where the values are shared."""
    return [value.expand(size, *value.shape) if same else value for same, value in zip(shared, values, strict=True)]


class _ForAll(torch.autograd.Function):
    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, ...]:
        raise RuntimeError("what is for many networks was called without any")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Any, run: Run, *values: Any):  # pyright: ignore[reportIncompatibleMethodOverride]
        if transforming():
            raise RuntimeError("this cell can be called by one torch.vmap, but not by one within another transform")
        dims = in_dims[1:]
        led = [value if dim is None else value.movedim(dim, 0) for value, dim in zip(values, dims, strict=True)]
        found = tuple(run(info.batch_size, [dim is None for dim in dims], *led))
        return found, (0,) * len(found)
