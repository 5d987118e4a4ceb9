"""The computational budget: a term of the loss that penalises openness."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from glstm.layers import gated_layers


def budget(model: nn.Module, times: Any) -> Tensor:
    """Mean openness over steps and units of every gated layer, differentiable; add `lambda * budget` to the loss.

    It uses the k of the network itself, with its threshold. The paper writes a mean and then a sum; with the sum,
    lambda = 1 closes every gate.

    Args:
        model: A model or a layer.
        times: As `openness` takes them; a number T stands for 1..T. Of packed times, only steps that are no padding
            count.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"budget takes a model or a layer, not {type(model).__name__}")
    if times is None:
        raise ValueError("budget needs the times at which gates may be open, or the number of steps, not None")
    tables = [layer.openness(times) for layer in gated_layers(model)]
    if not tables:
        raise ValueError("the model has no gated layer, so it has no openness to charge for")
    if isinstance(times, PackedSequence):  # padding is closed, and must not be counted
        pairs = sum(table.shape[0] * table.shape[-1] for table in tables) * len(times.data)
        return torch.stack([table.sum() for table in tables]).sum() / pairs
    return torch.cat([table.flatten() for table in tables]).mean()
