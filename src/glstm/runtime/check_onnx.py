"""Compares exported ONNX models, in ONNX Runtime, with PyTorch."""

from typing import Any

import numpy as np
import torch

from glstm.errors import UserError
from glstm.extras import needed_by
from glstm.models import SequenceModel
from glstm.runtime.head import outputs_of
from glstm.runtime.raw import TOLERANCE, OutputUnit, input_plan, output_unit

with needed_by("checking ONNX"):
    import onnx
    import onnxruntime

LENGTHS, BATCHES = (1, 50, 784, 2000), (1, 7)
SEED = 0
MISSING = 0.3  # the share of missing inputs, where there may be any


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@torch.no_grad()
def differences(
    model: SequenceModel,
    whole: onnx.ModelProto,
    step: onnx.ModelProto | None,
    steps: int,
    times: torch.Tensor | None = None,
) -> dict[str, float]:
    """The differences between the graphs and the model, relative to the largest output, for several lengths and for
    `steps` single steps, if there is a graph of one. More than TOLERANCE is an error. `times` are those that were baked
    into the graphs. A graph that has times as an input gets irregular ones: once for all sequences, once for each."""
    draws = torch.Generator().manual_seed(SEED)
    asks = any(value.name == "times" for value in whole.graph.input)
    longest = max(*LENGTHS, steps)
    counted = torch.arange(1, longest + 1).double() if times is None else times.double()
    at = _irregular(model, longest, draws) if asks else counted
    runs, one_step, found = session(whole), None if step is None else session(step), {}
    unit, batches = output_unit(model, outputs_of(model)), " and ".join(map(str, BATCHES))
    for length in sorted({length for length in (*LENGTHS, steps) if length <= len(at)}):
        each = []
        for batch in BATCHES:
            x = _inputs(model, length, batch, draws)
            x = x.transpose(0, 1) if model.layer.batch_first else x
            for own in _both(model, at[:length], batch) if asks else [at[:length]]:
                given = {"x": x.numpy()} | ({"times": np.ascontiguousarray(own)} if asks else {})
                expected = model(x, times=own.expand(x.shape[:2]) if asks else own)
                each.append(_difference(runs.run(None, given)[0], expected, unit))
        found[f"{length} steps, batches of {batches}"] = float(np.max(each))
    each = []
    if one_step is not None:
        for batch in BATCHES:
            x = _inputs(model, steps, batch, draws)
            each.append(_difference(_step_by_step(one_step, x, at), _after_each_step(model, x, at), unit))
        found[f"{steps} single steps, batches of {batches}"] = float(np.max(each))
    for what, difference in found.items():
        if not difference <= TOLERANCE:
            raise UserError(f"the exported graph is off by {difference:.1e} of PyTorch's output ({what}): not written")
    return found


def _irregular(model: SequenceModel, steps: int, draws: torch.Generator) -> torch.Tensor:
    """Times (T,) with gaps of all sizes, about as dense as those of training, and from there on."""
    seen = model.layer.seen
    first, step = (1.0, 1.0) if seen is None else (seen.first, seen.step)
    gaps = torch.empty(steps, dtype=torch.float64).exponential_(generator=draws) + 1e-3
    return first + step * (gaps.cumsum(0) - gaps[0])


def _both(model: SequenceModel, times: torch.Tensor, batch: int) -> list[torch.Tensor]:
    """The times (T, 1), and (T, B) with a start for each sequence; as the model has its axes."""
    step = (times[-1] - times[0]) / len(times)
    each = [times.unsqueeze(1), times.unsqueeze(1) + step * torch.arange(batch)]
    return [one.T for one in each] if model.layer.batch_first else each


def _inputs(model: SequenceModel, length: int, batch: int, draws: torch.Generator) -> torch.Tensor:
    """(T, B, D) such as the network takes: raw numbers, and some missing, if it takes those."""
    given = input_plan(model)
    if given is None:
        return torch.rand(length, batch, model.layer.input_size, generator=draws)
    x = torch.rand(length, batch, given.size, generator=draws) * torch.from_numpy(given.scale)
    x += torch.from_numpy(given.mean)
    if given.missing != "refuse":
        x[torch.rand(x.shape, generator=draws) < MISSING] = torch.nan
    return x


def _step_by_step(one_step: onnxruntime.InferenceSession, x: torch.Tensor, times: torch.Tensor) -> np.ndarray:
    """The graph's outputs (T, B, outputs) for x (T, B, D), with its states given back at every step."""
    state = {
        value.name: np.zeros([x.shape[1] if axis == "batch" else int(axis) for axis in value.shape], np.float32)
        for value in one_step.get_inputs()
        if value.name not in ("x", "t")
    }
    outputs = []
    kinds = {value.name: value.type for value in one_step.get_inputs()}
    wide = np.float64 if kinds["t"] == "tensor(double)" else np.float32
    for sample, time in zip(x, times.tolist()):
        y, *after = one_step.run(None, {"x": sample.numpy(), "t": np.array([time], wide), **state})
        state = dict(zip(state, after, strict=True))
        outputs.append(y)
    return np.stack(outputs)


def _after_each_step(model: SequenceModel, x: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
    """What the model would say if the sequences ended there: (T, B, outputs) for x (T, B, D)."""
    x = x if model.inputs is None else model.inputs(x)
    h, _ = model.layer(x.transpose(0, 1) if model.layer.batch_first else x, times=times[: len(x)])
    h = h.transpose(0, 1) if model.layer.batch_first else h
    if model.reads == "mean":
        h = h.cumsum(0) / torch.arange(1, len(h) + 1).view(-1, 1, 1)
    elif model.reads == "max":
        h = h.cummax(0).values
    # A head that is made for (B, H) may count its axes.
    y = model.head(h) if model.reads == "every" else model.head(h.flatten(0, 1)).unflatten(0, h.shape[:2])
    return y if model.outputs is None else model.outputs(y)


def _difference(ours: Any, expected: torch.Tensor, unit: OutputUnit) -> float:
    return TOLERANCE * float((np.abs(ours - expected.numpy()) / unit.allowed(expected.numpy())).max())
