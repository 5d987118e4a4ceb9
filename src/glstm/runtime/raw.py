"""Raw numbers in a deployed network: how its inputs are standardised, and in which unit its outputs are.

The mean of an input is subtracted from it before anything else. Were it part of the layer's bias, a large mean would
cost the last digits of all sums. The unit of the outputs is part of the head's last weights: that costs no digit.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glstm.errors import UserError
from glstm.models import SequenceModel
from glstm.scaling import Rescale, Standardize

TOLERANCE = 1e-5  # of the largest output, in the unit that the head was trained in
ROUNDING = 4 * float(np.finfo(np.float32).eps)  # of the output itself, which may be far from 0

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class InputPlan:
    """(x - mean) / scale, and what becomes of a NaN: see `Standardize`."""

    mean: Floats
    scale: Floats
    missing: str

    @property
    def size(self) -> int:
        """Numbers in a raw sample."""
        return len(self.mean)

    def module(self) -> Standardize:
        """The same in torch, for whole sequences."""
        made = Standardize(self.size, self.missing)
        made.mean, made.scale = torch.from_numpy(self.mean), torch.from_numpy(self.scale)
        return made


def input_plan(model: SequenceModel) -> InputPlan | None:
    inputs, reads = model.inputs, model.layer.input_size
    if inputs is None:
        return None
    if type(inputs) is not Standardize:
        raise UserError(f"the inputs of a network that is deployed go through a Standardize, not {_named(inputs)}")
    if inputs.outputs != reads:
        raise UserError(f"{inputs} gives {inputs.outputs} numbers, but the layer has {reads} inputs")
    return InputPlan(floats(inputs.mean), floats(inputs.scale), inputs.missing)


@dataclass(frozen=True)
class OutputUnit:
    """A head's output y stands for y * scale + mean."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    def allowed(self, y: np.ndarray) -> NDArray[np.float64]:
        """How far an output (..., outputs) in float32 may be from y, each of `outputs` in its own unit."""
        y = y.reshape(-1, y.shape[-1]).astype(np.float64)
        scale = np.where(self.scale == 0, 1, np.abs(self.scale))
        largest = max(1.0, float((np.abs(y - self.mean) / scale).max(initial=0.0)))
        rounding = 0 if not self.mean.any() else ROUNDING * np.abs(y).max(0, initial=0.0)
        return TOLERANCE * largest * scale + rounding


def output_unit(model: SequenceModel, outputs: int) -> OutputUnit:
    """Of a head with so many outputs. Checks that their unit and their names fit."""
    unit, names = model.outputs, model.classes
    if unit is not None and type(unit) is not Rescale:
        raise UserError(f"the outputs of a network that is deployed go through a Rescale, not {_named(unit)}")
    if unit is not None and unit.size != outputs:
        raise UserError(f"{unit} is for {unit.size} outputs, but the head has {outputs}")
    if names is not None and len(names) != outputs:
        raise UserError(f"the network has {len(names)} names of classes, but the head has {outputs} outputs")
    if unit is None:
        return OutputUnit(np.zeros(outputs), np.ones(outputs))
    return OutputUnit(*(value.detach().cpu().double().numpy() for value in (unit.mean, unit.scale)))


def floats(tensor: Tensor) -> Floats:
    """A copy, so that later changes of the model do not change the plan."""
    return tensor.float().numpy(force=True).copy()


def _named(module: object) -> str:
    return f"a {type(module).__name__}"
