"""Initialisers, as the paper uses them. Each works in place on a gated layer, a `torch.nn.LSTM` or a `torch.nn.GRU`:
names agree.

torch adds two biases, bias_ih and bias_hh. What the papers call the bias goes into bias_ih, and bias_hh is
zeroed, so that their sum is what is written here.

A GRU's update gate z is what the forget gate is to an LSTM: where it is large, the old state stays. Both are second in
torch's order of the gates.
"""

import math
from collections.abc import Iterator
from numbers import Real

import torch
from torch import Tensor, nn


@torch.no_grad()
def orthogonal_(layer: nn.Module) -> None:
    """Every H x H recurrent block orthogonal; the input kernel orthogonal as one D x 4H matrix, of a GRU D x 3H
    (Cooijmans et al.)."""
    for weight in _named(layer, "weight_hh"):
        for block in weight.chunk(_gates(layer)):
            block.copy_(_orthogonal(*block.shape))
    for weight in _named(layer, "weight_ih"):
        weight.copy_(_orthogonal(*weight.T.shape).T)
    _zero_biases(layer)


@torch.no_grad()
def xavier_(layer: nn.Module) -> None:
    """Uniform with variance 2 / (fan in + fan out) for every gate's own block (Glorot and Bengio, 2010)."""
    for name in ("weight_hh", "weight_ih"):
        for weight in _named(layer, name):
            for block in weight.chunk(_gates(layer)):
                nn.init.xavier_uniform_(block)
    _zero_biases(layer)


@torch.no_grad()
def forget_bias_(layer: nn.Module, value: float = 1.0) -> None:
    """The forget gate's bias at `value`, of a GRU the update gate's, so that an untrained network remembers (Jozefowicz
    et al., 2015)."""
    for bias in _biases(layer, "bias_ih"):
        bias.chunk(_gates(layer))[1].fill_(value)
    for bias in _biases(layer, "bias_hh"):
        bias.chunk(_gates(layer))[1].zero_()


@torch.no_grad()
def chrono_(layer: nn.Module, t_max: float) -> None:
    """b_f ~ log U(1, t_max - 1) and b_i = -b_f: memories as long as the task needs (Tallec and Ollivier, 2018).

    Of a GRU only b_z is drawn, as b_f is: 1 - z, which takes in what is new, follows from it.
    """
    check_t_max(t_max)
    gates = _gates(layer)
    for bias in _biases(layer, "bias_ih"):
        first, keep, *_ = bias.chunk(gates)
        keep.copy_(torch.empty_like(keep).uniform_(1, t_max - 1).log_())
        if gates == 4:
            first.copy_(-keep)
    for bias in _biases(layer, "bias_hh"):
        for block in bias.chunk(gates)[:2] if gates == 4 else bias.chunk(gates)[1:2]:
            block.zero_()


def check_t_max(t_max: float) -> None:
    if isinstance(t_max, bool) or not isinstance(t_max, Real) or not 2 < t_max < math.inf:
        raise ValueError(f"t_max must be a number of steps above 2, not {t_max!r:.50}")


def _gates(layer: nn.Module) -> int:
    """Blocks of its weights: four of an LSTM, three of a GRU."""
    return 3 if isinstance(layer, nn.GRU) else 4


def _orthogonal(rows: int, columns: int) -> Tensor:
    return nn.init.orthogonal_(torch.empty(rows, columns))  # in float32: no 16-bit QR exists


def _named(layer: nn.Module, start: str) -> Iterator[Tensor]:
    if not hasattr(layer, "weight_hh_l0"):
        raise ValueError(f"an initialiser takes the recurrent layer itself, not the {type(layer).__name__} around it")
    return (parameter for name, parameter in layer.named_parameters() if name.startswith(f"{start}_l"))


def _biases(layer: nn.Module, start: str) -> list[Tensor]:
    biases = list(_named(layer, start))
    if not biases:
        raise ValueError("this layer was built with bias=False, so it has no bias to initialise")
    return biases


def _zero_biases(layer: nn.Module) -> None:
    for bias in (*_named(layer, "bias_ih"), *_named(layer, "bias_hh")):
        bias.zero_()
