"""What a training step reports: the task's own loss, whatever a cell adds to it."""

import torch
from torch import nn

from glstm import LSTM, SequenceModel
from glstm.data import Task
from glstm.training import Population, Settings


class Adding(LSTM):
    """An LSTM that wants 100 to be added to the loss of each sample, and more for large weights."""

    def extra_losses(self, losses, errors):
        assert errors is None  # there are no classes
        return 100 + self.weight_hh_l0.square().sum() + 0 * losses


def test_the_loss_that_is_recorded_is_the_tasks_own():
    x = torch.randn(20, 6, 1, generator=torch.Generator().manual_seed(1))
    task = Task.from_arrays(x, x.sum(1), test=0.2, validation=0.0)

    def first_loss(cell: type[LSTM]) -> tuple[float, torch.Tensor]:
        torch.manual_seed(0)
        model = SequenceModel(cell(1, 4), nn.Linear(4, 1))
        population = Population(task, lambda: model, Settings(batch=16, epochs=1, gate_lr=0.0))
        (loss,) = population.train(1)
        return loss, model.layer.weight_hh_l0.detach().clone()

    (plain, trained), (own, shrunk) = first_loss(LSTM), first_loss(Adding)
    assert own == plain
    assert not torch.equal(trained, shrunk)
