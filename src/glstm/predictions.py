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

from glstm.data.padding import batches_of
from glstm.data.sequences import Sequences
from glstm.data.split import cut_windows
from glstm.errors import UserError
from glstm.models import SequenceModel
from glstm.storage import write_atomically


@dataclass(frozen=True)
class Answers:
    """Of each sequence: outputs (K,), or (T_n, K) if the network answers at each step. With classes they are
    probabilities."""

    sequences: Sequences
    outputs: list[np.ndarray]
    per_step: bool
    classes: tuple[str, ...] | None


def as_trained(sequences: Sequences, how: dict[str, Any], what: str) -> Sequences:
    """Sequences called `what`, read as those of a task were; `how` is `task.reading()`."""
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


@torch.no_grad()
def answers(
    model: nn.Module, sequences: Sequences, batch: int = 500, on_batch: Callable[[int], object] = lambda count: None
) -> Answers:
    """The network, in evaluation mode, on all sequences."""
    if not isinstance(model, SequenceModel):
        raise UserError(
            f"predictions are made by a SequenceModel, a layer and its head, not by a {type(model).__name__}"
        )
    inputs = model.inputs
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
        outputs = model(own.x.to(value.dtype), **own.arguments()).cpu().double()
        outputs = (outputs.softmax(-1) if model.classes else outputs).numpy()
        lengths = [len(own.x)] * own.size if own.lengths is None else own.lengths.tolist()
        if per_step:
            found += [outputs[:length, place] for place, length in enumerate(lengths)]
        else:
            found += list(outputs)
        on_batch(own.size)
    return Answers(sequences, found, per_step, model.classes)


def write_csv(path: Path, answers: Answers) -> None:
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


def write_npz(path: Path, answers: Answers) -> None:
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
