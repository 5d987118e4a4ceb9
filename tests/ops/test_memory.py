"""Memory for tapes comes back, and is never lent twice at once."""

import pytest
import torch

from glstm import LSTM
from glstm.ops import memory


@pytest.fixture(autouse=True)
def nothing_idle():
    memory.release()
    yield
    memory.release()


BIG = memory.LARGE + 1000


def test_memory_that_came_back_is_lent_again():
    first = memory.borrow(BIG)
    where = first.data_ptr()
    view = first[10:]
    del first
    other = memory.borrow(BIG)
    assert other.data_ptr() != where  # the view still uses it
    del view
    assert memory.borrow(BIG - 100).data_ptr() == where


def test_lent_memory_is_aligned_and_its_own():
    loans = [memory.borrow(size) for size in (1, 17, BIG, 17, BIG)]
    assert all(loan.data_ptr() % 64 == 0 for loan in loans)
    for value, loan in enumerate(loans):
        loan.fill_(value)
    assert [loan.unique().tolist() for loan in loans] == [[0], [1], [2], [3], [4]]


def test_too_much_is_not_kept(monkeypatch):
    monkeypatch.setattr(memory, "MOST_IDLE", 100)
    where = memory.borrow(BIG).data_ptr()
    assert where  # given back at once
    memory.borrow(1)
    assert memory._returned.empty()
    assert not memory._spare


def test_small_memory_is_not_kept():
    for _ in range(10):
        memory.borrow(memory.LARGE - 1)
    assert memory._returned.empty()


def test_memory_may_come_back_in_the_middle_of_borrowing():
    """A garbage collection can begin anywhere, also where the lock is held."""
    loan = memory.borrow(BIG)
    with memory._lock:
        del loan
    assert not memory._returned.empty()


def test_two_graphs_at_once_do_not_share_a_tape():
    layer, x, y = LSTM(2, 5), torch.randn(7, 3, 2), torch.randn(7, 3, 2)

    def gradient(*outputs):
        for output in outputs:
            output.sum().backward()
        found = layer.weight_hh_l0.grad.clone()
        layer.zero_grad()
        return found

    apart = gradient(layer(x)[0]) + gradient(layer(y)[0])
    assert torch.allclose(gradient(layer(x)[0], layer(y)[0]), apart, atol=1e-6)
