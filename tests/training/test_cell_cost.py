"""What a network without gates costs: its updates are measured, and its sequences may have unequal lengths."""

import pytest
import torch
from torch import nn

from glstm import SequenceModel
from glstm.analysis import operations_of
from glstm.cells.skip import SkipLSTM
from glstm.data import ArrayTask
from glstm.data.task import Batch
from glstm.training.evaluate import cell_cost

LENGTHS = torch.arange(3, 15).repeat(3)


def task(batch_of_lengths: bool = True) -> ArrayTask:
    torch.manual_seed(0)
    lengths = LENGTHS if batch_of_lengths else None
    return ArrayTask(torch.randn(36, 14, 2), torch.arange(36) % 2, lengths=lengths, validation=0.0, test=0.3)


def model(layer: nn.Module) -> SequenceModel:
    return SequenceModel(layer, nn.Linear(5, 2)).train()


def test_updates_are_measured_over_all_real_steps():
    torch.manual_seed(1)
    made, made_of = model(SkipLSTM(2, 5)), task()
    nn.init.normal_(made.layer.gate.weight, std=1.5)
    nn.init.zeros_(made.layer.gate.bias)
    updates, lengths = 0.0, []
    for found in made_of.batches("test", 1):
        batch = Batch(*found)
        assert batch.lengths is not None
        length = int(batch.lengths)
        made.eval()(batch.x[:length])
        updates += length * made.layer.share_of_updates.item()
        lengths.append(length)
    found = cell_cost(made.train(), made_of, batch=4)
    assert found is not None
    assert found.updates == pytest.approx(updates / sum(lengths))
    assert 0.1 < found.updates < 0.95
    wanted = sum(made.layer.count_ops(length, found.updates) for length in lengths) / len(lengths)
    assert found.ops == pytest.approx(wanted)
    assert made.training
    assert made.layer.share_of_updates is None


def test_a_cell_that_skips_nothing():
    for lengths in (True, False):
        layer, made_of = nn.GRU(2, 5), task(lengths)
        batches = [Batch(*found) for found in made_of.batches("test", 1)]
        steps = [14 if batch.lengths is None else int(batch.lengths) for batch in batches]
        found = cell_cost(model(layer), made_of)
        assert found is not None
        assert found.updates == 1
        assert found.ops == pytest.approx(sum(operations_of(layer, one) for one in steps) / len(steps))


def test_nobody_knows_what_a_foreign_cell_costs():
    class Foreign(nn.Module):
        hidden_size = 5

    assert cell_cost(model(Foreign()), task()) is None
