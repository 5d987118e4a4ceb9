"""The head of a deployed network: linear layers, and the usual functions before, between and after them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from glstm.errors import UserError
from glstm.models import DropConnect, SequenceModel, width_of
from glstm.runtime.raw import Floats, floats, output_unit

# Functions of one row of numbers, numbered as in native/head.h.
ACTIVATIONS = (
    "nothing", "relu", "leaky_relu", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh", "softmax", "log_softmax",
    "layer_norm",
)  # fmt: skip
KNOWN = "Linear, ReLU, LeakyReLU, Sigmoid, Tanh, SiLU, GELU, Softmax, LogSoftmax, LayerNorm, Dropout and Identity"


@dataclass(frozen=True, eq=False)
class Activation:
    """A function of a row of numbers. `number`: a LeakyReLU's slope, or what a LayerNorm adds to the variance."""

    kind: str
    number: float = 0.0
    gain: Floats | None = None  # of a LayerNorm, and so is `shift`
    shift: Floats | None = None

    @property
    def constants(self) -> list[np.ndarray]:
        return [array for array in (self.gain, self.shift) if array is not None]

    def module(self) -> nn.Module:
        """The same in torch."""
        if self.kind == "layer_norm":
            assert self.gain is not None
            assert self.shift is not None
            made = nn.LayerNorm(len(self.gain), self.number, device="meta")  # draws nothing
            made.weight, made.bias = (nn.Parameter(torch.from_numpy(one.copy())) for one in (self.gain, self.shift))
            return made
        return MODULES[self.kind](self.number)


MODULES: dict[str, Callable[[float], nn.Module]] = {
    "relu": lambda _: nn.ReLU(),
    "leaky_relu": nn.LeakyReLU,
    "sigmoid": lambda _: nn.Sigmoid(),
    "tanh": lambda _: nn.Tanh(),
    "silu": lambda _: nn.SiLU(),
    "gelu": lambda _: nn.GELU(),
    "gelu_tanh": lambda _: nn.GELU("tanh"),
    "softmax": lambda _: nn.Softmax(-1),
    "log_softmax": lambda _: nn.LogSoftmax(-1),
}
PLAIN: dict[type, str] = {nn.ReLU: "relu", nn.Sigmoid: "sigmoid", nn.Tanh: "tanh", nn.SiLU: "silu"}


@dataclass(frozen=True, eq=False)
class DensePlan:
    """One linear layer of the head, (outputs, inputs), and what follows before the next one."""

    weight: Floats
    bias: Floats
    then: tuple[Activation, ...]

    @property
    def outputs(self) -> int:
        return self.weight.shape[0]


@dataclass(frozen=True, eq=False)
class Opening:
    """What a head does before its first linear layer. It reads all units, also those that never open and are left out
    elsewhere, because what it makes of their zeros may be something."""

    places: NDArray[np.uint16]  # of the units that are left
    outputs: int
    then: tuple[Activation, ...]


@dataclass(frozen=True, eq=False)
class HeadPlan:
    opening: Opening | None  # None: it begins with a linear layer
    dense: tuple[DensePlan, ...]

    @property
    def outputs(self) -> int:
        last = self.dense[-1] if self.dense else self.opening
        assert last is not None
        return last.outputs

    @property
    def activations(self) -> list[Activation]:
        parts = (self.opening, *self.dense)
        return [one for part in parts if part is not None for one in part.then]

    @property
    def is_plain(self) -> bool:
        """Whether it is made of linear layers alone, with at most a ReLU after each."""
        return self.opening is None and all([one.kind for one in part.then] in ([], ["relu"]) for part in self.dense)

    @property
    def constants(self) -> list[np.ndarray]:
        """The arrays that it reads while it runs."""
        arrays = [] if self.opening is None else [self.opening.places]
        arrays += [array for one in self.dense for array in (one.weight, one.bias)]
        return [*arrays, *(array for one in self.activations for array in one.constants)]

    def stages(self, inputs: int) -> "Iterator[Stage]":
        """As native/stream.h computes it, from so many numbers: one stage after the other."""
        if self.opening is not None:
            yield from _with_all(Stage(inputs, self.opening.outputs, places=self.opening.places), self.opening.then)
        for number, dense in enumerate(self.dense):
            yield from _with_all(Stage(dense.weight.shape[1], dense.outputs, dense=number), dense.then)

    def runs(self) -> "list[Callable[[Tensor], Tensor]]":
        """The same in torch, for rows (N, units): a function for the opening, if there is one, and for each dense
        layer with what follows it."""
        found: list[Callable[[Tensor], Tensor]] = []
        if self.opening is not None:
            found.append(_spread(self.opening))
        found += [_linear(dense) for dense in self.dense]
        return found


@dataclass(frozen=True, eq=False)
class Stage:
    """Weights, or none and the numbers as they are, each in its place if there are places; then one function."""

    inputs: int
    outputs: int
    dense: int | None = None  # the number of the linear layer whose weights these are
    places: NDArray[np.uint16] | None = None
    then: Activation = Activation("nothing")


def _with_all(stage: Stage, then: Sequence[Activation]) -> Iterator[Stage]:
    """One function a stage; the stages after the first have no weights."""
    first = then[0] if then else Activation("nothing")
    yield Stage(stage.inputs, stage.outputs, stage.dense, stage.places, first)
    yield from (Stage(stage.outputs, stage.outputs, then=one) for one in then[1:])


def _followed(run: Callable[[Tensor], Tensor], then: Sequence[Activation]) -> Callable[[Tensor], Tensor]:
    if not then:
        return run
    functions = [torch.relu if one.kind == "relu" else one.module().requires_grad_(False) for one in then]

    def followed(h: Tensor) -> Tensor:
        h = run(h)
        for function in functions:
            h = function(h)
        return h

    return followed


def _spread(opening: Opening) -> Callable[[Tensor], Tensor]:
    places = torch.from_numpy(opening.places.astype(np.int64))

    def spread(h: Tensor) -> Tensor:
        return h.new_zeros(len(h), opening.outputs).index_copy_(1, places, h)

    return _followed(spread, opening.then)


def _linear(dense: DensePlan) -> Callable[[Tensor], Tensor]:
    weight, bias = torch.from_numpy(dense.weight).T, torch.from_numpy(dense.bias)
    return _followed(lambda h: torch.addmm(bias, h, weight), dense.then)


def head_parts(model: SequenceModel) -> list[nn.Linear | Activation]:
    """What the head does, in order, without dropout, which does nothing in evaluation.

    Subclasses of the known types are refused: they may compute something else.
    """
    units = width_of(model.layer)
    given, by = units, f"the layer has {units} units"
    found: list[nn.Linear | Activation] = []
    modules = list(_flat(model.head))
    for part in modules:
        if isinstance(part, nn.Linear) and type(part) in (nn.Linear, DropConnect):
            if part.in_features != given:
                raise UserError(f"the head reads {part.in_features} numbers, but {by}")
            given, by = part.out_features, f"the linear layer before gives {part.out_features}"
            found.append(part)
        elif not _does_nothing(part, model.reads):
            found.append(_activation(part, given, by, model.reads))
    return found


def _flat(head: nn.Module) -> Iterator[nn.Module]:
    if type(head) is not nn.Sequential:
        yield head
        return
    for part in head:
        yield from _flat(part)


def _does_nothing(part: nn.Module, reads: str) -> bool:
    if type(part) is nn.Flatten:  # of rows of numbers
        return part.end_dim == -1 and (part.start_dim == -1 or (part.start_dim == 1 and reads != "every"))
    return type(part) in (nn.Dropout, nn.Identity)


def _activation(part: nn.Module, width: int, by: str, reads: str) -> Activation:
    kind = type(part)
    if kind in PLAIN:
        return Activation(PLAIN[kind])
    if isinstance(part, nn.GELU) and kind is nn.GELU:
        return Activation("gelu_tanh" if part.approximate == "tanh" else "gelu")
    if isinstance(part, nn.LeakyReLU) and kind is nn.LeakyReLU:
        return Activation("leaky_relu", part.negative_slope)
    if isinstance(part, nn.Softmax | nn.LogSoftmax) and kind in (nn.Softmax, nn.LogSoftmax):
        if part.dim not in (-1, 2 if reads == "every" else 1):
            raise UserError(f"a {kind.__name__} of a head is over its outputs, dim=-1, not over dim={part.dim}")
        return Activation("softmax" if kind is nn.Softmax else "log_softmax")
    if isinstance(part, nn.LayerNorm) and kind is nn.LayerNorm:
        if tuple(part.normalized_shape) != (width,):
            shape = ", ".join(map(str, part.normalized_shape))
            raise UserError(f"the head's LayerNorm is of {shape} numbers, but {by}")
        ones, zeros = np.ones(width, np.float32), np.zeros(width, np.float32)
        gain, shift = (None if one is None else floats(one) for one in (part.weight, part.bias))
        return Activation("layer_norm", part.eps, ones if gain is None else gain, zeros if shift is None else shift)
    raise UserError(f"a head is made of {KNOWN}, alone or in a Sequential, not of {kind.__name__}")


def outputs_of(model: SequenceModel) -> int:
    linear = [part.out_features for part in head_parts(model) if isinstance(part, nn.Linear)]
    return linear[-1] if linear else width_of(model.layer)


def head_plan(model: SequenceModel, unit_numbers: NDArray[np.int64]) -> HeadPlan:
    """For those units of the layer that are left. A `Rescale` after the head becomes part of its last weights."""
    weights: list[Any] = []  # (weight, bias), or () for what comes before the first linear layer
    then: list[list[Activation]] = []
    width = width_of(model.layer)
    for part in head_parts(model) or [Activation("nothing")]:
        if isinstance(part, nn.Linear):
            weight = _exact(part.weight)
            weight = weight if weights else weight[:, unit_numbers]
            weights.append((weight, np.zeros(len(weight)) if part.bias is None else _exact(part.bias)))
            then.append([])
            width = len(weight)
            continue
        if not weights:
            weights.append(())
            then.append([])
        if part.kind != "nothing":
            then[-1].append(part)
    if model.outputs is not None:
        unit = output_unit(model, width)
        if then[-1] or not weights[-1]:  # after a function it is a linear layer of its own
            weights.append((np.eye(width), np.zeros(width)))
            then.append([])
        weight, bias = weights[-1]
        weights[-1] = weight * unit.scale[:, None], bias * unit.scale + unit.mean
    opening = None
    if not weights[0]:
        opening = Opening(unit_numbers.astype(np.uint16), width_of(model.layer), tuple(then[0]))
        weights, then = weights[1:], then[1:]
    dense = (
        DensePlan(np.ascontiguousarray(weight, np.float32), bias.astype(np.float32), tuple(functions))
        for (weight, bias), functions in zip(weights, then, strict=True)
    )
    return HeadPlan(opening, tuple(dense))


def _exact(tensor: Tensor) -> NDArray[np.float64]:
    return tensor.double().numpy(force=True)
