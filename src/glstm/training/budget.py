"""The computational budget: a term of the loss that penalises openness."""

import torch
from torch import Tensor, nn

from glstm.layers import gated_layers


def budget(model: nn.Module, times: Tensor | int) -> Tensor:
    """Mean openness over steps and units of every gated layer, differentiable; add `lambda * budget` to the loss.

    It uses the k of the network itself, with its threshold. A number T stands for times 1..T. The paper writes a mean
    and then a sum; with the sum, lambda = 1 closes every gate.
    """
    tables = [layer.openness(times).flatten() for layer in gated_layers(model)]
    if not tables:
        raise ValueError("the model has no gated layer, so it has no openness to charge for")
    return torch.cat(tables).mean()
