"""A task from anybody's arrays: any lengths, times, classes or values, for each sequence or for each step."""

import hashlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from glstm.data.collect import as_sequences
from glstm.data.padding import padded, padded_times
from glstm.data.sequences import PARTS, Sequences, any_known, same_times
from glstm.data.split import cut_windows, is_share, split
from glstm.data.task import Batch, Stage, Task, generator
from glstm.errors import UserError
from glstm.scaling import MISSING, Rescale, Standardize

MOST_SHOWN = 8  # names of inputs or classes
NOT_KNOWN = -1  # the number of a label that is missing
FEW_DIGITS = 1e-5  # a channel that varies by less than this share of its mean loses its digits in float32


class ArrayTask(Task):
    """Sequences with targets, from arrays.

    Args:
        x: (N, T, D) or (N, T), or a list of N arrays (T_n, D) or (T_n,); or `Sequences`, which have targets, times and
            classes of their own.
        y: For each sequence a class (text, whole number, bool), a number, or K numbers (N, K); or for each step, as an
            array or list like x without D. A missing target of a step is NaN, None, "" or -1 for whole numbers.
        times: (T,) shared by all, or for each sequence its own; None: steps are counted 1, 2, ...
        lengths: (N,), if x is padded.
        validation: The part that chooses the best epoch: a share of the sequences, drawn by `seed` (from each class its
            share), or the data themselves, as a pair (x, y), a dictionary with x, y, times and lengths, or `Sequences`.
            0: none.
        test: The part that is used once, at the end; as `validation`.
        classes: Names of the classes, in order.
        per_step: Whether each step has a target, where the shape of y leaves it open.
        values: True: y holds numbers to predict, not classes, though they are whole.
        missing: What a NaN in x means: "refuse" it, "carry" the last value on, or "mask", the same with a mask channel.
        standardize: Inputs and target values are standardised inside the network, by the mean and standard deviation of
            the training part: the network takes and returns your numbers as they are.
        window: Cut every sequence into windows of so many steps. With targets of steps, or one sequence, the parts are
            then split in the order of time; with a target for each sequence, all its windows are in the same part.
        from_start: Whether times are counted from each sequence's first step; None: if they start at very different
            times, as dates do.
        columns: Names of the columns "id" and "time" of a table, and other options of its reader, for those who read
            further files.
        seed: Draws the parts.
        name: What messages call it.
        device: Where its tensors are, and so where training runs.

    Examples:
        ```python
        import numpy as np

        from glstm.data import Task

        draw = np.random.default_rng(0)
        x = [draw.normal(size=(steps, 2)) for steps in draw.integers(20, 40, 60)]
        task = Task.from_arrays(x, [one[5, 0] > 0 for one in x], test=0.3)
        ```
    """

    source: dict[str, Any] | None = None  # of a task from files: the options of `file_task` that make it again

    def __init__(
        self,
        x: Any,
        y: Any = None,
        *,
        times: Any = None,
        lengths: Any = None,
        validation: Any = 0.2,
        test: Any = 0.2,
        classes: Sequence[str] | None = None,
        per_step: bool | None = None,
        values: bool = False,
        missing: str = "refuse",
        standardize: bool = True,
        window: int | None = None,
        from_start: bool | None = None,
        columns: dict[str, str] | None = None,
        seed: int = 0,
        name: str = "arrays",
        device: torch.device | str = "cpu",
    ):
        if missing not in MISSING:
            raise UserError(f"missing must be one of {', '.join(MISSING)}, not {missing!r:.50}")
        self.window, self.columns = window, dict(columns or {})
        self.name, self.device, self.missing, self.standardize = name, torch.device(device), missing, standardize
        options: dict[str, Any] = {"classes": classes, "per_step": per_step, "values": values}
        given = as_sequences(x, y, times, lengths, **options)
        if given.y is None:
            raise UserError(f"{name} has no targets to learn: give y, or, of a table, name its column by --target")
        for doubt in given.doubts:
            warnings.warn(doubt, stacklevel=2)
        self._refuse_missing(given, "")  # now: parts and windows count their sequences anew
        parts = split(given, validation, test, seed, window, options)
        for part, asked in (("validation", validation), ("test", test)):
            if not is_share(asked):
                self._refuse_missing(parts[part], f" of the {part} part")
        parts = {part: cut_windows(own, window) if window else own for part, own in parts.items()}
        self._check_alike(parts)
        self.from_start = _is_from_start(parts) or bool(window) if from_start is None else from_start
        if self.from_start:
            parts = {part: own.from_start() for part, own in parts.items()}
        train = parts["train"]
        self.sequences = parts
        self.per_step, self.has_classes = train.per_step, train.classes is not None
        self.classes, self.channels, self.targets = train.classes, train.channels, train.targets
        self.time_unit = train.time_unit
        self.inputs = train.x[0].shape[1]
        self.metric, self.as_percent = ("error", True) if self.has_classes else ("mean absolute error", False)
        self.steps = max(len(one) for part in parts.values() for one in part.x)
        self.equally_long = all(len(one) == self.steps for part in parts.values() for one in part.x)
        self._set_times(parts)
        self.mean, self.scale = _moments(np.concatenate(train.x), standardize)
        self._doubt_digits()
        self._parts = {part: self._tensors(own) for part, own in parts.items()}
        self.train_size, self.validation_size, self.test_size = (
            len(parts[part]) if part in parts else 0 for part in PARTS
        )
        self._count_outputs(train)

    def _check_alike(self, parts: dict[str, Sequences]) -> None:
        train = parts["train"]
        for part, own in parts.items():
            if not len(own):
                raise UserError(f"no window of the {part} part has a target")
            if own.x[0].shape[1] != train.x[0].shape[1]:
                raise UserError(
                    f"the {part} part has {own.x[0].shape[1]} channels, and the training part {train.x[0].shape[1]}"
                )
            if own.channels and train.channels and own.channels != train.channels:
                raise UserError(
                    f"the {part} part has the channels {', '.join(own.channels)}, and the training part "
                    f"{', '.join(train.channels)}: they must be the same, in the same order"
                )
            if own.time_unit != train.time_unit:
                units = (own.time_unit or "plain numbers", train.time_unit or "plain numbers")
                raise UserError(
                    f"the times of the {part} part are {units[0]}, and those of the training part {units[1]}"
                )
            if own.per_step != train.per_step or (own.classes is None) != (train.classes is None):
                raise UserError(f"the {part} part has targets of another kind than the training part")
            if (own.times is None) != (train.times is None):
                raise UserError(f"the training part and the {part} part must both have times, or neither")
            for one in (*own.classes,) if own.classes else ():
                if train.classes is not None and one not in train.classes:
                    raise UserError(f"the {part} part has the class {one!r:.50}, which no training sequence has")

    def _set_times(self, parts: dict[str, Sequences]) -> None:
        """Whether sequences have the same times; if so, those of the longest."""
        self._first, self._span = 1.0, float(self.steps)
        self.mean_step = None
        each = [own for part in parts.values() for own in part.times or ()]
        if not each:
            return
        train = parts["train"].times or each
        longest = max(each, key=len)
        self.own_times = not same_times(each)
        if not self.own_times:
            self.times = torch.from_numpy(longest.copy()).to(self.device)
        self._first = float(min(own[0] for own in train))
        self._span = float(max(own[-1] for own in train)) - self._first or 1.0
        gaps = sum(len(own) - 1 for own in train)
        self.mean_step = sum(float(own[-1] - own[0]) for own in train) / gaps if gaps else 1.0

    def _doubt_digits(self) -> None:
        varying = np.abs(self.mean) * FEW_DIGITS > self.scale
        if self.standardize and varying.any():
            channel = int(np.argmax(varying))
            name = self.channels[channel] if self.channels else str(channel + 1)
            warnings.warn(
                f"channel {name} varies by {self.scale[channel]:.2g} around {self.mean[channel]:.6g}: float32 has too "
                "few digits for that, so subtract a constant first",
                stacklevel=3,
            )

    def _refuse_missing(self, own: Sequences, where: str) -> None:
        """Sequences are counted from 1, as the caller gave them."""
        for number, one in enumerate(own.x if self.missing == "refuse" else ()):
            if np.isnan(one).any():
                step, channel = np.argwhere(np.isnan(one))[0]
                raise UserError(
                    f"{own.named(number)}{where} has a NaN, a missing value, at step {step + 1}, channel {channel + 1}"
                    ': choose missing="carry" to carry the last value on, or "mask" to add a mask channel, too'
                )
        # Each sequence's label is one of the classes; windows of steps without a target are left out later.
        certain = bool(self.window) if own.per_step else own.classes is not None
        y: Any = () if certain else own.y
        for number, targets in enumerate(y):
            if not any_known(targets):
                raise UserError(f"{own.named(number)}{where} has no target: leave it out")

    def _tensors(self, own: Sequences) -> Batch:
        """The whole part, with sequences along the first axis: x (N, T, D), y (N, ...), times (N, T), lengths (N,)."""
        x = padded(own.x, self.steps)
        lengths = None if self.equally_long else torch.tensor([len(one) for one in own.x])
        times = padded_times(own.times or [], self.steps) if self.own_times else None
        found = Batch(x, self._targets(own), times, lengths)
        moved: list[Any] = [None if part is None else part.to(self.device) for part in found]
        return Batch(*moved)

    def _targets(self, own: Sequences) -> Tensor:
        y: Any = own.y
        numbers = {name: number for number, name in enumerate(self.classes or ())}
        if not isinstance(y, list):
            if not self.has_classes:
                return torch.from_numpy(np.asarray(y, np.float32))
            return torch.tensor([numbers[str(one)] for one in y])
        if self.has_classes:
            each = [np.array([numbers.get(str(label), NOT_KNOWN) for label in one]) for one in y]
            return padded(each, self.steps, NOT_KNOWN)
        return padded(y, self.steps, torch.nan)

    def _count_outputs(self, train: Sequences) -> None:
        """How many outputs there are, and in which unit values are compared."""
        if self.has_classes:
            self.outputs = len(self.classes or ())
            if self.outputs < 2:
                hint = "; -1 at a step means that its target is missing" if self.per_step else ""
                raise UserError(f"{self.name} has only one class, {(self.classes or ('?',))[0]!r:.50}{hint}")
            return
        y: Any = train.y
        rows = np.concatenate(y) if isinstance(y, list) else y  # float64: large values lose digits in float32
        self.outputs = rows.shape[-1]
        mean, scale = _moments(rows, self.standardize)
        self.target_mean = torch.tensor(mean, dtype=torch.float32, device=self.device)
        self.target_scale = torch.tensor(scale, dtype=torch.float32, device=self.device)

    def stage(self, seed: int, epoch: int) -> Stage:
        """The epoch's order; drawn on the CPU to be the same on every device. The same data under another name have the
        same order, so that they make the same network, and a run resumes with it."""
        draws = generator(torch.device("cpu"), "arrays", "order", seed, epoch)
        return (torch.randperm(self.train_size, generator=draws).to(self.device),)

    def cut(self, stage: Stage, wanted: slice | Tensor) -> Batch:
        return self._samples("train", stage[0][wanted], trimmed=isinstance(wanted, slice))

    def validation_samples(self, wanted: slice) -> Batch:
        return self._samples("validation", wanted, trimmed=True)

    def test_samples(self, wanted: slice) -> Batch:
        return self._samples("test", wanted, trimmed=True)

    def _samples(self, part: str, wanted: slice | Tensor, trimmed: bool) -> Batch:
        """`trimmed`: without the steps that all of them have as padding. Not on CUDA, where a graph needs one shape."""
        whole = self._parts[part]
        lengths = None if whole.lengths is None else whole.lengths[wanted]
        until = int(lengths.max()) if trimmed and lengths is not None and lengths.is_cpu else self.steps
        x = whole.x[wanted][:, :until].transpose(0, 1)
        y = whole.y[wanted]
        if self.per_step:
            y = y[:, :until].transpose(0, 1)
        times = None if self.times is None else self.times[:until]
        if whole.times is not None:
            times = whole.times[wanted][:, :until].T
        return Batch(x, y, times, lengths)

    def losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy, or the squared error in standard deviations of the training targets."""
        if self.has_classes:
            each = cross_entropy(prediction.flatten(0, -2), y.clamp(min=0).flatten(), reduction="none").view(y.shape)
        else:
            each = ((prediction - y.nan_to_num()) / self.target_scale) ** 2
        return self._mean_known(each, y)

    def errors(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Whether the class is wrong, or the absolute error in the targets' unit."""
        if self.has_classes:
            return self._mean_known((prediction.argmax(-1) != y).to(prediction.dtype), y)
        return self._mean_known((prediction - y.nan_to_num()).abs(), y)

    def _known(self, y: Tensor) -> Tensor:
        return y != NOT_KNOWN if self.has_classes else ~y.isnan()

    def _mean_known(self, each: Tensor, y: Tensor) -> Tensor:
        """Each sequence's mean over the targets that it has: (B,)."""
        known = self._known(y)
        if self.per_step:
            each, known = each.transpose(0, 1), known.transpose(0, 1)
        # A process may have no sequence of a batch, which `reshape` with -1 does not take.
        each, known = each.unsqueeze(1).flatten(1), known.unsqueeze(1).flatten(1)
        return torch.where(known, each, 0).sum(1) / known.sum(1).clamp(min=1)

    @property
    def first_time(self) -> float:
        return self._first

    @property
    def last_time(self) -> float:
        return super().last_time if self.mean_step is None else self._first + self._span

    @property
    def span(self) -> float:
        return self._span

    @property
    def clock(self) -> tuple[float, float]:
        return (0.0, 1.0) if self.mean_step is None else (self._first, self.mean_step)

    def make_inputs(self) -> nn.Module | None:
        if not self.standardize and self.missing == "refuse":
            return None
        inputs = Standardize(self.inputs, self.missing)
        inputs.mean.copy_(torch.from_numpy(self.mean))
        inputs.scale.copy_(torch.from_numpy(self.scale))
        return inputs

    def make_outputs(self) -> nn.Module | None:
        if self.has_classes or not self.standardize:
            return None
        outputs = Rescale(self.outputs)
        outputs.mean.copy_(self.target_mean)
        outputs.scale.copy_(self.target_scale)
        return outputs

    def reading(self) -> dict[str, Any]:
        return {
            "columns": self.columns | ({"inputs": self.channels} if self.channels else {}),
            "timed": self.mean_step is not None,
            "time_unit": self.time_unit,
            "from_start": self.from_start,
            "window": self.window,
        }

    def artifacts(self) -> dict[str, object]:
        """A fingerprint of the data: a run goes on with the data it began with."""
        digest = hashlib.sha256()
        for part in self._parts.values():
            for tensor in part:
                digest.update(b"" if tensor is None else tensor.cpu().contiguous().numpy().tobytes())
        sizes = {part: len(own) for part, own in self.sequences.items()}
        return {"data.json": {"sha256": digest.hexdigest(), "sequences": sizes}}

    def format_error(self, value: float) -> str:
        return super().format_error(value) if self.as_percent else f"{value:.4g}"

    def __repr__(self) -> str:
        return f"<{self.summary()}>"

    def summary(self) -> str:
        """One sentence about the data."""
        sizes = f"{self.train_size:,} training, {self.validation_size:,} validation and {self.test_size:,} test"
        shortest = min(len(one) for part in self.sequences.values() for one in part.x)
        steps = f"{self.steps:,}" if shortest == self.steps else f"{shortest:,} to {self.steps:,}"
        what = f"{self.outputs} classes" if self.has_classes else f"{self.outputs} value{'s' * (self.outputs > 1)}"
        what += _in_brackets(self.classes if self.has_classes else self.targets)
        target = f"{what} {'at each step' if self.per_step else 'for each'}"
        inputs = f"{self.inputs} input{'s' * (self.inputs > 1)}{_in_brackets(self.channels)}"
        return f"{self.name}: {sizes} sequences of {steps} steps, {inputs}, {target}"


def _in_brackets(names: Sequence[str] | None) -> str:
    """Some of the names, so that one sees what was taken as what."""
    if not names:
        return ""
    some = [name if len(name) <= 20 else f"{name[:20]}..." for name in names[:MOST_SHOWN]]
    return f" ({', '.join(some)}{', ...' * (len(names) > MOST_SHOWN)})"


def _moments(rows: np.ndarray, standardize: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column, without its missing values; 0 and 1 where there is nothing to scale
    by."""
    columns = rows.shape[1]
    mean, scale = np.zeros(columns), np.ones(columns)
    for column in range(columns if standardize else 0):
        known = rows[:, column][np.isfinite(rows[:, column])]
        if len(known):
            mean[column] = known.mean()
            deviation = known.std()
            scale[column] = deviation if deviation > 1e-12 * abs(mean[column]) else 1.0
    return mean, scale


def _is_from_start(parts: dict[str, Sequences]) -> bool:
    """Whether sequences begin further apart than any of them is long, as those with dates do: then it cannot be meant
    that a gate opens at a moment of the calendar."""
    each = [own for part in parts.values() for own in part.times or ()]
    starts = [own[0] for own in each]
    return bool(each) and bool(max(starts) - min(starts) > max(own[-1] - own[0] for own in each))
