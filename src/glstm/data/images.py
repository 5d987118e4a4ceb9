"""Images as sequences, a pixel a step: the bytes stay bytes until a batch is made of them."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from glstm.data.task import Batch, Task, generator

Images = tuple[Tensor, Tensor]  # uint8 (N, T, D) and labels (N,)


class PixelTask(Task):
    """Label an image from its pixels, read one a step. Images are uint8 (N, T, D), labels int64 (N,)."""

    outputs = 10
    metric, as_percent = "error", True

    def __init__(
        self,
        name: str,
        train: Images,
        test: Images,
        *,
        train_size: int | None = None,
        test_size: int | None = None,
        device: torch.device | str = "cpu",
    ):
        self.name = name
        self.device = torch.device(device)
        self._splits = {
            split: tuple(part[:size].to(self.device) for part in parts)
            for split, parts, size in (("train", train, train_size), ("test", test, test_size))
        }
        self.train_size, self.steps, self.inputs = self._splits["train"][0].shape
        self.test_size = len(self._splits["test"][0])
        self._order: tuple[tuple[int, int], Tensor] | None = None

    def batch(self, split: str, batch: int, seed: int, epoch: int, index: int) -> Batch:
        images, labels = self._splits[split]
        wanted = slice(index * batch, (index + 1) * batch)
        if split == "train":
            wanted = self._shuffled(seed, epoch)[wanted]
        return images[wanted].transpose(0, 1).float() / 255, labels[wanted]

    def _shuffled(self, seed: int, epoch: int) -> Tensor:
        """The epoch's order; drawn on the CPU so that it is the same on every device."""
        if self._order is None or self._order[0] != (seed, epoch):
            draws = generator(torch.device("cpu"), self.name, "order", seed, epoch)
            self._order = (seed, epoch), torch.randperm(self.train_size, generator=draws).to(self.device)
        return self._order[1]

    def losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(prediction, y, reduction="none")

    def errors(self, prediction: Tensor, y: Tensor) -> Tensor:
        return (prediction.argmax(-1) != y).float()
