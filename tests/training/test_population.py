"""A population: each member becomes what it would have become alone, and what a plain loop makes of it."""

from functools import partial

import pytest
import torch
from torch.nn.utils import clip_grad_norm_

from glstm import TemporalCurriculum, budget, gate_parameters, masks, weight_parameters
from glstm.cells.gru import GRU
from glstm.errors import UserError
from glstm.layers import gated_layers
from glstm.models import DropConnect
from glstm.recipes import Recipe, make_model, make_task
from glstm.training import Population
from glstm.training import population as population_module
from glstm.training.members import is_cudnns
from helpers import relative_error
from small_runs import PHASES, RECIPES, SMALL, population

MIXES = {  # recipes that train together: what may differ, differs
    "thrifty g-LSTM": [
        RECIPES["thrifty g-LSTM"],
        RECIPES["thrifty g-LSTM"].changed(seed=1, budget=0.0, lr=1e-3, clip=0.0, schedule="cosine"),
        SMALL.changed(
            seed=2, budget=0.1, budget_epochs=2, gate_lr=0.0, clip=0.01, gate={"sigma": (1.0, 9.0)}, init="xavier"
        ),
    ],
    "RMSProp, Drop-Connect": [
        RECIPES["RMSProp, Drop-Connect"],
        RECIPES["RMSProp, Drop-Connect"].changed(seed=1, decay=0.9, options={"threshold": 0.1}, schedule="linear"),
    ],
    "curriculum": [
        RECIPES["curriculum"],
        RECIPES["curriculum"].changed(rho=0.5, alpha=1.0, open_epochs=2, open_sigma=90.0),
        SMALL.changed(seed=4, chrono=12.0),
    ],
    "PLSTM": [RECIPES["PLSTM"], RECIPES["PLSTM"].changed(seed=7, gate={"r": 0.3}, budget=1.0, gate_lr=0.01)],
    "periodic": [
        RECIPES["periodic"],
        RECIPES["periodic"].changed(seed=3, gate={"sigma": 1.0}, options={"threshold": 0.1}, gate_lr=0.05),
        RECIPES["periodic"].changed(curriculum=True, open_epochs=1, budget=0.0, gate={"sigma": 0.5}),
    ],
    "LSTM": [RECIPES["LSTM"], RECIPES["LSTM"].changed(seed=1, lr=0.01, clip=0.05, forget_bias=3.0)],
    "two layers": [SMALL.changed(layers=2, budget=0.2), SMALL.changed(layers=2, seed=9, options={"threshold": 0.2})],
    "three cells": [
        SMALL.changed(options={"threshold": 0.05}, layers=2),
        SMALL.changed(cell="lstm", seed=3, layers=2),
        SMALL.changed(cell="plstm", gate=PHASES, seed=1, layers=2),
        SMALL.changed(seed=4, layers=2, gate_lr=0.0),
        SMALL.changed(cell="plstm", gate=PHASES, seed=2, layers=2, options={"threshold": 0.1}, budget=0.3),
    ],
    "one seed": [SMALL, SMALL.changed(lr=1e-3), SMALL.changed(gate={"sigma": 2.0})],
    "clocks": [RECIPES["clocks"], RECIPES["clocks"].changed(seed=1, gate={"period": (2, 3)})],
    "GRU": [RECIPES["GRU"], RECIPES["GRU"].changed(seed=3, clip=0.1)],
    "pruned": [
        RECIPES["pruned"],
        RECIPES["pruned"].changed(seed=1, sparsity=0.5, prune_from=0.4, prune_until=0.4, clip=0.05, schedule="cosine"),
        SMALL.changed(seed=2, sparsity=0.6, layers=1, options={"threshold": 0.05}),
        SMALL.changed(cell="lstm", seed=3),
    ],
    "weight drop": [
        RECIPES["weight drop"],
        RECIPES["weight drop"].changed(seed=1, weight_drop=0.7, lr=1e-3),
        SMALL.changed(seed=2, options={"threshold": 0.05}),
        SMALL.changed(seed=3, units=9, weight_drop=0.2),
    ],
    "two sizes": [SMALL, SMALL.changed(units=9, seed=2), SMALL.changed(cell="gru", units=4)],
}
several = pytest.mark.parametrize("recipes", MIXES.values(), ids=MIXES.keys())


def trained(recipes: list[Recipe], precision: str = "32-true", **more) -> Population:
    found = population(recipes, precision=precision, **more)
    for epoch in range(1, recipes[0].epochs + 1):
        found.train(epoch)
    return found


def same(one: torch.nn.Module, other: torch.nn.Module, tolerance: float) -> bool:
    expected = other.state_dict()
    return all(relative_error(value, expected[name]) <= tolerance for name, value in one.state_dict().items())


@several
@pytest.mark.parametrize("precision", ["32-true", "64-true"])
def test_a_member_becomes_what_it_would_alone_to_the_bit(recipes, precision):
    together = trained(recipes, precision)
    for recipe, model, score in zip(recipes, together.models, together.test(), strict=True):
        alone = trained([recipe], precision)
        assert same(model, alone.models[0], 0)
        assert alone.test() == [score]


def test_neither_threads_nor_sizes_get_between_a_member_and_itself():
    """Sums over many numbers are shared out among threads; products depend on where in memory they begin."""
    torch.set_num_threads(2)
    recipes = [SMALL.changed(units=101, head="deep", seed=seed, epochs=1) for seed in (0, 1, 2)]
    together = trained(recipes)
    for recipe, model in zip(recipes, together.models, strict=True):
        assert same(model, trained([recipe]).models[0], 0)


@several
def test_side_by_side_they_compute_the_same(recipes):
    """As on CUDA: members that are alike run along one axis, by torch.vmap."""
    expected, together = trained(recipes, "64-true"), trained(recipes, "64-true", together=True)
    for model, other in zip(together.models, expected.models, strict=True):
        assert same(model, other, 1e-11)
    for score, other in zip(together.test(), expected.test(), strict=True):
        assert score.error == pytest.approx(other.error, rel=1e-10)
        assert score.mean_k == other.mean_k or score.mean_k == pytest.approx(other.mean_k, rel=1e-10)
        assert score.open_share == other.open_share


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("one seed", [3]),
        ("PLSTM", [2]),
        ("periodic", [3]),
        ("clocks", [2]),
        ("two layers", [2]),
        ("three cells", [5]),
        ("GRU", [2]),
        ("weight drop", [3, 1]),
        ("two sizes", [1] * 3),
    ],
)
def test_networks_that_are_alike_but_for_values_and_gates_are_called_as_one(name, groups):
    found = trained(MIXES[name], together=True)
    assert [len(group.rows) for group in found.stack.groups] == groups


def test_only_what_cudnn_would_compute_is_kept_out_of_graphs():
    """A GRU of ours is one of torch's, too; an engine computes it, unless it reads in two directions."""
    values = torch.zeros(1, 1)
    assert is_cudnns(torch.nn.GRU(1, 4), values)
    assert is_cudnns(GRU(1, 4, bidirectional=True), values)
    assert not is_cudnns(GRU(1, 4), values)
    assert not is_cudnns(torch.nn.Linear(1, 4), values)


def test_networks_that_vmap_cannot_call_are_called_one_by_one():
    """torch has no rule for its GRU, of which ours is made."""
    found = population([recipe.changed(cell="torch.nn:GRU") for recipe in MIXES["GRU"]], together=True)
    assert len(found.stack.groups) == 1
    found.train(1)
    assert [group.rows for group in found.stack.groups] == [[0], [1]]


def plain_loop(recipe: Recipe) -> torch.nn.Module:
    """The same training in plain PyTorch: its optimisers, its clipping, its autograd through the model as it is."""
    task = make_task(recipe)
    torch.manual_seed(recipe.seed)
    model = make_model(recipe, task).double()
    for layer in gated_layers(model) if not recipe.trains_gates else ():
        layer.freeze_gate()
    kinds = {
        "adam": torch.optim.Adam,
        "sgd": torch.optim.SGD,
        "rmsprop": partial(torch.optim.RMSprop, alpha=recipe.decay),
    }
    groups = [{"params": list(weight_parameters(model)), "lr": recipe.lr}]
    if recipe.gate.get("kind") == "periodic":
        groups += groups_of_periods(recipe, model, task.span)
    elif gates := [gate for gate in gate_parameters(model) if gate.requires_grad]:
        groups.append({"params": gates, "lr": recipe.gate_lr})
    optimizer = kinds[recipe.optimizer](groups)
    rates = [group["lr"] for group in groups]
    curriculum = TemporalCurriculum(model, recipe.alpha, recipe.rho) if recipe.curriculum else None
    steps = 0

    for epoch in range(1, recipe.epochs + 1):
        if curriculum is not None and epoch > recipe.epochs - recipe.open_epochs:
            curriculum.open(recipe.open_sigma)
        elif curriculum is not None and epoch > 1:
            curriculum.step()
        masks_of = smallest(model, recipe.sparsity_in(epoch))
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * recipe.rate_share(epoch)
        for x, y in task.batches("train", recipe.batch, recipe.seed, epoch):
            for module in model.modules():
                if isinstance(module, DropConnect):
                    module.key = masks.keys(torch.tensor(recipe.seed), torch.tensor(steps))
            dropped = left_out(model, recipe, steps)
            whole = {weight: weight.data for weight in dropped}
            for weight, factor in dropped.items():
                weight.data = weight.data * factor
            loss = task.losses(model(x.double()), y).mean()
            if recipe.budget:
                loss = loss + recipe.budget_in(epoch) * budget(model, task.steps)
            optimizer.zero_grad()
            loss.backward()
            for weight, factor in dropped.items():
                weight.data = whole[weight]
                weight.grad *= factor
            for weight, mask in masks_of.items():
                weight.grad *= mask
            if recipe.clip:
                clip_grad_norm_(list(weight_parameters(model)), recipe.clip)
            optimizer.step()
            for weight, mask in masks_of.items():
                weight.data *= mask
            steps += 1
    return model


def left_out(model, recipe: Recipe, step: int) -> dict:
    """What weight drop multiplies the recurrent weights of a network of one layer by: 0, or 1 by the share kept."""
    if not recipe.weight_drop:
        return {}
    key = masks.key_of_part(masks.keys(torch.tensor([recipe.seed]), torch.tensor(step)), -1)
    weight, parts = model.layer.weight_hh_l0, round(recipe.weight_drop * masks.PARTS)
    kept = masks.keep_rows(key, weight.numel(), masks.least_kept([parts], weight.device))
    return {weight: kept.view_as(weight).double() / (1 - parts / masks.PARTS)}


def smallest(model, share: float) -> dict:
    """Masks of the weights of an LSTM, of which this share is set to 0."""
    if not share:
        return {}
    weights = [model.layer.weight_ih_l0, model.layer.weight_hh_l0]
    sizes = torch.cat([weight.detach().abs().flatten() for weight in weights])
    limit = sizes.sort().values[round(share * len(sizes)) - 1]
    found = {weight: (weight.detach().abs() > limit).double() for weight in weights}
    for weight, mask in found.items():
        weight.data *= mask
    return found


def groups_of_periods(recipe: Recipe, model, span: float) -> list[dict]:
    """mu and sigma reach as far as a period, and tau as far as moves the last pulse by one."""
    period = float(model.layer.tau_l0.detach().abs().mean())
    rate = recipe.lr * period if recipe.gate_lr is None else recipe.gate_lr
    rates = {"mu_l0": rate, "sigma_l0": rate, "tau_l0": rate * period / span}
    learned = [(getattr(model.layer, name), rate) for name, rate in rates.items()]
    return [{"params": [value], "lr": rate} for value, rate in learned if value.requires_grad]


@several
def test_a_member_becomes_what_a_plain_loop_makes_of_it(recipes):
    for recipe, model in zip(recipes, trained(recipes, "64-true").models, strict=True):
        assert same(model, plain_loop(recipe), 1e-9)


@pytest.mark.parametrize("recipes", [MIXES["thrifty g-LSTM"], MIXES["one seed"]])
def test_what_a_graph_holds_is_the_same_step(recipes, monkeypatch):
    """Nothing in it comes from the host, not even which batch it is; the last, smaller batch has a graph of its own."""
    made = []
    monkeypatch.setattr(population_module, "captured", lambda step, state: made.append(step) or step)
    by_graph = population(recipes)
    by_graph.one_graph = True
    for epoch in (1, 2, 3):
        by_graph.train(epoch)
    assert len(made) == 2
    assert torch.equal(by_graph.stack.flat, trained(recipes).stack.flat)


def test_all_that_a_step_changes_is_known():
    """Before a graph is captured, steps are made to warm up; they must leave no trace."""
    warm, cold = population(MIXES["RMSProp, Drop-Connect"]), population(MIXES["RMSProp, Drop-Connect"])
    warm.start(1)
    before = [tensor.detach().clone() for tensor in warm.changing()]
    warm._update(warm._next(16))
    *changing, halted = warm.changing()  # the last one changes where a number is not finite
    assert all(not torch.equal(now, then) for now, then in zip(changing, before[:-1], strict=True))
    assert torch.equal(halted, before[-1])
    with torch.no_grad():
        for now, then in zip(warm.changing(), before, strict=True):
            now.copy_(then)
    assert warm.train(1) == cold.train(1)
    assert torch.equal(warm.stack.flat, cold.stack.flat)


def test_networks_see_their_own_data_unless_their_seeds_agree():
    own, shared = (population(MIXES[name]) for name in ("thrifty g-LSTM", "one seed"))
    own.start(1)
    shared.start(1)
    assert list(shared.stages) == [()]
    for row in range(3):
        expected = torch.cat([x for x, _ in make_task(SMALL).batches("train", 16, row, 1)], 1)
        assert torch.equal(own.stages[(row,)][0][0], expected)


def test_rates_and_lambda_follow_their_schedules():
    recipes = [
        SMALL.changed(epochs=4, schedule="linear", lr=0.1, gate_lr=1.0, budget=0.6, budget_epochs=3),
        SMALL.changed(epochs=4, schedule="cosine", lr=0.2, gate_lr=0.0),
        SMALL.changed(epochs=4, curriculum=True, gate_lr=0.5),
    ]
    found = population(recipes, precision="64-true")
    seen = []
    for epoch in (1, 2, 3, 4):
        found.start(epoch)
        seen.append((found.rates[:, 0].tolist(), found.rates[:, found.stack.weights].tolist(), found.budgets.tolist()))
    half = (1 + 2**-0.5) / 2
    for (weights, gates, lambdas), linear, cosine, charge in zip(
        seen, (1, 0.75, 0.5, 0.25), (1, half, 0.5, 1 - half), (0.2, 0.4, 0.6, 0.6), strict=True
    ):
        assert weights == pytest.approx([0.1 * linear, 0.2 * cosine, 5e-3])
        assert gates == pytest.approx([linear, 0, 0])
        assert lambdas == pytest.approx([charge, 0, 0])


def test_models_are_views_of_the_one_tensor():
    found = trained(MIXES["PLSTM"])
    x = torch.randn(12, 5, 2)
    with torch.no_grad():
        before = found.models[1].eval()(x)
        found.stack.flat[1] *= 0.5
        assert not torch.equal(found.models[1](x), before)
    names = dict(found.models[1].named_parameters())
    weights, gates = found.stack.own(found.stack.flat.detach(), 1)
    shapes = found.stack.layouts[1].shapes
    assert torch.equal(torch.cat([names[name].flatten() for name in shapes]), torch.cat((weights, gates)))


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
def test_other_arithmetic_trains_too(precision):
    found = trained([SMALL, SMALL.changed(seed=1)], precision)
    for score, exact in zip(found.test(), trained([SMALL, SMALL.changed(seed=1)]).test(), strict=True):
        assert score.error == pytest.approx(exact.error, rel=0.05)
    assert {parameter.dtype for model in found.models for parameter in model.parameters()} == {
        torch.float64 if precision == "64-true" else torch.float32
    }


def test_segments_train_as_one_piece():
    recipes = [SMALL.changed(segment=5), SMALL.changed(segment=5, seed=1)]
    whole = trained([recipe.changed(segment=None) for recipe in recipes], "64-true")
    for model, other in zip(trained(recipes, "64-true").models, whole.models, strict=True):
        assert same(model, other, 1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 7}, "have the same batch, not 16 and 7"),
        ({"optimizer": "sgd"}, "have the same optimizer, not adam and sgd"),
        ({"epochs": 4}, "have the same epochs, not 3 and 4"),
    ],
)
def test_what_must_be_shared_is_named(changes, message):
    with pytest.raises(UserError, match=message):
        population([SMALL, SMALL.changed(**changes)])


def test_a_population_needs_a_member():
    with pytest.raises(UserError, match="at least one network"):
        Population(make_task(SMALL), [], [])


def test_epochs_count_from_one():
    found = population([SMALL])
    for epoch in (0, SMALL.epochs + 1):
        with pytest.raises(UserError, match=f"epochs count from 1 to the settings' 3, and {epoch} is none"):
            found.train(epoch)


def test_what_cannot_be_trained_is_said():
    task = make_task(SMALL)
    model = make_model(SMALL, task)
    with pytest.raises(UserError, match="two members cannot share a network or a part of one"):
        Population(task, model, [SMALL, SMALL.changed(seed=1)])
    with pytest.raises(UserError, match="each network needs settings of its own, but there are 1 and 2"):
        Population(task, [model], [SMALL, SMALL])
    with pytest.raises(UserError, match="is a torch module with parameters, not ReLU"):
        Population(task, torch.nn.ReLU, SMALL)
    for changes, message in (
        ({"curriculum": True}, "widens Gaussian gates, and this network has none"),
        ({"budget": 1.0}, "charges for openness, and this network has no gates that could close"),
    ):
        for cell in ("lstm", "gru"):
            with pytest.raises(UserError, match=message):
                population([SMALL.changed(cell=cell, **changes)])
