"""A Task: sequences in, targets out, and how wrong an answer is."""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from glstm.errors import UserError

Batch = tuple[Tensor, Tensor]  # x (T, B, D) and y (B,)
Stage = tuple[Tensor, ...]  # what an epoch's batches are cut from


class Task(ABC):
    """Everything that training needs to know about a task. Batches depend on (seed, epoch, index) alone, so that
    training can continue in the middle of an epoch as if it had never stopped.

    First `stage` makes the data of an epoch on the device, then `cut` takes the samples of a batch from it, by their
    numbers. A stage is one or more tensors, of the same shapes in every epoch. On CUDA `cut`, `losses` and `errors` run
    inside `torch.vmap` for many networks at once, and in a CUDA graph, so they must be plain tensor operations.
    """

    name: str
    device: torch.device
    steps: int
    inputs: int
    outputs: int
    train_size: int
    test_size: int
    metric: str  # the name of the mean of `errors`, for the head of a column
    as_percent: bool  # whether the metric is shown in percent
    _staged: tuple[tuple[int, int], Stage] | None = None  # the last (seed, epoch) that `batch` was called with

    def batches(self, split: str, batch: int, seed: int = 0, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """The epoch's batches from number `start` on; the last one may be smaller. Test batches never change."""
        for index in range(start, self.batch_count(split, batch)):
            yield self.batch(split, batch, seed, epoch, index)

    def batch_count(self, split: str, batch: int) -> int:
        return math.ceil((self.train_size if split == "train" else self.test_size) / batch)

    def batch(self, split: str, batch: int, seed: int, epoch: int, index: int) -> Batch:
        wanted = slice(index * batch, (index + 1) * batch)
        if split == "test":
            return self.test_samples(wanted)
        if self._staged is None or self._staged[0] != (seed, epoch):
            self._staged = (seed, epoch), self.stage(seed, epoch)
        return self.cut(self._staged[1], wanted)

    @abstractmethod
    def stage(self, seed: int, epoch: int) -> Stage:
        """What the epoch's batches are cut from."""

    @abstractmethod
    def cut(self, stage: Stage, wanted: slice | Tensor) -> Batch:
        """Samples by their numbers, a range or a tensor (B,)."""

    @abstractmethod
    def test_samples(self, wanted: slice) -> Batch: ...

    @abstractmethod
    def losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample: prediction (B, outputs) and y (B,) -> (B,)."""

    @abstractmethod
    def errors(self, prediction: Tensor, y: Tensor) -> Tensor:
        """The metric of each sample, in the same shapes."""

    def held_out(self, count: int, batch: int) -> tuple[list[Batch], str]:
        """Up to `count` sequences for a choice such as that of a threshold, in batches, and a description of them. They
        are sequences that no network of this task was trained on, if there are any."""
        size = min(count, self.train_size)
        wanted = [slice(first, min(first + batch, size)) for first in range(0, size, batch)]
        stage = self.stage(0, 0)
        batches = [self.cut(stage, part) for part in wanted]
        return batches, "training sequences, which the network may have seen: a smaller train_size would hold some out"

    def artifacts(self) -> dict[str, object]:
        """What must be stored with a run to repeat it, by file name."""
        return {}

    def format_error(self, value: float) -> str:
        return f"{100 * value:.2f} %" if self.as_percent else f"{value:.2e}"


def check_sizes(**sizes: int | None) -> None:
    """Checks numbers of sequences; None means all."""
    for name, size in sizes.items():
        if size is not None and (type(size) is not int or size < 1):
            raise UserError(f"{name} must be a whole number of at least 1, not {size!r:.50}")


def generator(device: torch.device, *names: object) -> torch.Generator:
    """A separate random generator for what `names` describe: its numbers do not depend on other generators' use."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)
