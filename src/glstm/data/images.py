"""Images as sequences, a pixel a step: the bytes stay bytes until a batch is made of them."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from glstm.data.task import Batch, Stage, Task, generator

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

    def stage(self, seed: int, epoch: int) -> Stage:
        """The epoch's order; drawn on the CPU so that it is the same on every device."""
        draws = generator(torch.device("cpu"), self.name, "order", seed, epoch)
        return (torch.randperm(self.train_size, generator=draws).to(self.device),)

    def cut(self, stage: Stage, wanted: slice | Tensor) -> Batch:
        (order,) = stage
        return self._samples("train", order[..., wanted])

    def test_samples(self, wanted: slice) -> Batch:
        return self._samples("test", wanted)

    def _samples(self, split: str, wanted: slice | Tensor) -> Batch:
        images, labels = self._splits[split]
        return images[wanted].transpose(-3, -2).float() / 255, labels[wanted]

    def losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        samples = prediction.shape[:-1]
        flat = cross_entropy(prediction.flatten(0, -2), y.expand(samples).flatten(), reduction="none")
        return flat.view(samples)

    def errors(self, prediction: Tensor, y: Tensor) -> Tensor:
        return (prediction.argmax(-1) != y).float()
