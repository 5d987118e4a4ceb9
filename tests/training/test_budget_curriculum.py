"""The budget charges for openness; the curriculum buys it back."""

import numpy as np
import pytest
import torch

from glstm import GLSTM, LSTM, GatedLSTM, Periodic, TemporalCurriculum, budget, to_lstm


def test_budget_is_the_mean_openness_and_pulls_gates_shut():
    layer = GLSTM(2, 8, num_layers=2, mu=(1, 50), sigma=20.0)
    layers = [layer, GLSTM(2, 3, mu=25.0, sigma=5.0)]
    tables = [layer.openness(50).flatten() for layer in layers]
    value = budget(torch.nn.ModuleList(layers), 50)
    assert value.item() == pytest.approx(torch.cat(tables).mean().item())
    value.backward()
    assert (layer.sigma_l0.grad > 0).all()  # a wider gate costs more
    assert budget(LSTM(2, 3), 10).item() == 1
    with pytest.raises(ValueError, match="no gated layer"):
        budget(torch.nn.Linear(1, 1), 10)


def test_budget_takes_any_times_and_names_what_it_cannot_take():
    layer = GLSTM(2, 8, mu=(1, 12), sigma=3.0, batch_first=True)
    rows = [torch.arange(1.0, 8.0), torch.arange(3.0, 6.0), torch.arange(2.0, 14.0)]
    packed = torch.nn.utils.rnn.pack_sequence(rows, enforce_sorted=False)
    each = torch.cat([layer.openness(row).flatten() for row in rows])
    assert budget(layer, packed).item() == pytest.approx(each.mean().item())
    assert (
        budget(layer, np.arange(1, 13)).item() == budget(layer, 12).item() == budget(layer, list(range(1, 13))).item()
    )
    with pytest.raises(TypeError, match="budget takes a model or a layer, not NoneType"):
        budget(None, 10)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="budget needs the times"):
        budget(layer, None)
    with pytest.raises(ValueError, match=r"a single number in place of times is a number of steps, not 2.5"):
        budget(layer, 2.5)
    with pytest.raises(ValueError, match=r"not datetime64\[D\]; dates become numbers"):
        budget(layer, np.array(["2024-01-01", "2024-01-02"], "datetime64[D]"))


def test_budget_charges_only_for_what_the_threshold_leaves_open():
    layer = GLSTM(2, 8, mu=(1, 50), sigma=5.0)
    free = budget(layer, 50)
    layer.threshold = 0.5
    assert budget(layer, 50) < free
    times = torch.linspace(0, 50, 30)
    assert budget(layer, times).item() == pytest.approx(layer.openness(times).mean().item())


def test_curriculum_widens_the_narrowest_share():
    sigma = torch.tensor([5.0, 1.0, 3.0, -2.0, 9.0, 4.0, 8.0, 7.0, 6.0, 10.0])
    layer = GLSTM(2, 10, sigma=sigma.abs())
    layer.sigma_l0.data.copy_(sigma)  # as an optimiser may leave it
    curriculum = TemporalCurriculum(layer, alpha=0.5, rho=0.25)  # round(2.5) = 2 units
    curriculum.step()
    expected = sigma.clone()
    expected[[1, 3]] *= 1.5
    assert torch.equal(layer.sigma_l0.detach(), expected)
    assert not layer.sigma_l0.requires_grad
    assert not layer.mu_l0.requires_grad
    curriculum.open()
    assert (layer.sigma_l0 == 5000).all()


def test_curriculum_breaks_ties_in_index_order():
    layer = GLSTM(2, 110, sigma=50.0)
    curriculum = TemporalCurriculum(layer)
    widened = []
    for _ in range(2):
        before = layer.sigma_l0.detach().clone()
        curriculum.step()
        widened.append((layer.sigma_l0 != before).nonzero().flatten().tolist())
    assert widened == [list(range(16)), list(range(16, 32))]  # round(0.15 * 110) = 16 (paper: 15 %)
    assert layer.sigma_l0[0].item() == pytest.approx(50 * 7 / 6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"alpha": 0}, "alpha must be above 0"), ({"rho": 1.5}, "rho is a share"), ({"model": LSTM(2, 3)}, "has none")],
)
def test_bad_curricula_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        TemporalCurriculum(**{"model": GLSTM(2, 3), **arguments})


def test_gates_that_come_back_pay_and_open_too():
    layer = GatedLSTM(2, 10, gate=Periodic(mu=(1, 8), sigma=1.0, tau=7.5))
    budget(layer, 50).backward()
    assert (layer.sigma_l0.grad > 0).all()
    assert layer.tau_l0.grad.isfinite().all()
    before = layer.gate_in_time("_l0")
    curriculum = TemporalCurriculum(layer, alpha=0.5, rho=0.2)
    curriculum.step()
    after = layer.gate_in_time("_l0")
    assert sorted(after["sigma"].tolist()) == [1.0] * 8 + [1.5] * 2
    assert all(torch.equal(after[name], before[name]) for name in ("mu", "tau"))
    assert not any(parameter.requires_grad for parameter in layer.gate_parameters())
    curriculum.open(500.0)
    x = torch.randn(50, 3, 2)
    assert torch.allclose(to_lstm(layer)(x)[0], layer(x)[0], atol=1e-3)
