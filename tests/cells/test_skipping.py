"""Cells that skip, in training: what a budget does to them, and that nothing of a step stays behind."""

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call

from glstm import SequenceModel
from glstm.cells import CELLS
from glstm.cells.skipping import Skipping
from glstm.data import ArrayTask
from glstm.recipes import Recipe
from glstm.training import Population
from glstm.training.objective import take_shares_of_updates
from helpers import copies
from small_runs import SMALL, go_on, population, start

OPTIONS: dict[str, dict[str, Any]] = {"lstm-jump": {"read": 2, "jumps": 3, "furthest": 3}}
NAMES = [name for name, cell in CELLS.items() if isinstance(cell, type) and issubclass(cell, Skipping)]

every_skipping_cell = pytest.mark.parametrize("name", NAMES)


def recipe(name: str, **more: Any) -> Recipe:
    return SMALL.changed(cell=name, options=OPTIONS.get(name, {}), **more)


def model(name: str) -> SequenceModel:
    torch.manual_seed(1)
    return SequenceModel(CELLS[name](2, 5, **OPTIONS.get(name, {})), nn.Linear(5, 1))


@every_skipping_cell
def test_a_model_is_copied_after_a_call_in_training(name):
    made, x = model(name), torch.randn(12, 4, 2)
    made(x)
    assert made.layer.share_of_updates.requires_grad
    expected = made.eval()(x)
    for one in copies(made.train()):
        assert one.layer.share_of_updates is None
        assert torch.equal(one.eval()(x), expected)


@every_skipping_cell
@pytest.mark.parametrize("budget", [0.0, 0.5])
def test_training_leaves_nothing_behind(name, budget):
    trained = population([recipe(name, budget=budget)])
    trained.start(1)
    trained.step()
    layer = trained.models[0].layer
    assert layer.share_of_updates is None
    assert getattr(layer, "decisions", None) is None
    assert getattr(layer, "key", None) is None
    trained.test()
    assert layer.share_of_updates is None
    copies(trained.models[0])


@every_skipping_cell
def test_a_steps_graph_is_freed_when_its_loss_is(name):
    made = model(name)
    loss = made(torch.randn(12, 4, 2)).sum()
    alive = weakref.ref(made.layer.share_of_updates)
    take_shares_of_updates(made)
    made.layer.decisions = None
    del loss
    gc.collect()
    assert alive() is None


@every_skipping_cell
def test_networks_together_are_networks_alone(name):
    """Also where a group is called by vmap first, and split because vmap cannot go through it."""
    recipes = [recipe(name, budget=0.5, seed=seed) for seed in (0, 1)]
    together, alone = population(recipes, together=True), [population([one]) for one in recipes]
    losses = together.train(1)
    for number, one in enumerate(alone):
        assert one.train(1) == [pytest.approx(losses[number], rel=1e-5)]
        for own, other in zip(one.models[0].parameters(), together.models[number].parameters(), strict=True):
            assert torch.allclose(own, other, atol=1e-5)
        assert together.test()[number].open_share == pytest.approx(one.test()[0].open_share, abs=1e-6)
    for own in together.models:
        copies(own)


@every_skipping_cell
def test_functional_call_sets_the_share(name):
    made, x = model(name), torch.randn(12, 4, 2)
    values = {one: 2 * value.detach() for one, value in made.named_parameters()}
    made.eval()
    expected = functional_call(made, values, (x,))
    share = made.layer.share_of_updates
    with torch.no_grad():
        for one, value in made.named_parameters():
            value.copy_(values[one])
    assert torch.equal(made(x), expected)
    assert torch.equal(made.layer.share_of_updates, share)


@every_skipping_cell
def test_a_budget_lowers_the_share_of_updates(name):
    free, thrifty = (population([recipe(name, budget=budget, lr=0.03, epochs=8)]) for budget in (0.0, 50.0))
    shares = []
    for one in (free, thrifty):
        for epoch in range(1, 9):
            one.train(epoch)
        shares.append(one.test()[0].open_share)
    assert shares[1] < 0.8 * shares[0]


@every_skipping_cell
def test_a_run_that_stops_goes_on_to_the_same_bits(name, tmp_path):
    whole = start(recipe(name, budget=0.1), tmp_path / "whole")
    whole.fit()
    stopped = start(recipe(name, budget=0.1), tmp_path / "cut")
    batches = iter(range(7))
    stopped.fit(should_stop=lambda: next(batches, None) is None)
    rest = go_on(recipe(name, budget=0.1), tmp_path / "cut")
    rest.fit()
    for own, other in zip(rest.runs[0].model.parameters(), whole.runs[0].model.parameters(), strict=True):
        assert torch.equal(own, other)


@every_skipping_cell
def test_padding_does_not_count_in_training_or_testing(name):
    made, lengths = model(name), torch.tensor([3, 12, 5, 1])
    x = torch.randn(12, 4, 2)
    for parameter in made.parameters():
        parameter.data *= 3
    made.eval()
    alone = []
    for n, length in enumerate(lengths.tolist()):
        made(x[:length, n : n + 1])
        alone += [length * share.item() for share in take_shares_of_updates(made)]
    made(x, lengths=lengths)
    assert made.layer.share_of_updates.item() == pytest.approx(sum(alone) / 21)
    made.train()(x, lengths=lengths)
    slopes = torch.autograd.grad(made.layer.share_of_updates, x.requires_grad_(), allow_unused=True)[0]
    assert slopes is None or slopes[5:, [0, 2, 3]].abs().max() == 0


@every_skipping_cell
def test_sequences_of_unequal_lengths_train(name):
    lengths = torch.arange(3, 15).repeat(3)
    task = ArrayTask(torch.randn(36, 14, 2), torch.arange(36) % 2, lengths=lengths, test=0.3)
    options = OPTIONS.get(name, {})
    trained = Population(
        task,
        lambda: SequenceModel(CELLS[name](2, 5, **options), nn.Linear(5, 2)),
        recipe(name, budget=1.0, batch=8, epochs=1),
    )
    (loss,) = trained.train(1)
    assert loss > 0
    share = trained.test()[0].open_share
    assert share is not None
    assert 0 < share <= 1
