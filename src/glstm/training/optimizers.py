"""SGD, RMSProp and Adam over all values of all networks at once: torch.optim's rules on one tensor (M, P).

Rates are a tensor of the same shape, so that each value of each network has its own; `count` is a 0-dim tensor, the
number of this update from 1 on. Nothing here waits for a value from the device, so a step can be a CUDA graph.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

EPSILON = 1e-8


class Optimizer(ABC):
    """`state` holds all its tensors, one row per network."""

    state: dict[str, Tensor]

    @abstractmethod
    def step(self, values: Tensor, gradient: Tensor, rates: Tensor, count: Tensor) -> None: ...


class SGD(Optimizer):
    def __init__(self):
        self.state = {}

    def step(self, values: Tensor, gradient: Tensor, rates: Tensor, count: Tensor) -> None:
        values.addcmul_(rates, gradient, value=-1)


class RMSProp(Optimizer):
    """`decay` (M, 1)."""

    def __init__(self, values: Tensor, decay: Tensor):
        self.decay = decay
        self.state = {"square": torch.zeros_like(values)}

    def step(self, values: Tensor, gradient: Tensor, rates: Tensor, count: Tensor) -> None:
        square = self.state["square"]
        square.mul_(self.decay).addcmul_(gradient, gradient * (1 - self.decay))
        values.addcmul_(rates, gradient / root(square).add_(EPSILON), value=-1)


class Adam(Optimizer):
    MEAN, SQUARE = 0.9, 0.999

    def __init__(self, values: Tensor):
        self.state = {"mean": torch.zeros_like(values), "square": torch.zeros_like(values)}

    def step(self, values: Tensor, gradient: Tensor, rates: Tensor, count: Tensor) -> None:
        mean, square = self.state["mean"], self.state["square"]
        mean.lerp_(gradient, 1 - self.MEAN)
        square.mul_(self.SQUARE).addcmul_(gradient, gradient, value=1 - self.SQUARE)
        # Both averages start at 0 and are too small at first, by these factors.
        of_mean, of_square = (1 - decay ** count.double() for decay in (self.MEAN, self.SQUARE))
        scale = root(square).div_(of_square.sqrt()).add_(EPSILON)
        values.addcmul_(rates, (mean / of_mean).div_(scale), value=-1)


def root(square: Tensor) -> Tensor:
    """A square root to which `EPSILON` will be added, never of a subnormal number.

    The averages of a unit that never opens fade to subnormal numbers, and then to 0. A CPU takes thirty times as long
    for their roots, more than for all the rest of an update. Here they count as the least normal number, whose root,
    1e-19 in float32, is too small to change a sum with `EPSILON`.
    """
    return square.clamp(min=torch.finfo(square.dtype).tiny).sqrt_()


# Each is made of the values it will move (M, P) and the networks' decays (M, 1).
OPTIMIZERS: dict[str, Callable[[Tensor, Tensor], Optimizer]] = {
    "adam": lambda values, _: Adam(values),
    "rmsprop": RMSProp,
    "sgd": lambda values, _: SGD(),
}
