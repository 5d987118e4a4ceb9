"""A recurrent layer and a head that reads its final state: the networks of the paper."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

from glstm.gated import GatedLSTM


class SequenceModel(nn.Module):
    """x (T, B, D) -> head(h_n of the top layer, both directions side by side) (B, outputs)."""

    def __init__(self, layer: GatedLSTM, head: nn.Module):
        if not isinstance(layer, GatedLSTM):
            raise TypeError(f"the layer must be a GLSTM, PLSTM, LSTM or GatedLSTM of glstm, not {type(layer)}")
        super().__init__()
        self.layer = layer
        self.head = head

    def forward(self, x: Tensor, times: Tensor | None = None) -> Tensor:
        _, (h_n, _) = self.layer(x, times=times, sequence=False)
        return self.head(h_n[-1] if self.layer.num_directions == 1 else torch.cat((h_n[-2], h_n[-1]), -1))

    def save_pretrained(self, folder: Path | str) -> None:
        """Write `model.safetensors` and `config.json` into a folder, from which `from_pretrained` makes it again."""
        from glstm.pretrained import save_pretrained

        save_pretrained(self, folder)

    @classmethod
    def from_pretrained(cls, folder: Path | str) -> "SequenceModel":
        """The network in a folder that `save_pretrained` or `glstm train` wrote, in evaluation mode."""
        from glstm.pretrained import from_pretrained

        return from_pretrained(folder)


class DropConnect(nn.Linear):
    """A linear layer of which each weight is dropped with probability p in training (Wan et al., 2013)."""

    def __init__(self, in_features: int, out_features: int, p: float = 0.5):
        super().__init__(in_features, out_features)
        self.p = p

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, dropout(self.weight, self.p, self.training), self.bias)


def linear_head(hidden_size: int, outputs: int) -> nn.Module:
    return nn.Linear(hidden_size, outputs)


def deep_head(hidden_size: int, outputs: int, width: int = 256) -> nn.Sequential:
    """Two ReLU layers, Drop-Connect on the second: the paper's sCIFAR-10 network, after Trinh et al. (2018)."""
    return nn.Sequential(
        nn.Linear(hidden_size, width), nn.ReLU(), DropConnect(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )
