"""Pruning: the smallest weights become 0 and stay 0, a network goes on with them, and they are not counted."""

import shutil
from math import nan

import pytest
import torch

from glstm import GLSTM, LSTM, count_cached_ops, count_ops
from glstm.analysis import operations_of
from glstm.errors import UserError
from glstm.recipes import Recipe
from glstm.training.best import Rule, best_of, is_over, last_is_best
from glstm.training.display import EpochRow
from glstm.training.pruning import prune, pruned_together
from glstm.training.settings import Settings
from small_runs import RECIPES, SMALL, StopAfter, go_on, population, results, start

PRUNED = RECIPES["pruned"]


def zeros(model) -> int:
    return sum(int((weight == 0).sum()) for weight in (model.layer.weight_ih_l0, model.layer.weight_hh_l0))


def test_the_share_rises_by_a_cubic_and_ends_early():
    """By Zhu and Gupta's formula, s (1 - (1 - n / N)^3)."""
    settings = Settings(epochs=100, sparsity=0.9, prune_from=0.2, prune_until=0.6)
    shares = [settings.sparsity_in(epoch) for epoch in range(1, 101)]
    assert shares[:20] == [0.0] * 20
    assert shares[29] == pytest.approx(0.9 * (1 - 0.75**3))
    assert shares[39] == pytest.approx(0.9 * (1 - 0.5**3))
    assert shares[58] < shares[59] == 0.9 == min(shares[59:])
    assert settings.pruned_in == 60
    assert [Settings(epochs=n, sparsity=0.9).sparsity_in(n) for n in (1, 2, 3)] == [0.9] * 3  # always at the end
    late = Settings(epochs=3, sparsity=0.5, prune_from=1.0, prune_until=1.0)
    assert [late.sparsity_in(epoch) for epoch in (2, 3)] == [0, 0.5]
    assert Settings().sparsity_in(1) == 0


def test_the_smallest_go_first_and_both_matrices_together():
    values = [torch.tensor([0.3, -0.1, 5.0]), torch.tensor([-0.2, 0.1, 4.0, 0.0])]
    kept = [torch.ones(3), torch.ones(4)]
    kernel = list(zip(values, kept, strict=True))
    prune(kernel, 3 / 7)
    assert [part.tolist() for part in values] == [[pytest.approx(0.3), 0, 5], [pytest.approx(-0.2), 0, 4, 0]]
    assert [part.tolist() for part in kept] == [[1, 0, 1], [1, 0, 1, 0]]
    values[0][0] = 0.0  # by chance: what was pruned before is still pruned, and it only if it must be
    prune(kernel, 3 / 7)
    assert [part.tolist() for part in kept] == [[1, 0, 1], [1, 0, 1, 0]]
    prune(kernel, 4 / 7)
    assert [part.tolist() for part in kept] == [[0, 0, 1], [1, 0, 1, 0]]


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "sgd"])
def test_what_was_pruned_stays_zero_and_the_rest_learns(optimizer):
    found = population([PRUNED.changed(optimizer=optimizer), SMALL.changed(optimizer=optimizer)])
    counts, weights = [], []
    for epoch in (1, 2, 3):
        found.train(epoch)
        counts.append(zeros(found.models[0]))
        weights.append(found.models[0].layer.weight_hh_l0.detach().clone())
    whole = 4 * 6 * (2 + 6)
    assert counts == [round(PRUNED.sparsity_in(epoch) * whole) for epoch in (1, 2, 3)]
    assert counts[-1] == round(0.8 * whole)
    assert (weights[2][weights[1] == 0] == 0).all()
    assert (weights[2][weights[2] != 0] != weights[1][weights[2] != 0]).any()
    assert zeros(found.models[1]) == 0
    assert not any((value == 0).all() for value in found.models[0].head.parameters())


@pytest.mark.parametrize("stop", [1, 3, 6, 8])
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, stop):
    recipe = PRUNED.changed(epochs=4, optimizer="rmsprop", schedule="cosine")
    assert start(recipe, tmp_path / "whole").fit()
    trainer = start(recipe, tmp_path / "killed")
    assert not trainer.fit(should_stop=StopAfter(stop))
    shutil.copytree(tmp_path / "killed", tmp_path / "as-it-was")
    go_on(recipe, tmp_path / "killed").fit(should_stop=StopAfter(2))  # this work is lost
    shutil.rmtree(tmp_path / "killed")
    shutil.copytree(tmp_path / "as-it-was", tmp_path / "killed")
    assert go_on(recipe, tmp_path / "killed").fit()
    assert results(tmp_path / "killed") == results(tmp_path / "whole")


def test_a_weight_that_is_zero_by_chance_is_not_taken_for_pruned(tmp_path):
    trainer = start(PRUNED, tmp_path / "run")
    assert not trainer.fit(should_stop=StopAfter(2))
    weight = trainer.runs[0].model.layer.weight_hh_l0
    largest = int(weight.detach().abs().argmax())
    weight.data.view(-1)[largest] = 0.0
    trainer._save()
    assert not go_on(PRUNED, tmp_path / "run").fit(should_stop=StopAfter(1))
    again = go_on(PRUNED, tmp_path / "run")
    assert again.runs[0].model.layer.weight_hh_l0.view(-1)[largest] != 0


def test_epochs_decide_when_and_cannot_change(tmp_path):
    start(PRUNED, tmp_path / "run").fit()
    with pytest.raises(UserError, match="decide when it is pruned: they cannot change now"):
        go_on(PRUNED.changed(epochs=9), tmp_path / "run")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sparsity": 1.0}, "sparsity is a share of the weights, at least 0 and below 1, not 1.0"),
        ({"sparsity": -0.1}, "at least 0 and below 1"),
        ({"prune_from": 0.7, "prune_until": 0.5}, "the first is not the larger: not 0.7 and 0.5"),
        ({"prune_until": 1.5}, "shares of the epochs, from 0 to 1"),
    ],
)
def test_what_cannot_be_is_said(values, message):
    with pytest.raises(UserError, match=message):
        Settings(**values)


def test_only_gated_layers_are_pruned():
    with pytest.raises(UserError, match="sparsity is of the weights of gated layers"):
        population([Recipe("adding", data=SMALL.data, cell="gru", units=4, sparsity=0.5)])
    assert pruned_together(LSTM(2, 3, num_layers=2, bidirectional=True))[1] == [
        "weight_ih_l0_reverse",
        "weight_hh_l0_reverse",
    ]


def row(epoch: int, error: float) -> EpochRow:
    return EpochRow(epoch, 0.0, None, None, None, None, 0.0, 0.0, validation_loss=0.0, validation_error=error)


def test_the_best_epoch_is_one_after_pruning():
    rule = Rule(first=3)
    history = [row(1, 0.1), row(2, 0.2), row(3, 0.5), row(4, 0.4)]
    assert best_of(history, rule).epoch == 4
    for stopped in range(1, 5):  # a run that ends before all is pruned keeps its latest network, not the first
        assert best_of(history[:stopped], rule).epoch == stopped
        assert last_is_best(history[:stopped], rule)
    lost = [*history[:2], row(3, nan)]
    assert best_of(lost, rule).epoch == 2
    assert not last_is_best(lost, rule)
    assert [is_over(history[:count], rule, 1) for count in (1, 2, 3)] == [False, False, False]  # before, nobody waits
    assert is_over([*history[:3], row(4, 0.6)], rule, 1)


def test_operations_are_those_of_the_weights_that_are_left():
    torch.manual_seed(0)
    layer = LSTM(2, 5)
    assert operations_of(layer, 7) == count_ops(7, 5, 2)
    with torch.no_grad():
        for weight in (layer.weight_ih_l0, layer.weight_hh_l0):
            weight *= torch.rand_like(weight) < 0.3
    left = sum(int((weight != 0).sum()) for weight in (layer.weight_ih_l0, layer.weight_hh_l0))
    assert operations_of(layer, 7) == 7 * (2 * left + 29 * 5)


def test_operations_of_a_gated_layer_are_counted_weight_by_weight():
    """By a loop over steps, units and weights, as the exact count is defined."""
    torch.manual_seed(1)
    layer = GLSTM(2, 6, mu=(1.0, 12.0), sigma=1.5, threshold=0.05)
    with torch.no_grad():
        for weight in (layer.weight_ih_l0, layer.weight_hh_l0):
            weight *= torch.rand_like(weight) < 0.4
    table = layer.openness(12)[0] > 0
    of_x, of_h = (weight.detach().view(4, 6, -1) for weight in (layer.weight_ih_l0, layer.weight_hh_l0))
    expected, before, ever = 0, set(), set()
    for step in table.tolist():
        now = {unit for unit, is_open in enumerate(step) if is_open}
        for unit in now:
            others = before if unit in before else ever
            expected += 2 * int((of_x[:, unit] != 0).sum()) + 29 + 7
            expected += sum(2 * int((of_h[:, unit, other] != 0).sum()) for other in others)
        expected += len(before)
        before, ever = now, ever | now
    assert operations_of(layer, 12) == expected
    assert expected < count_cached_ops(layer.openness(12)[0], 2)
