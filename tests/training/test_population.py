"""A population: each member becomes what it would have become alone, and what a plain loop makes of it."""

from functools import partial

import pytest
import torch
from torch.nn.utils import clip_grad_norm_

from glstm import TemporalCurriculum, budget, gate_parameters, models, weight_parameters
from glstm.errors import UserError
from glstm.training import Population, masks, population
from glstm.training.build import build_model, build_task
from glstm.training.recipe import Recipe
from glstm.training.stack import Stack
from helpers import relative_error
from small_runs import RECIPES, SMALL

MIXES = {  # recipes that train together: what may differ, differs
    "thrifty g-LSTM": [
        RECIPES["thrifty g-LSTM"],
        RECIPES["thrifty g-LSTM"].changed(seed=1, budget=0.0, lr=1e-3, clip=0.0, schedule="cosine"),
        SMALL.changed(seed=2, budget=0.1, budget_epochs=2, gate_lr=0.0, clip=0.01, sigma=(1.0, 9.0), init="xavier"),
    ],
    "RMSProp, Drop-Connect": [
        RECIPES["RMSProp, Drop-Connect"],
        RECIPES["RMSProp, Drop-Connect"].changed(seed=1, decay=0.9, threshold=0.1, schedule="linear"),
    ],
    "curriculum": [
        RECIPES["curriculum"],
        RECIPES["curriculum"].changed(rho=0.5, alpha=1.0, open_epochs=2, open_sigma=90.0),
        SMALL.changed(seed=4, chrono=12.0),
    ],
    "PLSTM": [RECIPES["PLSTM"], RECIPES["PLSTM"].changed(seed=7, r=0.3, budget=1.0, gate_lr=0.01)],
    "LSTM": [RECIPES["LSTM"], RECIPES["LSTM"].changed(seed=1, lr=0.01, clip=0.05, forget_bias=3.0)],
    "two layers": [SMALL.changed(layers=2, budget=0.2), SMALL.changed(layers=2, seed=9, threshold=0.2)],
    "three cells": [
        SMALL.changed(threshold=0.05, layers=2),
        SMALL.changed(cell="lstm", seed=3, layers=2),
        SMALL.changed(cell="plstm", tau=12.0, s=(0.0, 6.0), r=0.5, seed=1, layers=2),
        SMALL.changed(seed=4, layers=2, gate_lr=0.0),
        SMALL.changed(cell="plstm", tau=9.0, s=(0.0, 6.0), r=0.5, seed=2, layers=2, threshold=0.1, budget=0.3),
    ],
    "one seed": [SMALL, SMALL.changed(lr=1e-3), SMALL.changed(sigma=2.0)],
}
several = pytest.mark.parametrize("recipes", MIXES.values(), ids=MIXES.keys())


def trained(recipes: list[Recipe], precision: str = "32-true", **more) -> Population:
    found = Population(recipes, build_task(recipes[0]), precision=precision, **more)
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
    recipes = [SMALL.changed(units=101, head="deep", seed=seed, train_size=70, epochs=1) for seed in (0, 1, 2)]
    together = trained(recipes)
    for recipe, model in zip(recipes, together.models, strict=True):
        assert same(model, trained([recipe]).models[0], 0)


@several
def test_side_by_side_they_compute_the_same(recipes, monkeypatch):
    """As on CUDA: all members along one model axis."""
    expected = trained(recipes, "64-true")
    monkeypatch.setattr(population, "Stack", partial(Stack, together=True))
    together = trained(recipes, "64-true")
    assert len(together.stack.groups) == 1 < len(expected.stack.groups)
    for model, other in zip(together.models, expected.models, strict=True):
        assert same(model, other, 1e-11)
    for score, other in zip(together.test(), expected.test(), strict=True):
        assert score.error == pytest.approx(other.error, rel=1e-10)
        assert score.mean_k == pytest.approx(other.mean_k, rel=1e-10)
        assert score.open_share == other.open_share


def plain_loop(recipe: Recipe, monkeypatch) -> torch.nn.Module:
    """The same training in plain PyTorch: its optimisers, its clipping, its autograd through the model as it is."""
    task = build_task(recipe)
    torch.manual_seed(recipe.seed)
    model = build_model(recipe, task.inputs, task.outputs).double()
    kinds = {
        "adam": torch.optim.Adam,
        "sgd": torch.optim.SGD,
        "rmsprop": partial(torch.optim.RMSprop, alpha=recipe.decay),
    }
    groups = [{"params": list(weight_parameters(model)), "lr": recipe.lr}]
    if gates := [gate for gate in gate_parameters(model) if gate.requires_grad]:
        groups.append({"params": gates, "lr": recipe.gate_lr})
    optimizer = kinds[recipe.optimizer](groups)
    rates = [group["lr"] for group in groups]
    curriculum = TemporalCurriculum(model, recipe.alpha, recipe.rho) if recipe.curriculum else None
    steps = 0

    def drop(weight, p, training):
        key = masks.keys(torch.tensor(recipe.seed), torch.tensor(steps))
        kept = masks.kept(key, masks.number_elements(weight.numel(), weight.device), p)
        return weight * kept.view(weight.shape) / (1 - p)

    monkeypatch.setattr(models, "dropout", drop)
    for epoch in range(1, recipe.epochs + 1):
        if curriculum is not None and epoch > recipe.epochs - recipe.open_epochs:
            curriculum.open(recipe.open_sigma)
        elif curriculum is not None and epoch > 1:
            curriculum.step()
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * recipe.rate_share(epoch)
        for x, y in task.batches("train", recipe.batch, recipe.seed, epoch):
            loss = task.losses(model(x.double()), y).mean()
            if recipe.budget:
                loss = loss + recipe.budget_in(epoch) * budget(model, task.steps)
            optimizer.zero_grad()
            loss.backward()
            if recipe.clip:
                clip_grad_norm_(list(weight_parameters(model)), recipe.clip)
            optimizer.step()
            steps += 1
    return model


@several
def test_a_member_becomes_what_a_plain_loop_makes_of_it(recipes, monkeypatch):
    for recipe, model in zip(recipes, trained(recipes, "64-true").models, strict=True):
        assert same(model, plain_loop(recipe, monkeypatch), 1e-9)


@pytest.mark.parametrize("recipes", [MIXES["thrifty g-LSTM"], MIXES["one seed"]])
def test_what_a_graph_holds_is_the_same_step(recipes, monkeypatch):
    """Nothing in it comes from the host, not even which batch it is; the last, smaller batch has a graph of its own."""
    made = []
    monkeypatch.setattr(population, "captured", lambda step, state: made.append(step) or step)
    by_graph = Population(recipes, build_task(recipes[0]))
    by_graph.one_graph = True
    for epoch in (1, 2, 3):
        by_graph.train(epoch)
    assert len(made) == 2
    assert torch.equal(by_graph.stack.flat, trained(recipes).stack.flat)


def test_all_that_a_step_changes_is_known():
    """Before a graph is captured, steps are made to warm up; they must leave no trace."""
    warm = Population(MIXES["RMSProp, Drop-Connect"], build_task(SMALL))
    cold = Population(MIXES["RMSProp, Drop-Connect"], build_task(SMALL))
    warm.start(1)
    before = [tensor.detach().clone() for tensor in warm._changing()]
    warm._update(warm._next(16))
    assert all(not torch.equal(now, then) for now, then in zip(warm._changing(), before, strict=True))
    with torch.no_grad():
        for now, then in zip(warm._changing(), before, strict=True):
            now.copy_(then)
    assert warm.train(1) == cold.train(1)
    assert torch.equal(warm.stack.flat, cold.stack.flat)


def test_networks_see_their_own_data_unless_their_seeds_agree():
    own, shared = (Population(MIXES[name], build_task(SMALL)) for name in ("thrifty g-LSTM", "one seed"))
    for found, shape in ((own, (3, 12, 70, 2)), (shared, (12, 70, 2))):
        found.start(1)
        assert found.stage[0].shape == shape
    for seed, x in enumerate(own.stage[0]):
        assert torch.equal(x, torch.cat([x for x, _ in build_task(SMALL).batches("train", 16, seed, 1)], 1))


def test_rates_and_lambda_follow_their_schedules():
    recipes = [
        SMALL.changed(epochs=4, schedule="linear", lr=0.1, gate_lr=1.0, budget=0.6, budget_epochs=3),
        SMALL.changed(epochs=4, schedule="cosine", lr=0.2, gate_lr=0.0),
        SMALL.changed(epochs=4, curriculum=True, gate_lr=0.5),
    ]
    found = Population(recipes, build_task(SMALL), precision="64-true")
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
    flat = found.stack.flat.detach()[1, : found.stack.weights]
    assert torch.equal(torch.cat([names[name].flatten() for name in found.stack.shapes])[: found.stack.weights], flat)


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
        ({"units": 7}, "have the same units, not 6 and 7"),
        ({"optimizer": "sgd"}, "have the same optimizer, not adam and sgd"),
        ({"epochs": 4}, "have the same epochs, not 3 and 4"),
    ],
)
def test_what_must_be_shared_is_named(changes, message):
    with pytest.raises(UserError, match=message):
        Population([SMALL, SMALL.changed(**changes)], build_task(SMALL))


def test_nobody_is_no_population():
    with pytest.raises(UserError, match="at least one recipe"):
        Population([], build_task(SMALL))


def test_epochs_count_from_one():
    population = Population([SMALL], build_task(SMALL))
    for epoch in (0, SMALL.epochs + 1):
        with pytest.raises(UserError, match=f"epochs count from 1 to the recipes' 3, and {epoch} is none"):
            population.train(epoch)


def test_the_task_must_be_the_recipes():
    with pytest.raises(UserError, match="for adding of 12 steps, the task is adding of 13 steps"):
        Population([SMALL], build_task(SMALL.changed(steps=13)))
