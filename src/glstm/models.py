"""A recurrent layer and a head that reads its final state: the networks of the paper, around any cell."""

from pathlib import Path
from typing import Any

from torch import Tensor, cat, nn, where
from torch.nn.functional import linear

from glstm import masks
from glstm.gated import GatedLSTM


class SequenceModel(nn.Module):
    """x (T, B, D) -> head(h_n of the top layer, both directions side by side) (B, outputs).

    `layer` is any module with `torch.nn.LSTM`'s calling convention: x in, output and state out. A state may also be a
    single tensor, as `torch.nn.GRU`'s is.
    """

    layer: Any  # of any class: only deployment and code that reads gates need to know which

    def __init__(self, layer: nn.Module, head: nn.Module):
        if not callable(getattr(layer, "forward", None)) or not isinstance(layer, nn.Module):
            raise TypeError(f"the layer must be a module with torch.nn.LSTM's convention, not {type(layer).__name__}")
        super().__init__()
        self.layer = layer
        self.head = head

    def forward(self, x: Tensor, times: Tensor | None = None) -> Tensor:
        if isinstance(self.layer, GatedLSTM):
            _, state = self.layer(x, times=times, sequence=False)
        elif times is None:
            _, state = self.layer(x)
        else:
            _, state = self.layer(x, times=times)
        h_n = state if isinstance(state, Tensor) else state[0]
        directions = 2 if getattr(self.layer, "bidirectional", False) else 1
        return self.head(h_n[-1] if directions == 1 else cat((h_n[-2], h_n[-1]), -1))

    def save_pretrained(self, folder: Path | str) -> None:
        """Write `model.safetensors` and `config.json` into a folder, from which `from_pretrained` makes it again."""
        from glstm.pretrained import save_pretrained

        save_pretrained(self, folder)

    @classmethod
    def from_pretrained(cls, folder: Path | str) -> "SequenceModel":
        """The network in a folder that `save_pretrained` or `glstm train` wrote, in evaluation mode."""
        from glstm.pretrained import from_pretrained

        return from_pretrained(folder)


class DropConnect(masks.Keyed, nn.Linear):
    """A linear layer of which each weight is dropped with probability p in training (Wan et al., 2013)."""

    def __init__(self, in_features: int, out_features: int, p: float = 0.5):
        if not 0 <= p < 1:
            raise ValueError(f"p is the probability that a weight is dropped, at least 0 and below 1, not {p!r}")
        super().__init__(in_features, out_features)
        self.p = p

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self._thinned() if self.training else self.weight, self.bias)

    def _thinned(self) -> Tensor:
        weight = self.weight
        key = masks.random_key(weight.device) if self.key is None else self.key
        numbers = masks.number_elements(weight.numel(), weight.device)
        return where(masks.keep_mask(key, numbers, self.p).view(weight.shape), weight / (1 - self.p), 0)


def linear_head(inputs: int, outputs: int) -> nn.Module:
    return nn.Linear(inputs, outputs)


def deep_head(inputs: int, outputs: int, width: int = 256) -> nn.Sequential:
    """Two ReLU layers, Drop-Connect on the second: the paper's sCIFAR-10 network, after Trinh et al. (2018)."""
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), DropConnect(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )


HEADS = {"linear": linear_head, "deep": deep_head}


def width_of(layer: Any) -> int:
    """How many numbers a head reads: the layer's units, of both directions."""
    return layer.hidden_size * (2 if getattr(layer, "bidirectional", False) else 1)
