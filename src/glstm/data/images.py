"""Images as sequences, a pixel a step: the bytes stay bytes until a batch is made of them."""

import math
from abc import abstractmethod
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from glstm.data.task import Found, Pair, Stage, Task, check_sizes, generator
from glstm.errors import UserError

Images = tuple[Tensor, Tensor]  # uint8 (N, T, D) and labels (N,)


class PixelTask(Task):
    """Label an image from its pixels, read one a step. Images are uint8 (N, T, D), labels int64 (N,).

    With `shift`, every epoch moves each training image by up to so many pixels in each direction, filled with black.
    The last `validation` of the training images are for choices, not for training.
    """

    outputs = 10  # classes
    metric, as_percent = "error", True
    holds_out = "a smaller train_size"

    def __init__(
        self,
        name: str,
        train: Images,
        test: Images,
        *,
        train_size: int | None = None,
        test_size: int | None = None,
        validation: int | None = None,
        shift: int = 0,
        device: torch.device | str = "cpu",
    ):
        check_sizes(train_size=train_size, test_size=test_size, validation=validation)
        self.name, self.shift = name, shift
        self.device = torch.device(device)
        self.validation_size = validation or 0
        if self.validation_size >= len(train[0]):
            raise UserError(
                f"validation takes some of the {len(train[0]):,} training images of {name}, not {validation:,}"
            )
        rest = len(train[0]) - self.validation_size
        self._splits = {
            split: tuple(part[:size].to(self.device) for part in parts)
            for split, parts, size in (
                ("train", tuple(part[:rest] for part in train), train_size),
                ("validation", tuple(part[rest:] for part in train), None),
                ("test", test, test_size),
            )
        }
        self._unused = (
            [part[train_size:rest] for part in train] if train_size else []
        )  # on their own device: rarely needed
        self.train_size, self.steps, self.inputs = self._splits["train"][0].shape
        self.test_size = len(self._splits["test"][0])
        self._side = math.isqrt(self.steps)
        if shift and not 0 < shift < self._side:
            raise UserError(
                f"shift moves images by at least one pixel and less than their side, {self._side} here, not by {shift}"
            )
        if shift:
            self._sources = self._sources_of_moves()

    def order(self) -> Tensor:
        """Which pixel of the image is read at each step (T,)."""
        return torch.arange(self.steps)

    def stage(self, seed: int, epoch: int) -> Stage:
        """The epoch's order, and how far each image moves; drawn on the CPU to be the same on every device."""
        draws = generator(torch.device("cpu"), self.name, "order", seed, epoch)
        order = torch.randperm(self.train_size, generator=draws).to(self.device)
        if not self.shift:
            return (order,)
        draws = generator(torch.device("cpu"), self.name, "shift", seed, epoch)
        moves = torch.randint(-self.shift, self.shift + 1, (self.train_size, 2), generator=draws)
        return order, moves.to(self.device)

    def cut(self, stage: Stage, wanted: slice | Tensor) -> Pair:
        order, *moves = (part[wanted] for part in stage)
        images, labels = (part[order] for part in self._splits["train"])
        return _as_batch(self._moved(images, *moves) if moves else images, labels)

    def _moved(self, images: Tensor, by: Tensor) -> Tensor:
        """images (B, T, D), each moved by (rows, columns) (B, 2)."""
        rows, columns = (by + self.shift).unbind(1)
        source = self._sources[rows * (2 * self.shift + 1) + columns].unsqueeze(-1).expand(images.shape)
        return pad(images, (0, 0, 0, 1)).gather(1, source)

    def _sources_of_moves(self) -> Tensor:
        """At which step of an image each pixel of the moved image is found, for every move (moves, T). T, which is one
        past the last step, stands for black. A shift of s takes 8 T (2 s + 1)^2 bytes."""
        places, by = self.order().to(self.device), torch.arange(-self.shift, self.shift + 1, device=self.device)
        steps_of = torch.argsort(places)  # the other way: when a pixel is read
        rows, columns = ((place + by[:, None]) for place in (places // self._side, places % self._side))
        rows, columns = rows[:, None], columns[None]  # (moves, 1, T), (1, moves, T)
        inside = (rows >= 0) & (rows < self._side) & (columns >= 0) & (columns < self._side)
        found = torch.where(inside, rows * self._side + columns, 0)
        return torch.where(inside, steps_of[found], self.steps).flatten(0, 1)

    def held_out(self, count: int, batch: int) -> tuple[list[Found], str]:
        """The validation images, or training images that `train_size` left out."""
        if self.validation_size or not self._unused or not len(self._unused[0]):
            return super().held_out(count, batch)
        images, labels = (part[:count].to(self.device) for part in self._unused)
        starts = range(0, len(images), batch)
        batches = [_as_batch(images[first : first + batch], labels[first : first + batch]) for first in starts]
        return batches, "training sequences that were held out"

    def test_samples(self, wanted: slice) -> Pair:
        return self._samples("test", wanted)

    def validation_samples(self, wanted: slice) -> Pair:
        return self._samples("validation", wanted)

    def _samples(self, split: str, wanted: slice) -> Pair:
        images, labels = self._splits[split]
        return _as_batch(images[wanted], labels[wanted])

    def losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(prediction, y, reduction="none")

    def errors(self, prediction: Tensor, y: Tensor) -> Tensor:
        return (prediction.argmax(-1) != y).float()


class FilePixelTask(PixelTask):
    """A pixel task whose images come from files. A subclass says its name, and how to load them."""

    @staticmethod
    @abstractmethod
    def load(folder: Path | str | None) -> dict[str, Images]:
        """{'train', 'test'} -> images and labels."""

    def __init__(
        self,
        folder: Path | str | None = None,
        *,
        train_size: int | None = None,
        test_size: int | None = None,
        validation: int | None = None,
        shift: int = 0,
        device: torch.device | str = "cpu",
    ):
        check_sizes(train_size=train_size, test_size=test_size, validation=validation)  # before anything is fetched
        images = self.load(folder)
        super().__init__(
            self.name, images["train"], images["test"],
            train_size=train_size, test_size=test_size, validation=validation, shift=shift, device=device,
        )  # fmt: skip


def _as_batch(images: Tensor, labels: Tensor) -> Pair:
    return images.transpose(0, 1).float() / 255, labels
