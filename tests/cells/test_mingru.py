"""The minimal GRU against the paper's equations, number by number."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from glstm.cells.mingru import MinGRU
from helpers import relative_error


def sigmoid(v: float) -> float:
    return 1 / (1 + math.exp(-v))


def g(v: float) -> float:
    return v + 0.5 if v >= 0 else sigmoid(v)


def by_the_paper(cell: MinGRU, x: Tensor) -> Tensor:
    layers: list[Any] = list(cell.layers)
    for layer in layers:
        weight, bias = layer.weight, layer.bias
        h, units = torch.zeros(len(x), x.shape[1], cell.hidden_size, dtype=x.dtype), cell.hidden_size
        for sample in range(x.shape[1]):
            for unit in range(units):
                state = 0.0
                for n in range(len(x)):
                    z = sigmoid(float(weight[unit] @ x[n, sample] + bias[unit]))
                    candidate = float(weight[units + unit] @ x[n, sample] + bias[units + unit])
                    state = (1 - z) * state + z * (g(candidate) if cell.positive else candidate)
                    h[n, sample, unit] = state
        x = h
    return x


@pytest.mark.parametrize("positive", [False, True])
def test_the_equations(positive):
    torch.manual_seed(1)
    cell, x = MinGRU(3, 4, 2, positive=positive).double(), torch.randn(6, 2, 3, dtype=torch.float64)
    with torch.no_grad():
        output, state = cell(x)
        expected = by_the_paper(cell, x)
    assert relative_error(output, expected) < 1e-13
    assert torch.equal(state[-1], output[-1])
    assert not positive or bool((output > 0).all())


def test_operations():
    assert MinGRU(3, 5).count_ops(10) == 10 * 5 * (4 * 3 + 9)
    assert MinGRU(3, 5, 2, positive=True).count_ops(10) == 10 * 5 * (4 * 3 + 14 + 4 * 5 + 14)
