"""The adding task (Hochreiter and Schmidhuber, 1997): two of N numbers are marked; say their sum."""

import torch
from torch import Tensor

from glstm import masks
from glstm.data.task import Pair, Stage, Task, check_sizes, key_of
from glstm.errors import UserError

MOST_BYTES = 2**32  # of the sequences of an epoch, which are made at once


class Adding(Task):
    """x[n] = (value in U(0, 1), mark): exactly two distinct positions are marked, anywhere in the sequence.

    Every epoch brings new sequences. They are made on the device that trains, by a hash, so that they are the same on
    every device. Always answering 1 gives an MSE of 0.167. `validation` is the number of sequences that are neither for
    training nor for the test.
    """

    name = "adding"
    inputs, outputs = 2, 1
    metric, as_percent = "mse", False

    def __init__(
        self,
        steps: int = 1000,
        *,
        train_size: int = 5000,
        test_size: int = 5000,
        validation: int | None = None,
        device: torch.device | str = "cpu",
    ):
        check_sizes(steps=steps, train_size=train_size, test_size=test_size, validation=validation)
        if steps < 2:
            raise UserError(f"the adding task marks two positions, so it needs at least 2 steps, not {steps}")
        most = max(train_size, test_size, validation or 0)
        if (size := steps * most * 8) > MOST_BYTES:
            raise UserError(
                f"{most} sequences of the adding task of {steps} steps take {size / 2**30:.1f} "
                f"GiB, and {MOST_BYTES >> 30} are the most: take fewer or shorter ones"
            )
        self.steps, self.train_size, self.test_size = steps, train_size, test_size
        self.validation_size = validation or 0
        self.device = torch.device(device)
        self._drawn: dict[str, Pair] = {}

    def stage(self, seed: int, epoch: int) -> Stage:
        return self._draw(self.train_size, "train", seed, epoch)

    def cut(self, stage: Stage, wanted: slice | Tensor) -> Pair:
        x, y = stage
        return x[:, wanted], y[wanted]

    def test_samples(self, wanted: slice) -> Pair:
        return self._samples("test", wanted)

    def validation_samples(self, wanted: slice) -> Pair:
        return self._samples("validation", wanted)

    def _samples(self, part: str, wanted: slice) -> Pair:
        if part not in self._drawn:
            self._drawn[part] = self._draw(self.size(part), part)  # one set, however it is cut into batches
        return self.cut(self._drawn[part], wanted)

    def held_out(self, count: int, batch: int) -> tuple[list[Pair], str]:
        stage = self._draw(count, "held out")
        parts = [slice(first, first + batch) for first in range(0, count, batch)]
        return [self.cut(stage, part) for part in parts], "fresh sequences"

    def _draw(self, size: int, *stream: object) -> Pair:
        def numbers(count: int) -> Tensor:
            return masks.number_elements(count, self.device)

        values_key, first_key, second_key = (
            torch.tensor(key_of("adding", self.steps, *stream, what), device=self.device)
            for what in ("values", "first", "second")
        )
        values = masks.uniform(values_key, numbers(self.steps * size)).view(self.steps, size)
        first = masks.whole_numbers(first_key, numbers(size), self.steps)
        second = masks.whole_numbers(second_key, numbers(size), self.steps - 1)
        second += second >= first  # any position but the first: all pairs are equally likely
        marked = torch.stack((first, second))
        marks = torch.zeros_like(values).scatter_(0, marked, 1.0)
        return torch.stack((values, marks), -1), values.gather(0, marked).sum(0)

    def losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        return (prediction.squeeze(-1) - y) ** 2

    def errors(self, prediction: Tensor, y: Tensor) -> Tensor:
        return self.losses(prediction, y)
