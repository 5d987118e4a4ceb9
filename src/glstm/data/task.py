"""A Task: sequences in, targets out, and how wrong an answer is."""

import difflib
import hashlib
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from glstm.errors import UserError

if TYPE_CHECKING:
    from glstm.data.arrays import ArrayTask

Stage = tuple[Tensor, ...]  # what an epoch's batches are cut from


class Batch(NamedTuple):
    """Some sequences. A task whose sequences have neither times nor lengths returns just x and y, as a pair.

    Attributes:
        x: (T, B, D).
        y: (B,) or (B, K); with targets of each step (T, B) or (T, B, K).
        times: (T,), or (T, B) if every sequence has its own; None: 1, 2, ...
        lengths: (B,), where the sequences end; None: all are T steps long.
    """

    x: Tensor
    y: Tensor
    times: Tensor | None = None
    lengths: Tensor | None = None

    def arguments(self) -> dict[str, Tensor]:
        """What a model is given besides x."""
        return {name: value for name in ("times", "lengths") if (value := getattr(self, name)) is not None}

    def share(self, rank: int, world: int, per_step: bool) -> Self:
        """The samples rank, rank + world, rank + 2 world and so on."""
        if world == 1:
            return self
        own = slice(rank, None, world)
        times = self.times if self.times is None or self.times.dim() == 1 else self.times[:, own]
        lengths = None if self.lengths is None else self.lengths[own]
        return type(self)(self.x[:, own], self.y[:, own] if per_step else self.y[own], times, lengths)

    @property
    def size(self) -> int:
        """B, the number of sequences."""
        return self.x.shape[1]


Pair = tuple[Tensor, Tensor]
Found = tuple[Any, ...]  # a Batch, or a Pair: Batch(*found) is a Batch in either case


class Task(ABC):
    """Everything that training needs to know about a task. Batches depend on (seed, epoch, index) alone, so that
    training can continue in the middle of an epoch as if it had never stopped.

    First `stage` makes the data of an epoch on the device, then `cut` takes the samples of a batch from it, by their
    numbers. A stage is one or more tensors, of the same shapes in every epoch. On CUDA `cut`, `losses` and `errors` run
    inside `torch.vmap` for many networks at once, and in a CUDA graph, so they must be plain tensor operations.
    """

    name: str
    device: torch.device
    steps: int  # of the longest sequence
    inputs: int
    outputs: int
    train_size: int
    validation_size: int = 0  # sequences that decide which epoch was the best; 0: there are none
    test_size: int
    metric: str  # the name of the mean of `errors`, for the head of a column
    as_percent: bool  # whether the metric is shown in percent
    per_step: bool = False  # whether each step has a target, not each sequence
    classes: tuple[str, ...] | None = None  # names of the outputs
    times: Tensor | None = None  # (T,) if all sequences have the same times; None: 1, 2, ..., or each its own
    own_times: bool = False  # whether each sequence has its own times
    equally_long: bool = True
    holds_out: str = "a validation part"  # what the user would need for sequences that no network was trained on
    _staged: tuple[tuple[int, int], Stage] | None = None  # the last (seed, epoch) that `batch` was called with

    @staticmethod
    def from_arrays(x: Any, y: Any = None, **options: Any) -> "ArrayTask":
        """A task from your own arrays; `glstm.data.ArrayTask` says which options there are."""
        from glstm.data.arrays import ArrayTask

        _check_options("Task.from_arrays", ArrayTask, options)
        return ArrayTask(x, y, **options)

    @staticmethod
    def from_file(path: Any, **options: Any) -> "ArrayTask":
        """A task from your own files; `glstm.data.file_task` says which options there are."""
        from glstm.data.from_file import file_task

        _check_options("Task.from_file", file_task, options)
        return file_task(path, **options)

    def batches(self, part: str, batch: int, seed: int = 0, epoch: int = 0, start: int = 0) -> Iterator[Found]:
        """The epoch's batches from number `start` on; the last one may be smaller. Only training batches change."""
        for index in range(start, self.batch_count(part, batch)):
            yield self.batch(part, batch, seed, epoch, index)

    def size(self, part: str) -> int:
        """How many sequences a part has: "train", "validation" or "test"."""
        return {"train": self.train_size, "validation": self.validation_size, "test": self.test_size}[part]

    def batch_count(self, part: str, batch: int) -> int:
        """How many batches of this size a part has; the last one may be smaller."""
        return math.ceil(self.size(part) / batch)

    def batch(self, part: str, batch: int, seed: int, epoch: int, index: int) -> Found:
        """One batch of a part, by its number in the epoch."""
        wanted = slice(index * batch, (index + 1) * batch)
        if part == "test":
            return self.test_samples(wanted)
        if part == "validation":
            return self.validation_samples(wanted)
        if self._staged is None or self._staged[0] != (seed, epoch):
            self._staged = (seed, epoch), self.stage(seed, epoch)
        return self.cut(self._staged[1], wanted)

    @abstractmethod
    def stage(self, seed: int, epoch: int) -> Stage:
        """What the epoch's batches are cut from."""

    @abstractmethod
    def cut(self, stage: Stage, wanted: slice | Tensor) -> Found:
        """Samples by their numbers, a range or a tensor (B,)."""

    @abstractmethod
    def test_samples(self, wanted: slice) -> Found:
        """Samples of the test part, by their numbers."""

    def validation_samples(self, wanted: slice) -> Found:
        """Samples of the validation part, by their numbers; a task with a `validation_size` has it."""
        raise NotImplementedError(f"{self.name} has a validation_size, and so needs validation_samples")

    @abstractmethod
    def losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample: prediction (B, outputs) and y (B,) -> (B,)."""

    @abstractmethod
    def errors(self, prediction: Tensor, y: Tensor) -> Tensor:
        """The metric of each sample, in the same shapes."""

    def schedule(self) -> int | Tensor:
        """What `glstm.deploy` takes: the number of steps, or the times (T,) of the steps if they have times."""
        if self.own_times:
            raise UserError(
                f"each sequence of {self.name} has its own times, and a deployed network needs to know all times "
                f"beforehand: {self._how_to_share_times()}; or deploy it without steps, and give each sample its time "
                "(export c --tick)"
            )
        return self.steps if self.times is None else self.times

    def _how_to_share_times(self) -> str:
        from glstm.data.sequences import same_times

        parts = getattr(self, "sequences", {}).values()  # a task that makes its sequences itself has none to look at
        each = [own for part in parts for own in part.from_start().times or ()]
        if each and same_times(each):
            return "only their starts differ, so train with --from-start (from_start=True)"
        return "train on rows at equal intervals, with --from-start (from_start=True), or leave the times out"

    def grid(self) -> Tensor:
        """Times (T,) that show the gates in a picture: evenly spaced over those of the sequences."""
        if self.times is None and not self.own_times:
            return torch.arange(1, self.steps + 1, dtype=torch.float32)
        return torch.linspace(self.first_time, self.last_time, self.steps, dtype=torch.float64)

    @property
    def first_time(self) -> float:
        """The earliest time of any sequence."""
        return 1.0

    @property
    def last_time(self) -> float:
        """The latest time of any sequence."""
        return float(self.steps)

    @property
    def span(self) -> float:
        """How long a sequence is, in the unit of its times: what the gates' widths and rates are shares of."""
        return float(self.steps)

    @property
    def clock(self) -> tuple[float, float]:
        """The origin and the unit in which a layer keeps the moments of its gates, in the task's times."""
        return 0.0, 1.0

    def make_inputs(self) -> nn.Module | None:
        """What a network does with x first, such as a `Standardize` of the training part; None: nothing."""
        return None

    def make_outputs(self) -> nn.Module | None:
        """What a network does with its head's outputs last, such as a `Rescale`; None: nothing."""
        return None

    def held_out(self, count: int, batch: int) -> tuple[list[Found], str]:
        """Up to `count` sequences for a choice such as that of a threshold, in batches, and a description of them. They
        are sequences that no network of this task was trained on, if there are any."""
        part = "validation" if self.validation_size else "train"
        size = min(count, self.size(part))
        wanted = [slice(first, min(first + batch, size)) for first in range(0, size, batch)]
        if part == "validation":
            batches: list[Found] = [self.validation_samples(own) for own in wanted]
            return batches, "validation sequences"
        stage = self.stage(0, 0)
        batches = [self.cut(stage, own) for own in wanted]
        return batches, f"training sequences, which the network may have seen: {self.holds_out} would hold some out"

    def reading(self) -> dict[str, Any]:
        """What must be known to read further sequences as these were read, for JSON."""
        return {}

    def artifacts(self) -> dict[str, object]:
        """What must be stored with a run to repeat it, by file name."""
        return {}

    def format_error(self, value: float) -> str:
        """The metric as it is shown, in percent or as a number."""
        return f"{100 * value:.2f} %" if self.as_percent else f"{value:.2e}"


def _check_options(name: str, makes: Callable[..., Any], options: dict[str, Any]) -> None:
    """Refuses options that the function or class does not have."""
    parameters = inspect.signature(makes).parameters.values()
    known = [one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, 1)
            hint = f", did you mean {near[0]}?" if near else ""
            raise UserError(f"{name} has no option {option!r}{hint or ':'} it has {', '.join(known)}")


def check_sizes(**sizes: int | None) -> None:
    """Checks numbers of sequences; None means all."""
    for name, size in sizes.items():
        if size is not None and (type(size) is not int or size < 1):
            raise UserError(f"{name} must be a whole number of at least 1, not {size!r:.50}")


def key_of(*names: object) -> int:
    """A number of 63 bits for what `names` describe."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(device: torch.device, *names: object) -> torch.Generator:
    """A separate random generator for what `names` describe: its numbers do not depend on other generators' use."""
    return torch.Generator(device).manual_seed(key_of(*names))
