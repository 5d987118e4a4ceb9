"""The r-LSTM: a plain LSTM in evaluation; in training its reconstruction, and how far gradients go, by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glstm import SequenceModel
from glstm.cells.r_lstm import RLSTM
from glstm.data import Adding
from glstm.errors import UserError
from glstm.masks import number_elements, uniform
from glstm.training import Population, Settings
from helpers import relative_error

STEPS, BATCH, INPUTS, UNITS = 12, 4, 2, 3


def make(**options) -> Any:
    torch.manual_seed(1)
    cell = RLSTM(INPUTS, UNITS, **options).double().train()
    cell.key = torch.tensor(7)
    return cell


def sequences(steps: int = STEPS) -> Tensor:
    draws = torch.Generator().manual_seed(2)
    return torch.randn(steps, BATCH, INPUTS, dtype=torch.float64, generator=draws)


def states(layer, x: Tensor, h: Tensor, c: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """h and c of one sample before the first step and after each, by the equations of an LSTM."""
    hs, cs = [h], [c]
    for x_n in x:
        i, f, g, o = (layer.weight_ih @ x_n + layer.weight_hh @ hs[-1] + layer.bias).chunk(4)
        cs.append(f.sigmoid() * cs[-1] + i.sigmoid() * g.tanh())
        hs.append(o.sigmoid() * cs[-1].tanh())
    return hs, cs


def anchors_of(cell: Any, lengths: list[int]) -> list[list[int]]:
    assert cell.key is not None
    drawn = uniform(cell.key, number_elements(cell.anchors * len(lengths), cell.key.device))
    found = []
    for row in drawn.view(cell.anchors, len(lengths)).tolist():
        least = [min(cell.reconstruct, length) for length in lengths]
        found.append([low + int(u * (length - low + 1)) for low, u, length in zip(least, row, lengths, strict=True)])
    return found


def by_hand(cell: Any, x: Tensor, lengths: list[int]) -> Tensor:
    """The reconstruction's loss of each sample, its gradients cut `truncate` steps before the anchor."""
    losses, zero = torch.zeros(len(lengths), dtype=torch.float64), x.new_zeros(UNITS)
    for row in anchors_of(cell, lengths):
        for n, anchor in enumerate(row):
            begin = max(0, anchor - cell.truncate) if cell.truncate else 0
            hs, cs = states(cell.layers[0], x[:begin, n], zero, zero)
            hs, cs = states(cell.layers[0], x[begin:anchor, n], hs[-1].detach(), cs[-1].detach())
            wanted = x[max(0, anchor - cell.reconstruct) : anchor, n]
            said, _ = states(cell.decoder, wanted[:-1], hs[-1], cs[-1])
            errors = [(cell.readout(h) - y).square().mean() for h, y in zip(said[1:], wanted[1:], strict=True)]
            losses[n] = losses[n] + torch.stack(errors).mean() / cell.anchors
    return losses


def extra(cell: Any) -> Tensor:
    return cell.extra_losses(torch.zeros(BATCH, dtype=torch.float64), torch.zeros(BATCH, dtype=torch.float64))


@pytest.mark.parametrize(
    "options",
    [
        {"anchors": 1, "reconstruct": 5, "truncate": 0},
        {"anchors": 3, "reconstruct": 5, "truncate": 4},
        {"anchors": 2, "reconstruct": 3, "truncate": 7},
        {"anchors": 1, "reconstruct": 100, "truncate": 100},
    ],
)
def test_the_reconstruction_by_hand(options):
    cell, x = make(**options, weight=0.5), sequences()
    cell(x)
    found, expected = extra(cell), 0.5 * by_hand(cell, x, [STEPS] * BATCH)
    assert relative_error(found, expected) < 1e-12
    parameters = list(cell.parameters())
    for one, other in zip(
        torch.autograd.grad(found.sum(), parameters), torch.autograd.grad(expected.sum(), parameters), strict=True
    ):
        assert relative_error(one, other) < 1e-10


def test_padding_is_not_reconstructed():
    cell, x, lengths = make(anchors=2, reconstruct=5, truncate=6), sequences(), [12, 7, 3, 9]
    for n, length in enumerate(lengths):
        x[length:, n] = 1e3
    cell(x, lengths=torch.tensor(lengths))
    assert relative_error(extra(cell), by_hand(cell, x, lengths)) < 1e-12


def test_gradients_of_the_output_go_back_over_the_last_steps():
    cell, x = make(truncate=5, reconstruct=4), sequences().requires_grad_()
    output, (h_n, c_n) = cell(x)
    (slope,) = torch.autograd.grad(h_n.sum() + c_n.sum(), x, retain_graph=True)
    assert slope.abs().sum((1, 2)).gt(0).tolist() == [False] * 7 + [True] * 5
    (slope,) = torch.autograd.grad(output[6].sum(), x)  # of the piece before, steps 3 to 7
    assert slope.abs().sum((1, 2)).gt(0).tolist() == [False] * 2 + [True] * 5 + [False] * 5
    cell = make(truncate=0, reconstruct=4)
    (slope,) = torch.autograd.grad(cell(x)[1][0].sum(), x)
    assert slope.abs().sum((1, 2)).gt(0).all()


def test_it_is_torchs_lstm():
    cell, x = make(truncate=5), sequences()
    peer: Any = nn.LSTM(INPUTS, UNITS).double()
    layer = cell.layers[0]
    for name in ("weight_ih", "weight_hh"):
        getattr(peer, f"{name}_l0").data.copy_(getattr(layer, name))
    peer.bias_ih_l0.data.copy_(layer.bias)
    peer.bias_hh_l0.data.zero_()
    expected, (h_n, _) = peer(x)
    for training in (True, False):
        output, (h, _) = cell.train(training)(x)
        assert relative_error(output, expected) < 1e-12
        assert relative_error(h, h_n) < 1e-12


def test_anchors_follow_from_the_key():
    cell, x = make(reconstruct=3), sequences()
    assert torch.equal(cell(x)[0], cell(x)[0])
    first = extra(cell)
    cell(x)
    assert torch.equal(extra(cell), first)
    cell.key = torch.tensor(8)
    cell(x)
    assert not torch.equal(extra(cell), first)
    cell.eval()(x)
    assert float(extra(cell)) == 0


def test_two_layers_learn_from_the_reconstruction():
    torch.manual_seed(1)
    cell = RLSTM(INPUTS, UNITS, 2, reconstruct=4, truncate=3).double().train()
    cell(sequences())
    slopes = torch.autograd.grad(extra(cell).sum(), list(cell.parameters()))
    assert all(slope.abs().sum() > 0 for slope in slopes)


def test_first_the_reconstruction_alone():
    cell, x = make(reconstruct=4, pretrain_steps=2), sequences()
    weights = list(cell.layers[0].parameters())
    for update in range(4):
        output, (h_n, _) = cell(x)
        slopes = torch.autograd.grad(output.sum() + h_n.sum(), weights, retain_graph=True)
        assert all(bool(slope.abs().sum() > 0) == (update >= 2) for slope in slopes)
        assert all(slope.abs().sum() > 0 for slope in torch.autograd.grad(extra(cell).sum(), weights))
    assert int(cell.updates) == 4
    cell.eval()(x)
    assert int(cell.updates) == 4


def test_training_lowers_both_losses():
    def run(weight: float) -> list[float]:
        model = SequenceModel(RLSTM(2, 8, reconstruct=10, truncate=10, weight=weight), nn.Linear(8, 1))
        task = Adding(20, train_size=200, test_size=20)
        population = Population(task, lambda: model, Settings(optimizer="adam", lr=5e-3, batch=20, epochs=5))
        return [population.train(epoch)[0] for epoch in range(1, 6)]

    torch.manual_seed(0)
    with_it = run(1.0)
    assert with_it[-1] < with_it[0]
    torch.manual_seed(0)
    assert run(0.0)[0] < with_it[0]  # the sum that is shown has the reconstruction in it


def test_the_same_seed_gives_the_same_bits():
    def run() -> Tensor:
        task = Adding(20, train_size=60, test_size=20)
        made = lambda: SequenceModel(RLSTM(2, 8, reconstruct=10, truncate=10), nn.Linear(8, 1))  # noqa: E731
        population = Population(task, made, Settings(batch=20, epochs=1, seed=3))
        population.train(1)
        return population.stack.flat.detach()

    assert torch.equal(run(), run())


def test_networks_train_together_as_alone():
    def trained(settings: list[Settings]) -> Population:
        task = Adding(12, train_size=40, test_size=5)
        made = lambda: SequenceModel(RLSTM(2, UNITS, reconstruct=6, truncate=4), nn.Linear(UNITS, 1))  # noqa: E731
        population = Population(task, made, settings, together=True)
        population.train(1)
        return population

    settings = [Settings(batch=20, epochs=1, seed=seed) for seed in (0, 1)]
    both = trained(settings)
    assert [group.rows for group in both.stack.groups] == [[0, 1]]  # by one call
    for row, setting in enumerate(settings):
        alone = trained([setting])
        assert relative_error(both.stack.flat[row], alone.stack.flat[0]) < 1e-5
        assert int(both.models[row].layer.updates) == int(alone.models[0].layer.updates) == 2


@pytest.mark.parametrize("options", [{"anchors": 0}, {"reconstruct": 1}, {"truncate": -1}, {"weight": -1.0}])
def test_options_that_make_no_sense(options):
    with pytest.raises(UserError, match=next(iter(options))):
        RLSTM(1, 2, **options)
