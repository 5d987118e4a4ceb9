"""A Task: sequences in, targets out, and how wrong an answer is."""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

Batch = tuple[Tensor, Tensor]  # x (T, B, D) and y (B, ...)


class Task(ABC):
    """Everything training needs to know about a task. Batches depend on (seed, epoch, index) alone, so that
    training can go on in the middle of an epoch as if it had never stopped."""

    name: str
    steps: int
    inputs: int
    outputs: int
    train_size: int
    test_size: int
    metric: str  # what `errors` averages to, as a column is headed
    as_percent: bool  # how people read the metric

    def batches(self, split: str, batch: int, seed: int = 0, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """The epoch's batches from number `start` on; the last one may be smaller. Test batches never change."""
        for index in range(start, self.batch_count(split, batch)):
            yield self.batch(split, batch, seed, epoch, index)

    def batch_count(self, split: str, batch: int) -> int:
        return math.ceil((self.train_size if split == "train" else self.test_size) / batch)

    @abstractmethod
    def batch(self, split: str, batch: int, seed: int, epoch: int, index: int) -> Batch: ...

    @abstractmethod
    def losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample (B,)."""

    @abstractmethod
    def errors(self, prediction: Tensor, y: Tensor) -> Tensor:
        """The metric of each sample (B,)."""

    def artifacts(self) -> dict[str, object]:
        """What must be kept with a run to repeat it, by file name."""
        return {}

    def format_error(self, value: float) -> str:
        return f"{100 * value:.2f} %" if self.as_percent else f"{value:.2e}"


def generator(device: torch.device, *names: object) -> torch.Generator:
    """A random generator of its own for whatever `names` describe: no stream depends on another's use."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)
