"""Compares exported ONNX models, in ONNX Runtime, with PyTorch."""

from typing import Any

import numpy as np
import torch

from glstm.errors import UserError
from glstm.extras import needed_by
from glstm.models import SequenceModel

with needed_by("checking ONNX"):
    import onnx
    import onnxruntime

LENGTHS, BATCHES = (1, 50, 784, 2000), (1, 7)
TOLERANCE = 1e-5  # of the largest output
SEED = 0


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@torch.no_grad()
def differences(model: SequenceModel, whole: onnx.ModelProto, step: onnx.ModelProto, steps: int) -> dict[str, float]:
    """The differences between the graphs and the model, relative to the largest output, for several lengths and for
    `steps` single steps. More than TOLERANCE is an error."""
    draws = torch.Generator().manual_seed(SEED)
    layer, runs, one_step, found = model.layer, session(whole), session(step), {}
    batches = " and ".join(map(str, BATCHES))

    def inputs(length: int, batch: int) -> torch.Tensor:
        return torch.rand(length, batch, layer.input_size, generator=draws)

    for length in (*LENGTHS, *([] if steps in LENGTHS else [steps])):
        each = []
        for batch in BATCHES:
            x = inputs(length, batch)
            x = x.transpose(0, 1) if layer.batch_first else x
            each.append(_difference(runs.run(None, {"x": x.numpy()})[0], model(x)))
        found[f"{length} steps, batches of {batches}"] = float(np.max(each))
    each = [_step_by_step(model, one_step, inputs(steps, batch)) for batch in BATCHES]
    found[f"{steps} single steps, batches of {batches}"] = float(np.max(each))
    for what, difference in found.items():
        if not difference <= TOLERANCE:
            raise UserError(f"the exported graph is off by {difference:.1e} of PyTorch's output ({what}): not written")
    return found


def _step_by_step(model: SequenceModel, one_step: onnxruntime.InferenceSession, x: torch.Tensor) -> float:
    """The largest difference, at any of the steps."""
    layer, each = model.layer, []
    h = c = np.zeros((layer.num_layers, x.shape[1], layer.hidden_size), np.float32)
    state = None
    for number, sample in enumerate(x, 1):
        time = torch.tensor([float(number)])
        y, h, c = one_step.run(None, {"x": sample.numpy(), "t": time.numpy(), "h": h, "c": c})
        given = sample.unsqueeze(1 if layer.batch_first else 0)
        _, state = layer(given, state, time, sequence=False)
        each.append(_difference(y, model.head(state[0][-1])))
    return float(np.max(each))


def _difference(ours: Any, expected: torch.Tensor) -> float:
    scale = max(1.0, float(expected.abs().max()))
    return float(np.abs(ours - expected.numpy()).max()) / scale
