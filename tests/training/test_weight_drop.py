"""Weight drop: updates leave out recurrent weights at random, evaluation does not, and nothing else notices."""

import pytest
import torch
from torch.func import functional_call

from glstm import masks
from glstm.cells import CELLS
from glstm.errors import UserError
from glstm.training.settings import Settings
from glstm.training.weight_drop import recurrent_weights
from small_runs import PHASES, RECIPES, SMALL, population

DROPPED = RECIPES["weight drop"]
TWO_LAYERS = {"layers": 2, "options": {"bidirectional": True}}


def thinned(found):
    """Each member's values by name, as the next update uses them."""
    keys = masks.keys(found.seeds, found.updates)
    values = found.weight_drop.thinned(keys)
    stack = found.stack
    return [layout.values(row, stack.weights) for layout, row in zip(stack.layouts, values, strict=True)]


def test_this_share_of_the_recurrent_weights_is_left_out_and_nothing_else():
    recipes = [SMALL.changed(units=64, weight_drop=share, seed=3) for share in (0.4, 0.0, 0.9)]
    found = population(recipes)
    for recipe, model, used in zip(recipes, found.models, thinned(found), strict=True):
        for name, value in model.named_parameters():
            if not (name.endswith("weight_hh_l0") and recipe.weight_drop):
                assert used[name].equal(value)
                continue
            gone = used[name] == 0
            assert gone.float().mean().item() == pytest.approx(recipe.weight_drop, abs=0.02)
            torch.testing.assert_close(used[name][~gone], value[~gone] / (1 - recipe.weight_drop))


def test_every_layer_and_direction_draws_its_own_and_every_update_anew():
    found = population([DROPPED.changed(units=16, **TWO_LAYERS), DROPPED.changed(units=16, seed=5, **TWO_LAYERS)])
    names = recurrent_weights(found.models[0])
    assert names == [f"layer.weight_hh_l{depth}{which}" for depth in (0, 1) for which in ("", "_reverse")]
    drawn = []
    for _ in range(2):
        drawn += [used[name] == 0 for used in thinned(found) for name in names]
        found.updates += 1
    assert len({tuple(one.flatten().tolist()) for one in drawn}) == len(drawn) == 2 * 2 * 4


def test_an_update_is_that_of_the_weights_that_are_left():
    """The loss, and the gradient of every value by the chain rule: that of a weight left out is 0."""
    found = population([DROPPED])
    found.train(1)
    found.start(2)
    keys = masks.keys(found.seeds, found.updates)
    factors = found.weight_drop.thinned(keys).detach() / found.stack.flat.detach()
    wanted = slice(0, 16)
    loss, gradient = found.gradients(wanted)
    values = {name: value.detach().clone().requires_grad_() for name, value in thinned(found)[0].items()}
    objective, stage = found.objectives[0], tuple(part[0] for part in next(iter(found.stages.values())))
    named = {f"model.{name}": value for name, value in values.items()}
    expected = functional_call(objective, named, (keys[0], stage, wanted, False))[0] / 16
    torch.testing.assert_close(loss[0], expected.detach())
    own = torch.autograd.grad(expected, list(values.values()))
    used = found.stack.layouts[0].values(gradient[0], found.stack.weights)
    scale = found.stack.layouts[0].values(torch.nan_to_num(factors[0], 1.0), found.stack.weights)
    for name, part in zip(values, own, strict=True):
        torch.testing.assert_close(used[name], part * scale[name])
    assert (used["layer.weight_hh_l0"][scale["layer.weight_hh_l0"] == 0] == 0).all()


def test_evaluation_has_all_weights():
    """What a test says is the same as of a network that was trained without."""
    plain, dropped = population([SMALL.changed(seed=3)]), population([SMALL.changed(seed=3, weight_drop=0.5)])
    assert plain.test() == dropped.test()
    first, second = plain.train(1), dropped.train(1)
    assert first != second
    assert dropped.test() == dropped.test()


@pytest.mark.parametrize("cell", [name for name in CELLS if name not in ("gated", "tcn", "mingru", "indrnn")])
def test_every_cell_with_such_weights_can_use_it(cell):
    gate = PHASES if cell == "plstm" else {}
    recipe = SMALL.changed(cell=cell, gate=gate, weight_drop=0.5, units=8)
    found = population([recipe])
    assert recurrent_weights(found.models[0])
    found.train(1)
    assert found.stack.flat.isfinite().all()


def test_a_network_without_such_weights_is_refused():
    with pytest.raises(UserError, match="matrices named weight_hh, and this network has none: leave it out"):
        population([SMALL.changed(cell="indrnn", weight_drop=0.5)])


@pytest.mark.parametrize("share", [1.0, -0.1])
def test_a_share_that_cannot_be_is_said(share):
    with pytest.raises(UserError, match=f"weight_drop is a share of the weights, at least 0 and below 1, not {share}"):
        Settings(weight_drop=share)


def test_many_masks_at_once_are_those_of_each_key_alone():
    keys = torch.tensor([3, -(2**62), 7])
    thresholds = masks.thresholds([0.25, 0.999999999, 0.0], keys.device)
    kept = masks.keep_many(keys, 40_001, thresholds)
    assert kept.shape == (3, 40_001)
    assert kept.float().mean(1).tolist() == pytest.approx([0.75, 0.0, 1.0], abs=0.01)
    for row in range(3):
        assert masks.keep_many(keys[row : row + 1], 40_001, thresholds[row : row + 1]).equal(kept[row : row + 1])
    shorter = masks.keep_many(keys, 5, thresholds)
    assert shorter.equal(kept[:, :5])
