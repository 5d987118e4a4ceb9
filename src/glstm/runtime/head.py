"""The head of a deployed network: linear layers, with or without a ReLU after each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from glstm.models import DropConnect, SequenceModel, width_of
from glstm.runtime.raw import Floats, output_unit


@dataclass(frozen=True)
class DensePlan:
    """One linear layer of the head, (outputs, inputs), and whether a ReLU follows."""

    weight: Floats
    bias: Floats
    relu: bool

    @property
    def outputs(self) -> int:
        return self.weight.shape[0]


def linear_parts(model: SequenceModel) -> Sequence[nn.Linear | nn.ReLU]:
    """The head's modules in their order, without dropout, which does nothing in evaluation.

    Subclasses of the known types are refused: they may compute something else.
    """
    head, units = model.head, width_of(model.layer)
    parts = list(head) if type(head) is nn.Sequential else [head]
    parts = [part for part in parts if type(part) not in (nn.Dropout, nn.Identity)]
    known = all(type(part) in (nn.Linear, DropConnect, nn.ReLU) for part in parts)
    if not known or not parts or isinstance(parts[0], nn.ReLU):
        names = ", ".join(type(part).__name__ for part in parts) or "nothing"
        raise ValueError(f"a head is a Linear, or a Sequential of Linear and ReLU that begins with Linear, not {names}")
    given, by = units, f"the layer has {units} units"
    for part in parts:
        if isinstance(part, nn.Linear):
            if part.in_features != given:
                raise ValueError(f"the head reads {part.in_features} numbers, but {by}")
            given, by = part.out_features, f"the linear layer before gives {part.out_features}"
    return parts  # pyright: ignore[reportReturnType]


def outputs_of(model: SequenceModel) -> int:
    return [part.out_features for part in linear_parts(model) if isinstance(part, nn.Linear)][-1]


def head_plan(model: SequenceModel, unit_numbers: NDArray[np.int64]) -> tuple[DensePlan, ...]:
    """For those units of the layer that are left. A `Rescale` after the head becomes part of its last weights."""
    weights: list[np.ndarray] = []
    biases: list[np.ndarray] = []
    relus: list[bool] = []
    for part in linear_parts(model):
        if isinstance(part, nn.ReLU):
            relus[-1] = True
            continue
        weight = _exact(part.weight)
        weights.append(weight if weights else weight[:, unit_numbers])
        biases.append(np.zeros(len(weight)) if part.bias is None else _exact(part.bias))
        relus.append(False)
    if model.outputs is not None:
        unit = output_unit(model, len(biases[-1]))
        if relus[-1]:  # after a ReLU it is a linear layer of its own
            weights, biases, relus = [*weights, np.eye(len(biases[-1]))], [*biases, 0 * biases[-1]], [*relus, False]
        weights[-1] = weights[-1] * unit.scale[:, None]
        biases[-1] = biases[-1] * unit.scale + unit.mean
    return tuple(
        DensePlan(np.ascontiguousarray(weight, np.float32), bias.astype(np.float32), relu)
        for weight, bias, relu in zip(weights, biases, relus, strict=True)
    )


def _exact(tensor: Tensor) -> NDArray[np.float64]:
    return tensor.detach().cpu().double().numpy()
