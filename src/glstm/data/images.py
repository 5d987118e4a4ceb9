"""Images as sequences, a pixel a step: the bytes stay bytes until a batch is made of them."""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from glstm.data.task import Batch, Stage, Task, generator
from glstm.errors import UserError

Images = tuple[Tensor, Tensor]  # uint8 (N, T, D) and labels (N,)


class PixelTask(Task):
    """Label an image from its pixels, read one a step. Images are uint8 (N, T, D), labels int64 (N,).

    With `shift`, every epoch moves each training image by up to so many pixels along and across, black coming in.
    """

    outputs = 10
    in_order = True  # pixels as they lie in the image
    metric, as_percent = "error", True

    def __init__(
        self,
        name: str,
        train: Images,
        test: Images,
        *,
        train_size: int | None = None,
        test_size: int | None = None,
        shift: int = 0,
        device: torch.device | str = "cpu",
    ):
        self.name, self.shift = name, shift
        self.device = torch.device(device)
        self._splits = {
            split: tuple(part[:size].to(self.device) for part in parts)
            for split, parts, size in (("train", train, train_size), ("test", test, test_size))
        }
        self.train_size, self.steps, self.inputs = self._splits["train"][0].shape
        self.test_size = len(self._splits["test"][0])
        self._side = math.isqrt(self.steps)
        if shift and not (self.in_order and 0 < shift < self._side):
            raise UserError(
                f"shift moves images whose pixels are read in order, by at least one pixel and less than their side, "
                f"{self._side} here: {name} with shift={shift} is not such a case"
            )

    def stage(self, seed: int, epoch: int) -> Stage:
        """The epoch's order, and how far each image moves; drawn on the CPU to be the same on every device."""
        draws = generator(torch.device("cpu"), self.name, "order", seed, epoch)
        order = torch.randperm(self.train_size, generator=draws).to(self.device)
        if not self.shift:
            return (order,)
        draws = generator(torch.device("cpu"), self.name, "shift", seed, epoch)
        moves = torch.randint(-self.shift, self.shift + 1, (self.train_size, 2), generator=draws)
        return order, moves.to(self.device)

    def cut(self, stage: Stage, wanted: slice | Tensor) -> Batch:
        order, *moves = stage
        x, y = self._samples("train", order[..., wanted])
        return (self._moved(x, moves[0][..., wanted, :]), y) if moves else (x, y)

    def _moved(self, x: Tensor, by: Tensor) -> Tensor:
        """x (..., T, B, D), each of its images moved by (rows, columns) (..., B, 2)."""
        step = torch.arange(self.steps, device=x.device)
        rows, columns = step // self._side + by[..., :1], step % self._side + by[..., 1:]  # (..., B, T)
        inside = (rows >= 0) & (rows < self._side) & (columns >= 0) & (columns < self._side)
        source = torch.where(inside, rows * self._side + columns, 0).mT.unsqueeze(-1).expand(x.shape)
        return x.gather(-3, source) * inside.mT.unsqueeze(-1)

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
