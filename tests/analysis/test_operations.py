"""Operation counts: the paper's figures, and the exact count against a step-by-step tally."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from glstm import GLSTM, LSTM, PLSTM, count_cached_ops, count_ops
from glstm.analysis import operations_of
from glstm.errors import UserError


def test_the_papers_figures():
    assert count_ops(784, 110, 1) / 1e6 == pytest.approx(79.08, abs=0.005)
    assert count_ops(784, 110, 1, 1.0) / 1e6 == pytest.approx(80.20, abs=0.005)
    assert count_ops(784, 110, 1, 0.082) / 1e6 == pytest.approx(7.61, abs=0.005)
    with pytest.raises(ValueError, match=r"openness is a share between 0 and 1, not 8\.2"):
        count_ops(784, 110, 1, 8.2)


def tally(is_open: torch.Tensor, inputs: int) -> int:
    """The formula, literally, with sets."""
    total, ever, before = 0, set(), set()
    for row in is_open:
        now = set(row.nonzero().flatten().tolist())
        total += 8 * len(now & before) * len(before) + 8 * len(now - before) * len(ever) + len(before)
        total += len(now) * (8 * inputs + 29 + 7)
        ever |= now
        before = now
    return total


@given(steps=st.integers(0, 12), hidden=st.integers(1, 6), inputs=st.integers(1, 3), share=st.floats(0, 1))
def test_the_exact_count_equals_a_tally(steps, hidden, inputs, share):
    k = (torch.rand(steps, hidden) < share).float()
    assert count_cached_ops(k, inputs) == tally(k > 0, inputs)


def test_cached_work_at_the_papers_operating_point():
    """8.2 % open: 0.92 M operations on average, 86 times fewer than the LSTM."""
    counts, shares = [], []
    for seed in range(50):
        torch.manual_seed(seed)
        k = GLSTM(1, 110, mu=(1, 784), sigma=15.3, threshold=0.01).openness(784)[0]
        counts.append(count_cached_ops(k, 1))
        shares.append(k.gt(0).float().mean().item())
    assert sum(shares) / 50 == pytest.approx(0.082, abs=0.001)
    assert sum(counts) / 50 / 1e6 == pytest.approx(0.92, abs=0.02)


def test_operations_of_any_layer_are_counted_alike():
    steps, inputs, units = 784, 1, 110
    paper = count_ops(steps, units, inputs)
    assert operations_of(nn.LSTM(inputs, units), steps) == operations_of(LSTM(inputs, units), steps) == paper
    gru = operations_of(nn.GRU(inputs, units), steps)
    assert gru == steps * units * (6 * inputs + 6 * units + 21)
    assert operations_of(nn.RNN(inputs, units), steps) == steps * units * (2 * inputs + 2 * units + 5)
    stack = operations_of(nn.LSTM(inputs, units, 2, bidirectional=True), steps)
    assert stack == 2 * paper + 2 * count_ops(steps, units, 2 * units)
    assert stack == operations_of(LSTM(inputs, units, 2, bidirectional=True), steps)
    projected = operations_of(nn.LSTM(2, 6, proj_size=3), 1)
    assert projected == 6 * (8 * 2 + 8 * 3 + 29) + 3 * 11


def test_a_gated_layer_is_counted_at_its_threshold_and_in_evaluation():
    torch.manual_seed(0)
    layer = GLSTM(3, 10, mu=(1, 100), sigma=5.0, threshold=0.01).train()
    expected = count_cached_ops(layer.openness(100)[0], 3)
    assert operations_of(layer, 100) == expected < count_ops(100, 10, 3)
    assert layer.training
    leaky = PLSTM(3, 10, tau=50.0, s=(0.0, 50.0), r=0.1)
    assert operations_of(leaky.train(), 100) == operations_of(leaky.eval(), 100)


def test_a_cell_says_its_own_operations_at_its_share_of_updates():
    class Counting(nn.Module):
        def count_ops(self, steps: int, updates: float = 1.0) -> float:
            return 7 * steps * updates

    assert operations_of(Counting(), 10, 0.5) == 35
    with pytest.raises(ValueError, match=r"updates is a share between 0 and 1, not 1\.5"):
        operations_of(Counting(), 10, 1.5)
    with pytest.raises(UserError, match="the operations of a Linear are not known: a cell says them by a method"):
        operations_of(nn.Linear(1, 1), 10)
