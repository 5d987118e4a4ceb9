"""What a network does with raw numbers before its layer and after its head. It is part of the network and is saved with
it, so that a trained network takes and returns the numbers that the user has."""

import torch
from torch import Tensor, nn

MISSING = ("refuse", "carry", "mask")


class Standardize(nn.Module):
    """x -> (x - mean) / scale, channel by channel; (..., D) -> (..., D), or (..., 2D) with a mask.

    Args:
        size: D, the number of channels. `mean` and `scale` (D) are buffers, 0 and 1 at first: set them.
        missing: What a NaN in x becomes. "carry": the channel's last value, or its mean if there is none yet. "mask":
            the same, and one more channel for each channel, 1 where it was observed, else 0. "refuse": for data without
            NaN; a NaN passes, to be seen in the output.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, size: int, missing: str = "refuse"):
        super().__init__()
        if missing not in MISSING:
            raise ValueError(f"missing must be one of {', '.join(MISSING)}, not {missing!r:.50}")
        self.size, self.missing = size, missing
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    @property
    def outputs(self) -> int:
        """How many channels come out: D, or 2D with a mask."""
        return 2 * self.size if self.missing == "mask" else self.size

    def forward(self, x: Tensor, steps_axis: int = 0) -> Tensor:
        """x (..., D), with its steps along `steps_axis`, standardised."""
        if self.missing == "refuse":
            return (x - self.mean) / self.scale
        observed = ~x.isnan()
        standard = torch.where(observed, (x - self.mean) / self.scale, 0)
        filled = _carried(standard, observed, steps_axis)
        return torch.cat((filled, observed.to(x.dtype)), -1) if self.missing == "mask" else filled

    def extra_repr(self) -> str:
        return f"{self.size}, missing={self.missing!r}"


class Rescale(nn.Module):
    """y -> y * scale + mean, output by output: a network's standardised outputs in the unit of the targets."""

    mean: Tensor
    scale: Tensor

    def __init__(self, size: int):
        super().__init__()
        self.size = size
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    def forward(self, y: Tensor) -> Tensor:
        """y (..., K) in the unit of the targets."""
        return y * self.scale + self.mean

    def extra_repr(self) -> str:
        return f"{self.size}"


def _carried(x: Tensor, observed: Tensor, axis: int) -> Tensor:
    """Every missing value replaced by the last one observed before it; x holds 0 where nothing was observed."""
    steps = torch.arange(x.shape[axis], device=x.device)
    steps = steps.view(-1, *[1] * (x.dim() - axis - 1)).expand(x.shape)
    last = torch.where(observed, steps, 0).cummax(axis).values  # 0 where there is none yet: x is 0 there, too
    return x.gather(axis, last)
