"""Gamma: what reaches each step, against a derivative taken by hand."""

import pytest
import torch
from torch.nn.functional import mse_loss

from glstm import GLSTM, LSTM, SequenceModel, gradient_flow

X, Y = torch.randn(6, 3, 2, dtype=torch.float64), torch.randn(3, 1, dtype=torch.float64)


def make(layer) -> SequenceModel:
    return SequenceModel(layer, torch.nn.Linear(4, 1, dtype=torch.float64))


@pytest.mark.parametrize("layers", [1, 2])
def test_gamma_is_the_mean_total_derivative(layers):
    model = make(GLSTM(2, 4, layers, mu=(1, 6), sigma=3.0, dtype=torch.float64))
    gamma = gradient_flow(model, mse_loss, X, Y)
    assert gamma.shape == (6,)
    times = torch.arange(1.0, 7.0)
    for n in range(1, 6):
        _, (h, c) = model.layer(X[:n], times=times[:n])
        h = h.detach().requires_grad_()
        _, (end, _) = model.layer(X[n:], (h, c.detach()), times=times[n:])
        per_sample = (model.head(end[-1]) - Y).square().mean(1)
        (gradient,) = torch.autograd.grad(per_sample.sum(), h)
        assert gamma[n - 1].item() == pytest.approx(gradient[-1].abs().mean().item(), rel=1e-10)
    _, (end, _) = model.layer(X)
    (gradient,) = torch.autograd.grad((model.head(end[-1]) - Y).square().mean(1).sum(), end)
    assert gamma[-1].item() == pytest.approx(gradient[-1].abs().mean().item(), rel=1e-10)


def test_a_closed_unit_hands_its_gradient_back_unchanged():
    model = make(GLSTM(2, 4, mu=1.0, sigma=0.5, threshold=0.1, dtype=torch.float64))
    gamma = gradient_flow(model, mse_loss, X, Y)
    assert torch.allclose(gamma, gamma[-1].expand(6), rtol=1e-12)


def test_a_model_that_reads_every_output_and_leaves_no_trace():
    class ReadAll(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = LSTM(2, 4, batch_first=True, dtype=torch.float64)

        def forward(self, x):
            return self.layer(x)[0].sum(1)

    model = ReadAll()
    before = model(X.transpose(0, 1))
    gamma = gradient_flow(model, lambda out, _: out.sum(1).mean(), X.transpose(0, 1), Y)
    assert gamma.shape == (6,)
    assert gamma[-1] == 1  # the last h is read once and carried nowhere
    assert torch.equal(model(X.transpose(0, 1)), before)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_has_no_gamma_is_refused():
    with pytest.raises(ValueError, match="exactly one gated layer, but this one has 0"):
        gradient_flow(torch.nn.Linear(2, 1), mse_loss, X, Y)
    with pytest.raises(ValueError, match="bidirectional"):
        gradient_flow(make(GLSTM(2, 2, bidirectional=True)), mse_loss, X, Y)
    with pytest.raises(ValueError, match="at least one step"):
        gradient_flow(make(GLSTM(2, 4, dtype=torch.float64)), mse_loss, X[:0], Y)
