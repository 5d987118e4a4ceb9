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
            # The share is rounded to 1/65536 of the weights.
            torch.testing.assert_close(used[name][~gone], value[~gone] / (1 - recipe.weight_drop), rtol=2e-4, atol=0)


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
    """After training, a test says the same as of a network with these values that has no weight drop."""
    plain, dropped = population([SMALL.changed(seed=3)]), population([SMALL.changed(seed=3, weight_drop=0.5)])
    assert plain.test() == dropped.test()
    assert plain.train(1) != dropped.train(1)
    with torch.no_grad():
        plain.stack.flat.copy_(dropped.stack.flat)
    assert plain.test() == dropped.test()


STEPPED = ("clockwork", "zoneout", "bn-lstm", "skip-lstm", "skip-gru", "lstm-jump")  # a module for each layer
NAMES = {cell: ["layer.layers.0.weight_hh"] for cell in STEPPED}
NAMES["r-lstm"] = ["layer.layers.0.weight_hh", "layer.decoder.weight_hh"]  # the decoder of its extra loss, too


@pytest.mark.parametrize("cell", [name for name in CELLS if name not in ("gated", "tcn", "mingru", "indrnn")])
def test_every_cell_with_such_weights_uses_what_is_left(cell):
    """The first update of a network is another one with weight drop than without."""
    gate = PHASES if cell == "plstm" else {}
    recipe = SMALL.changed(cell=cell, gate=gate, units=8)
    plain, dropped = population([recipe]), population([recipe.changed(weight_drop=0.5)])
    assert recurrent_weights(dropped.models[0]) == NAMES.get(cell, ["layer.weight_hh_l0"])
    losses = []
    for found in (plain, dropped):
        found.start(1)
        losses.append(found.gradients(slice(0, 16))[0].item())
    assert losses[0] != losses[1]


def test_a_network_without_such_weights_is_refused():
    with pytest.raises(UserError, match="matrices named weight_hh, and this network has none: leave it out"):
        population([SMALL.changed(cell="indrnn", weight_drop=0.5)])


@pytest.mark.parametrize("share", [1.0, 0.999, -0.1])
def test_a_share_that_cannot_be_is_said(share):
    with pytest.raises(UserError, match=f"weight_drop is a share of the weights, from 0 to 0.99, not {share}"):
        Settings(weight_drop=share)


@pytest.mark.parametrize("share", [1.4 / 65536, 0.3, 0.99])
def test_what_is_drawn_on_average_is_the_whole_weight(share):
    """Also where the share is no multiple of what draws can tell apart."""
    found = population([SMALL.changed(units=64, weight_drop=share)])
    factors = (thinned(found)[0]["layer.weight_hh_l0"] / found.models[0].layer.weight_hh_l0).detach().double()
    count = factors.numel()
    assert factors.mean().item() == pytest.approx(1, abs=5 * (share / (1 - share) / count) ** 0.5 + 1e-6)
