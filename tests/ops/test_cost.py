"""The estimate behind the choice between dense and sparse: it must know the large differences."""

import pytest
import torch

from glstm.ops import cpu

needs_engine = pytest.mark.skipif(cpu.engine() is None, reason="the C engine was not built")


def chosen(openness, batch, taped, hidden=110, threads=1):
    span = round(200 * openness)
    starts = torch.linspace(0, 200 - span, hidden).long()
    k = torch.zeros(200, hidden)
    for unit, start in enumerate(starts):
        k[start : start + span, unit] = 0.5
    return cpu.sparse_plan((200, batch, 1), k, False, taped, threads) is not None


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
        assert cpu.sparse_plan((5, 2, 1), k, False, False, 1) is not None
        with cpu.forcing("dense"):
            assert cpu.sparse_plan((5, 2, 1), torch.zeros(5, 3), False, False, 1) is None
    assert cpu.sparse_plan((5, 2, 1), k, False, False, 1) is None
