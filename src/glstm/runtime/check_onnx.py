"""Exported ONNX models beside PyTorch, in ONNX Runtime."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch

from glstm.models import SequenceModel

LENGTHS, BATCHES = (1, 50, 784, 2000), (1, 7)
STEPS = 50  # that the step model takes
SEED = 0


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@torch.no_grad()
def differences(model: SequenceModel, whole: onnx.ModelProto, step: onnx.ModelProto) -> dict[str, float]:
    """The largest difference from the model, by what was run: several lengths, and one step after the other."""
    draws = torch.Generator().manual_seed(SEED)
    layer, runs, found = model.layer, session(whole), {}
    for length in LENGTHS:
        worst = 0.0
        for batch in BATCHES:
            x = torch.rand(length, batch, layer.input_size, generator=draws)
            x = x.transpose(0, 1) if layer.batch_first else x
            worst = max(worst, _difference(runs.run(None, {"x": x.numpy()})[0], model(x)))
        found[f"{length} steps, batches of {' and '.join(map(str, BATCHES))}"] = worst
    found[f"{STEPS} single steps"] = max(_step_by_step(model, session(step), batch, draws) for batch in BATCHES)
    return found


def _step_by_step(model: SequenceModel, one_step, batch: int, draws: torch.Generator) -> float:
    layer = model.layer
    x = torch.rand(STEPS, batch, layer.input_size, generator=draws)
    h = c = np.zeros((layer.num_layers, batch, layer.hidden_size), np.float32)
    y = np.zeros(0)
    for number, sample in enumerate(x.numpy(), 1):
        y, h, c = one_step.run(None, {"x": sample, "t": np.array([number], np.float32), "h": h, "c": c})
    return _difference(y, model(x.transpose(0, 1) if layer.batch_first else x))


def _difference(ours: Any, expected: torch.Tensor) -> float:
    return float(np.abs(ours - expected.numpy()).max())
