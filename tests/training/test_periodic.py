"""A gate that comes back finds a period that nobody told it."""

import torch

from glstm import LSTM, GatedLSTM, Periodic, SequenceModel, parameter_groups

STEPS, PERIOD, FIRST = 60, 7, 3
UPDATES, UNITS = 300, 16


def batch(size: int, draws: torch.Generator):
    """Noise, of which every seventh value counts: their sum is asked for."""
    x = torch.randn(STEPS, size, 1, generator=draws)
    return x, x[FIRST - 1 :: PERIOD].sum(0) / 3


def trained(layer, learn_gates: bool = True) -> float:
    """The share of the targets' variance that is left."""
    model, draws = SequenceModel(layer, torch.nn.Linear(UNITS, 1)), torch.Generator().manual_seed(5)
    if not learn_gates:
        layer.freeze_gate()
    optimizer = torch.optim.Adam(parameter_groups(model, lr=5e-3, times=STEPS))
    for _ in range(UPDATES):
        x, y = batch(64, draws)
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    x, y = batch(1000, draws)
    with torch.no_grad():
        return float((model(x) - y).square().mean() / y.square().mean())


def of_gates() -> GatedLSTM:
    torch.manual_seed(0)
    return GatedLSTM(1, UNITS, gate=Periodic(tau=6.5))


def test_the_period_of_what_counts_is_learned():
    layer = of_gates()
    assert trained(layer) < 0.05
    values = layer.gate_in_time("_l0")
    late = ((values["mu"] - FIRST + PERIOD / 2) % PERIOD - PERIOD / 2).abs()
    right = ((values["tau"] - PERIOD).abs() < 0.1) & (late < 0.5) & (values["sigma"].abs() < 1)
    assert right.any()  # a unit that opens at just the steps that count
    assert trained(of_gates(), learn_gates=False) > 0.3
    torch.manual_seed(0)
    assert trained(LSTM(1, UNITS)) > 0.5
