"""The temporal convolutional network (Bai, Kolter and Koltun, 2018, An Empirical Evaluation of Generic Convolutional
and Recurrent Networks for Sequence Modeling, arXiv:1803.01271).

No recurrent network, but with the same calling convention. A level has two causal convolutions over time, whose taps
are dilation = 2^level steps apart, level counted from 0:

    y_n = drop(relu(b + sum_j W_j x_{n - (k - 1 - j) dilation}))        twice, with j from 0 to k - 1
    output_n = relu(y_n + x_n)        or, where their widths differ, + V x_n + c

The weights are normalised (Salimans and Kingma, 2016): W = g v / |v|, for each output channel. Its state has the last
inputs of both convolutions, so a sequence can come in pieces; before the first step they are 0. What a network sees
reaches back `reach` steps: choose layers and kernel_size so that this covers the sequences.

Dropout is the paper's: a whole channel of a sample is dropped for all steps; the public code (locuslab/TCN) drops
single numbers. The paper starts all weights from N(0, 0.01), in the code with a standard deviation of 0.01. But there,
torch's weight normalisation overwrites them with v and g as they were before: only V starts like that, and v as torch's
convolutions do, with g = |v|. This is the start here, too; with `small_start` it is the one that the paper states.

The preset is the paper's: kernel 7, 8 levels of 25 channels, no dropout, no clipping, Adam at 0.002. Batches and epochs
are the code's, which also drops 5 % and divides the rate by 10 after ten epochs.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from glstm.cells.recurrent import Recurrent, State, after_last, check_flag
from glstm.errors import UserError
from glstm.masks import Keyed, dropout_factors

MOST_LEVELS = 30
SMALL = 0.01


class TCN(Keyed, Recurrent):
    """`num_layers` are its levels. `dropout` is inside them, not between."""

    state: ClassVar[tuple[str, ...]] = ("h", "first", "second")
    way: ClassVar[str] = "convolutions over all steps at once"
    bench: ClassVar[dict[str, Any]] = {"units": 25, "layers": 8}  # so that it sees the whole sequence
    recipe: ClassVar[dict[str, Any]] = {
        "units": 25, "layers": 8, "optimizer": "adam", "lr": 2e-3, "batch": 64, "epochs": 20, "clip": 0.0,
        "options": {"kernel_size": 7},
    }  # fmt: skip

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        kernel_size: int = 7,
        small_start: bool = False,
    ):
        if type(kernel_size) is not int or kernel_size < 2:
            raise UserError(f"kernel_size is a whole number of at least 2, not {kernel_size!r:.50}")
        if isinstance(num_layers, int) and num_layers > MOST_LEVELS:
            raise UserError(f"each level looks back twice as far: {MOST_LEVELS} are the most, not {num_layers}")
        check_flag("small_start", small_start)
        self.kernel_size, self.small_start = kernel_size, small_start
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout)
        for number, layer in enumerate(self.layers):
            layer.number = number  # pyright: ignore[reportArgumentType]

    @property
    def reach(self) -> int:
        """Steps that an output depends on."""
        return 1 + 2 * (self.kernel_size - 1) * (2**self.num_layers - 1)

    def make_layer(self, inputs: int) -> nn.Module:
        layer: Any = nn.Module()
        std = SMALL if self.small_start else None
        layer.first = Convolution(inputs, self.hidden_size, self.kernel_size, self.bias, std)
        layer.second = Convolution(self.hidden_size, self.hidden_size, self.kernel_size, self.bias, std)
        layer.aside = None
        if inputs != self.hidden_size:
            layer.aside = nn.Linear(inputs, self.hidden_size, self.bias)
            nn.init.normal_(layer.aside.weight, std=SMALL)
        return layer

    def widths_of(self, part: str) -> list[int] | None:
        if part == "h":
            return None
        channels = [self.hidden_size] * self.num_layers
        if part == "first":
            channels[0] = self.input_size
        return [width * (self.kernel_size - 1) * 2**number for number, width in enumerate(channels)]

    def width_of(self, part: str) -> int:
        widths = self.widths_of(part)
        return self.hidden_size if widths is None else sum(widths)

    def run_layer(self, layer: Any, x: Tensor, state: State, valid: Tensor | None) -> tuple[Tensor, State]:
        before, first, second = state
        y, first = self._convolved(layer.first, 2 * layer.number, x, first, valid)
        y, second = self._convolved(layer.second, 2 * layer.number + 1, y, second, valid)
        aside = x if layer.aside is None else linear(x, layer.aside.weight, layer.aside.bias)
        output = torch.relu(y + aside)
        return output, (after_last(output, before, valid), first, second)

    def _convolved(
        self, convolution: "Convolution", place: int, x: Tensor, past: Tensor, valid: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The result (T, B, H), and the last inputs of each sample, flat."""
        dilation = 2 ** (place // 2)
        back = (self.kernel_size - 1) * dilation
        seen = torch.cat((past.unflatten(1, (back, x.shape[2])).transpose(0, 1).to(x.dtype), x))
        y = torch.relu(convolution(seen, dilation, len(x)))
        if self.training and self.dropout:
            y = y * dropout_factors(self, y.shape[1], y.shape[2], self.dropout, place, y)
        if valid is None:
            last = seen[len(x) :]
        else:  # a sample of length n ends with the numbers n to n + back - 1 of what was seen
            at = torch.arange(back, device=x.device)[:, None] + valid.sum(0)
            last = seen.gather(0, at.unsqueeze(-1).expand(-1, -1, x.shape[2]))
        return y, last.transpose(0, 1).flatten(1)

    def drop(self, x: Tensor, number: int) -> Tensor:
        return x

    def count_ops(self, steps: int, updates: float = 1.0) -> float:
        """Two sums over taps and channels, three relus as nonlinear functions, and the sum of both branches. The
        weights' normalisation is done once, not at every step."""
        units, taps, total = self.hidden_size, self.kernel_size, 0
        for inputs in self.widths:
            aside = 0 if inputs == units else 2 * inputs
            total += 2 * taps * inputs + 2 * taps * units + 15 + 1 + aside
        return steps * units * total


class Convolution(nn.Module):
    """Over time, with normalised weights: `direction` (H, C, k), v in the paper, and `length` (H, 1, 1), g."""

    def __init__(self, inputs: int, outputs: int, kernel_size: int, bias: bool, std: float | None = None):
        """The weights start from N(0, std^2), or as torch's."""
        super().__init__()
        start = nn.Conv1d(inputs, outputs, kernel_size, bias=bias)
        if std is not None:
            nn.init.normal_(start.weight, std=std)
        self.direction, self.bias = start.weight, start.bias
        self.length = nn.Parameter(start.weight.detach().square().sum((1, 2), keepdim=True).sqrt())

    def forward(self, seen: Tensor, dilation: int, steps: int) -> Tensor:
        """(steps, B, H) of what was seen, (steps + (k - 1) dilation, B, C).

        One product a tap: a tap reads one piece of memory, and the sums have the same bits every time, which those of
        cuDNN's convolutions do not always have.
        """
        size = self.direction.square().sum((1, 2), keepdim=True).sqrt()
        taps = (self.direction * (self.length / size)).permute(2, 0, 1).contiguous()
        sums = linear(seen[:steps].flatten(0, 1), taps[0], self.bias)
        for number in range(1, len(taps)):
            start = number * dilation
            sums = torch.addmm(sums, seen[start : start + steps].flatten(0, 1), taps[number].T)
        return sums.unflatten(0, (steps, seen.shape[1]))
