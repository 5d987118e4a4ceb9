"""How many operations a network needs: the paper's formulas, and the exact count when frozen contributions are stored.

The paper counts a multiply or an add as one operation and a nonlinear function as five.
"""

from typing import Any

import torch
from torch import Tensor, nn

from glstm.errors import UserError
from glstm.gated import GatedLSTM

GATE_OPS = 13  # the paper's figure for computing one k; natural counting gives 14 to 16

# Of one unit of torch's own layers: how many sums it has, and operations besides. Of the GRU these are three nonlinear
# functions, the reset and the sum of the candidate's two parts, and the four of (1 - z) n + z h.
TORCHS = {"LSTM": (4, 29), "GRU": (3, 21), "RNN_TANH": (1, 5), "RNN_RELU": (1, 5)}


def operations_of(layer: nn.Module, steps: int, updates: float = 1.0) -> float:
    """Operations of one sequence through all layers of any recurrent layer, all counted in the same way.

    A cell that skips is asked at its share of `updates`, and what a skipped step still costs it says itself. A gated
    layer keeps frozen contributions (`count_cached_ops`), at the steps 1, 2, ... and its present threshold; its weights
    that are exactly 0, as pruning leaves them, take no operation.
    """
    if not 0 <= updates <= 1:
        raise ValueError(f"updates is a share between 0 and 1, not {updates!r}")
    if isinstance(layer, GatedLSTM):
        tables = zip(_openness(layer, steps), widths(layer), kernels(layer), strict=True)
        return sum(_of_table(table, width, own) for table, width, own in tables)
    if isinstance(layer, nn.RNNBase):
        return steps * _of_torchs(layer)
    if not knows_operations(layer):
        raise UserError(
            f"the operations of a {type(layer).__name__} are not known: a cell says them by a method "
            "count_ops(steps, updates)"
        )
    counted: Any = layer
    return counted.count_ops(steps, updates)


def kernels(layer: GatedLSTM) -> list[tuple[Tensor, Tensor]]:
    """weight_ih and weight_hh of each layer and direction."""
    return [layer.weights(suffix)[:2] for _, suffix in layer.places()]


def knows_operations(layer: nn.Module) -> bool:
    return isinstance(layer, GatedLSTM | nn.RNNBase) or callable(getattr(layer, "count_ops", None))


def widths(layer: GatedLSTM | nn.RNNBase) -> list[int]:
    """How many inputs each layer has, for each direction."""
    directions = 2 if layer.bidirectional else 1
    above = (getattr(layer, "proj_size", 0) or layer.hidden_size) * directions
    return [layer.input_size if row < directions else above for row in range(layer.num_layers * directions)]


@torch.no_grad()
def _openness(layer: GatedLSTM, steps: int) -> Tensor:
    """k in evaluation, (layers and directions, T, H)."""
    training = layer.training
    try:
        return layer.eval().openness(steps)
    finally:
        layer.train(training)


def _of_table(table: Tensor, inputs: int, weights: tuple[Tensor, Tensor]) -> float:
    """A unit that is always wide open has no gate to be computed: that is an LSTM."""
    steps, units = table.shape
    if not bool((table == 1).all()):
        return count_cached_ops(table, inputs, weights)
    return count_ops(steps, units, inputs) - 2 * steps * sum(int((weight == 0).sum()) for weight in weights)


def _of_torchs(layer: nn.RNNBase) -> int:
    """Of one step. With a projection, h is a further product, of H numbers for each of its own."""
    units, out = layer.hidden_size, layer.proj_size or layer.hidden_size
    sums, others = TORCHS[layer.mode]
    project = layer.proj_size * (2 * units - 1)
    return sum(units * (2 * sums * (inputs + out) + others) + project for inputs in widths(layer))


def count_ops(steps: int, hidden: int, inputs: int, openness: float | None = None) -> float:
    """The paper's count for one sequence through one layer: N_LSTM = T H (8D + 8H + 29).

    Args:
        steps: T.
        hidden: H.
        inputs: D.
        openness: The open share of all gates, between 0 and 1: the count is then openness x N_LSTM + N_gate, where
            N_gate = 13 T H. None: a plain LSTM.
    """
    lstm = steps * hidden * (8 * inputs + 8 * hidden + 29)
    if openness is None:
        return lstm
    if not 0 <= openness <= 1:
        raise ValueError(f"openness is a share between 0 and 1, not {openness!r}")
    return openness * lstm + GATE_OPS * steps * hidden


def count_cached_ops(k: Tensor, inputs: int, weights: tuple[Tensor, Tensor] | None = None) -> int:
    """The exact count for one sequence with the table k (T, H), when nothing is computed twice.

    k does not depend on the input, so it is a table. A closed unit's h is constant, so its contribution to the other
    units' sums is stored. With A_n the units open at step n, C_n = A_n & A_{n-1}, B_n = A_n - A_{n-1} and E_n the
    units open at any step before n:

        N = sum_n 8 |C_n| |A_{n-1}| + 8 |B_n| |E_n| + |A_{n-1}| + |A_n| (8D + 29 + 7)

    Args:
        k: The table (T, H).
        inputs: D.
        weights: weight_ih (4H, D) and weight_hh (4H, H), if those that are 0 are not to be counted; None: all are.
    """
    is_open = k > 0
    now = is_open.sum(1)
    before = now.roll(1)
    before[:1] = 0
    stay = (is_open[1:] & is_open[:-1]).sum(1)
    newly = now.clone()
    newly[1:] -= stay
    ever = is_open.cumsum(0).gt(0).sum(1).roll(1)
    ever[:1] = 0
    staying = 8 * (stay * before[1:]).sum()
    fresh = 8 * (newly * ever).sum()
    found = int(staying + fresh + before.sum() + now.sum() * (8 * inputs + 29 + 7))
    return found if weights is None else found - _of_zeros(is_open, *weights)


@torch.no_grad()
def _of_zeros(is_open: Tensor, weight_ih: Tensor, weight_hh: Tensor) -> int:
    """The operations in `count_cached_ops` of weights that are 0: a multiply and an add whenever one would be used."""
    now = is_open.cpu().double()  # whole numbers, and exact
    units = now.shape[1]
    of_x = (weight_ih == 0).view(4, units, -1).sum((0, 2)).cpu().double()
    of_h = (weight_hh == 0).view(4, units, units).sum(0).cpu().double()  # (to, from)
    before, ever = torch.zeros_like(now), torch.zeros_like(now)
    before[1:], ever[1:] = now[:-1], now.cumsum(0).clamp(max=1)[:-1]
    stay = now * before
    used = stay.T @ before + (now - stay).T @ ever
    return int(2 * ((used * of_h).sum() + now.sum(0) @ of_x))
