"""Every cell in training: side by side, and again with the same bits; some presets."""

import pytest
import torch

from glstm.recipes import PRESETS, Recipe, make_task, model_maker
from glstm.training.population import Population

CELLS = {
    "indrnn": {"dropout": 0.2},
    "mingru": {},
    "tcn": {"dropout": 0.2, "kernel_size": 3},
    "clockwork": {"periods": (1, 2, 4)},
    "bn-lstm": {"noise": 0.1},
    "skip-lstm": {},
    "skip-gru": {},
    "lstm-jump": {"read": 3, "furthest": 4},
    "zoneout": {},
    "r-lstm": {"reconstruct": 5, "truncate": 4},
    "chrono-lstm": {},
}


def recipe_of(name: str) -> Recipe:
    return PRESETS["adding-1000"].changed(
        cell=name, options=CELLS[name], units=6, layers=2, epochs=2, batch=20,
        data={"steps": 15, "train_size": 60, "test_size": 40},
    )  # fmt: skip


def trained(recipe: Recipe, seeds: list[int], together: bool) -> tuple[list[dict[str, torch.Tensor]], int]:
    """Each network's values after two epochs, and in how many calls they were trained."""
    task = make_task(recipe)
    settings = [recipe.changed(seed=seed) for seed in seeds]
    population = Population(task, model_maker(recipe, task), settings, together=together)
    for epoch in (1, 2):
        population.train(epoch)
    population.test()
    values = [{name: one.detach().clone() for name, one in own.state_dict().items()} for own in population.models]
    return values, len(population.stack.groups)


@pytest.mark.parametrize("name", CELLS)
def test_networks_together_and_alone(name):
    """One call for both, in testing too, and each ends as if it were alone: masks and statistics are its own."""
    recipe = recipe_of(name)
    both, calls = trained(recipe, [3, 4], together=True)
    assert calls == 1
    for seed, own in zip((3, 4), both, strict=True):
        (alone,), _ = trained(recipe, [seed], together=False)
        for part, value in alone.items():
            assert torch.allclose(own[part], value, rtol=1e-4, atol=1e-5), part


def test_a_member_that_is_done_keeps_its_statistics():
    """On CUDA it is computed, too, because a graph is the same for all steps."""
    recipe = recipe_of("indrnn")
    task = make_task(recipe)
    population = Population(task, model_maker(recipe, task), [recipe.changed(seed=seed) for seed in (3, 4)])
    population.computes_done, population.done = True, {0}
    before = [{name: value.clone() for name, value in model.state_dict().items()} for model in population.models]
    population.train(1)
    changed = [
        {name for name, value in model.state_dict().items() if not torch.equal(value, old[name])}
        for model, old in zip(population.models, before, strict=True)
    ]
    assert changed[0] == set()
    assert "layer.layers.0.norm.running_mean" in changed[1]


@pytest.mark.parametrize("name", CELLS)
def test_the_same_seed_gives_the_same_bits(name):
    (one,), _ = trained(recipe_of(name), [3], together=False)
    (other,), _ = trained(recipe_of(name), [3], together=False)
    assert all(torch.equal(value, other[part]) for part, value in one.items())


@pytest.mark.parametrize("name", ["indrnn", "tcn"])
def test_the_preset_makes_the_papers_network(name):
    recipe = PRESETS[f"smnist-{name}"]
    assert recipe.cell == name
    assert recipe.init is None
    assert (recipe.units, recipe.layers, recipe.lr) == {"indrnn": (128, 6, 2e-4), "tcn": (25, 8, 2e-3)}[name]
