"""The estimate behind the choice between dense and sparse: it must know the large differences."""

import pytest
import torch

from glstm.ops import cost, cpu

needs_engine = pytest.mark.skipif(cpu.engine() is None, reason="the C engine was not built")


def table(openness, hidden=110):
    """Each unit open for its share of 200 steps, one after the other."""
    span = round(200 * openness)
    starts = torch.linspace(0, 200 - span, hidden).long()
    k = torch.zeros(200, hidden)
    for unit, start in enumerate(starts):
        k[start : start + span, unit] = 0.5
    return k


def chosen(openness, batch, taped, threads=1):
    return cpu.sparse_path((200, batch, 1), table(openness), False, taped, threads) is not None


@needs_engine
@pytest.mark.parametrize("taped", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch", [1, 16, 100])
def test_mostly_closed_units_are_skipped_and_fully_open_ones_are_not(batch, taped, threads):
    assert chosen(0.05, batch, taped, threads=threads)
    if batch != 16:  # where one vector holds all samples, both are equally quick
        assert not chosen(1.0, batch, taped, threads=threads)


@needs_engine
def test_once_the_dense_path_is_chosen_more_openness_never_brings_the_sparse_one_back():
    for batch in (1, 4, 16, 100):
        for taped in (False, True):
            choices = [chosen(share / 20, batch, taped) for share in range(1, 21)]
            assert choices == sorted(choices, reverse=True)


@needs_engine
def test_forcing_a_path():
    k = torch.ones(5, 3)
    with cpu.forcing("sparse"):
        assert cpu.sparse_path((5, 2, 1), k, False, False, 1) is not None
        with cpu.forcing("dense"):
            assert cpu.sparse_path((5, 2, 1), torch.zeros(5, 3), False, False, 1) is None
    assert cpu.sparse_path((5, 2, 1), k, False, False, 1) is None


@needs_engine
def test_no_schedule_is_made_where_it_cannot_pay(monkeypatch):
    monkeypatch.setattr(cpu, "Schedule", None)
    for batch in (1, 100):
        for taped in (False, True):
            assert not chosen(1.0, batch, taped)
            with pytest.raises(TypeError):
                chosen(0.05, batch, taped)


@needs_engine
def test_the_bound_is_one():
    for openness in (0.02, 0.1, 0.3, 0.7, 1.0):
        k = table(openness)
        for batch in (1, 4, 16, 100):
            for taped in (False, True):
                shape = cost.Shape(200, batch, 1, 110, 16, 1)
                bound = cost.sparse_at_least(shape, taped, int(k.count_nonzero()))
                assert bound <= cost.best_sparse(shape, taped, cpu.Schedule(k).counts)[0]
