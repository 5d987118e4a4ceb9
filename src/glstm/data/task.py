"""A Task: sequences in, targets out, and how wrong an answer is."""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

Batch = tuple[Tensor, Tensor]  # x (T, B, D) and y (B,)
Stage = tuple[Tensor, ...]  # what an epoch's batches are cut from


class Task(ABC):
    """Everything training needs to know about a task. Batches depend on (seed, epoch, index) alone, so that
    training can go on in the middle of an epoch as if it had never stopped.

    An epoch of training is staged first: `stage` makes what its batches are cut from, on the device, and `cut` takes
    samples by their number. Stages of several seeds, stacked, are cut together; no number passes through the host.
    """

    name: str
    device: torch.device
    steps: int
    inputs: int
    outputs: int
    train_size: int
    test_size: int
    metric: str  # what `errors` averages to, as a column is headed
    as_percent: bool  # how people read the metric
    _staged: tuple[tuple[int, int], Stage] | None = None  # the last (seed, epoch) that `batch` was asked for

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
        """Samples by their numbers, a range or (B,); of M stages, stacked: x (M, T, B, D) and y (M, B)."""

    @abstractmethod
    def test_samples(self, wanted: slice) -> Batch: ...

    @abstractmethod
    def losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample: prediction (..., B, outputs) and y (..., B), or (B,) for all, -> (..., B)."""

    @abstractmethod
    def errors(self, prediction: Tensor, y: Tensor) -> Tensor:
        """The metric of each sample, in the same shapes."""

    def artifacts(self) -> dict[str, object]:
        """What must be kept with a run to repeat it, by file name."""
        return {}

    def format_error(self, value: float) -> str:
        return f"{100 * value:.2f} %" if self.as_percent else f"{value:.2e}"


def generator(device: torch.device, *names: object) -> torch.Generator:
    """A random generator of its own for whatever `names` describe: no stream depends on another's use."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)
