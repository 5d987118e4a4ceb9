"""A network's answers for sequences of any lengths, and files of them."""

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from glstm.data.collect import as_sequences
from glstm.data.padding import batches_of
from glstm.data.parsing import counted
from glstm.data.sequences import Sequences
from glstm.data.split import cut_windows
from glstm.data.task import Batch
from glstm.errors import UserError
from glstm.gated import GatedLSTM
from glstm.models import SequenceModel, ends_in_softmax
from glstm.storage import write_atomically


@dataclass(frozen=True)
class Answers:
    """What `answers` returns: of each sequence outputs (K,), or (T_n, K) if the network answers at each step. With
    `classes` they are probabilities.
    """

    sequences: Sequences
    outputs: list[np.ndarray]
    per_step: bool
    classes: tuple[str, ...] | None


def as_trained(sequences: Sequences, how: dict[str, Any], what: str) -> Sequences:
    """Sequences called `what`, read as those of a task were; `how` is `task.reading()`."""
    if "inputs" in how:
        _require_inputs(sequences, how["inputs"], what)
    if how["timed"] != (sequences.times is not None):
        raise UserError(
            f"{what} has {'no ' * how['timed']}times, and the network was trained with{'out' * (not how['timed'])} them"
        )
    if how["timed"] and how.get("time_unit") != sequences.time_unit:
        units = [unit or "plain numbers" for unit in (sequences.time_unit, how.get("time_unit"))]
        raise UserError(f"the times of {what} are {units[0]}, and those of the training data were {units[1]}")
    sequences = replace(sequences, y=None, classes=None)  # answers are for all, whatever is known
    if how["window"]:
        sequences = cut_windows(sequences, how["window"])
    return sequences.from_start() if how["from_start"] else sequences


def _require_inputs(sequences: Sequences, inputs: int, what: str) -> None:
    if sequences.x[0].shape[1] != inputs:
        raise UserError(f"{what} has {counted(sequences.x[0].shape[1], 'input')}, and the network {inputs}")


def _check_times(sequences: Sequences, layer: nn.Module) -> None:
    seen = layer.seen if isinstance(layer, GatedLSTM) and layer.gate.names else None
    if seen is not None and not seen.counted and sequences.times is None:
        raise UserError(
            f"x has no times, and the network was trained at times from {seen.in_words}: give the times of the steps "
            "as times="
        )
    if isinstance(layer, GatedLSTM):
        layer.warn_of_new_times(sequences.times or (), stacklevel=5)  # the caller of `answers`, which is wrapped


@torch.no_grad()
def answers(
    model: nn.Module,
    x: Any,
    *,
    times: Any = None,
    lengths: Any = None,
    batch: int = 500,
    on_batch: Callable[[int], object] = lambda count: None,
) -> Answers:
    """The network, in evaluation mode, on all sequences: `glstm predict` in Python.

    Args:
        model: A trained network.
        x: (N, T, D), or a list of arrays (T_n, D), as `Task.from_arrays` takes them; or `Sequences`.
        times: As the network's own: of a task with `from_start` or `window` they count from each start.
        lengths: (N,), if x is padded.
        batch: How many sequences are computed at once.
        on_batch: Called after each batch with the number of its sequences.
    """
    if not isinstance(model, SequenceModel):
        raise UserError(
            f"predictions are made by a SequenceModel, a layer and its head, not by a {type(model).__name__}"
        )
    sequences = as_sequences(x, times=times, lengths=lengths)
    inputs = model.inputs
    width = getattr(model.layer, "input_size", None) if inputs is None else getattr(inputs, "size", None)
    if width is not None:
        _require_inputs(sequences, width, "x")
    _check_times(sequences, model.layer)
    if getattr(inputs, "missing", "refuse") == "refuse":
        for number, one in enumerate(sequences.x):
            if np.isnan(one).any():
                raise UserError(
                    f"{sequences.named(number)} has a missing value, NaN, and the network was trained without any: "
                    'train it with missing="carry" (--missing carry)'
                )
    value = next(model.parameters())
    per_step = model.reads == "every"
    found: list[np.ndarray] = []
    for own in batches_of(sequences, batch, value.device):
        outputs = _outputs(model, own, value.dtype).cpu().double()
        outputs = (outputs.softmax(-1) if model.classes and not ends_in_softmax(model) else outputs).numpy()
        steps = [len(own.x)] * own.size if own.lengths is None else own.lengths.tolist()
        if per_step:
            found += [outputs[:length, place] for place, length in enumerate(steps)]
        else:
            found += list(outputs)
        on_batch(own.size)
    return Answers(sequences, found, per_step, model.classes)


def _outputs(model: SequenceModel, own: Batch, dtype: torch.dtype) -> torch.Tensor:
    """(B, K), or (T, B, K), whatever layout the layer has."""
    if not getattr(model.layer, "batch_first", False):
        return model(own.x.to(dtype), **own.arguments())
    times = own.times if own.times is None or own.times.dim() == 1 else own.times.T
    outputs = model(own.x.to(dtype).transpose(0, 1), times, own.lengths)
    return outputs.transpose(0, 1) if outputs.dim() == 3 else outputs


def write_csv(path: Path | str, answers: Answers) -> None:
    """A row a sequence, or a row a step."""
    sequences, classes = answers.sequences, answers.classes
    width = answers.outputs[0].shape[-1]
    values = sequences.targets if sequences.targets and len(sequences.targets) == width else None
    names = values or tuple("prediction" if width == 1 else f"prediction_{number + 1}" for number in range(width))
    heads = ["sequence", *(("step", "time") if answers.per_step else ())]
    heads += ["class", *(f"p({name})" for name in classes)] if classes else list(names)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    for number, outputs in enumerate(answers.outputs):
        name = sequences.names[number] if sequences.names else number + 1
        for step, row in enumerate(outputs if answers.per_step else outputs[None]):
            time = sequences.times[number][step] if sequences.times is not None else step + 1
            place = [step + 1, f"{time:.10g}"] if answers.per_step else []
            answer = [classes[int(row.argmax())]] if classes else []
            writer.writerow([name, *place, *answer, *(f"{value:.7g}" for value in row)])
    write_atomically(path, text.getvalue().encode())


def write_npz(path: Path | str, answers: Answers) -> None:
    """`outputs` (N, K), or (N, T, K) padded with NaN; `lengths` (N,); `classes`, if there are any."""
    lengths = np.array([len(one) for one in answers.sequences.x])
    arrays: dict[str, np.ndarray] = {"lengths": lengths}
    if answers.per_step:
        outputs = np.full((len(lengths), lengths.max(), answers.outputs[0].shape[-1]), np.nan)
        for row, own in zip(outputs, answers.outputs, strict=True):
            row[: len(own)] = own
        arrays["outputs"] = outputs
    else:
        arrays["outputs"] = np.stack(answers.outputs)
    if answers.classes:
        arrays["classes"] = np.array(answers.classes)
    content = io.BytesIO()
    np.savez(content, **arrays)  # pyright: ignore[reportArgumentType]
    write_atomically(path, content.getvalue())
