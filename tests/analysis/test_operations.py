"""Operation counts: the paper's figures, and the exact count against a step-by-step tally."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glstm import GLSTM, count_cached_ops, count_ops


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
