import re
from pathlib import Path

import pytest

from glstm.errors import UserError
from glstm.recipes import PRESETS, preset
from glstm.sweeps.plan import Range, Search, read_plan, with_values

GRID = """
task = "adding"
seeds = [0, 1]
[recipe]
epochs = 2
data = { steps = 12 }
[grid]
lr = [1e-3, 1e-2]
"gate.sigma" = [2.0, 4.0]
"""
SEARCH = """
task = "adding"
[search]
trials = 6
together = 3
[search.values]
lr = { low = 1e-4, high = 1e-2, log = true }
units = [4, 6]
"""


def plan(tmp_path, text):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return read_plan(path)


def test_a_grid_is_every_value_with_every_other(tmp_path):
    found = plan(tmp_path, GRID)
    assert (found.task, found.seeds, found.recipe["epochs"]) == ("adding", (0, 1), 2)
    assert list(found.in_grid()) == [
        {"lr": lr, "gate.sigma": sigma} for lr in (1e-3, 1e-2) for sigma in (2.0, 4.0)
    ]  # fmt: skip


def test_a_search_has_ranges_and_lists(tmp_path):
    values = {"lr": Range(1e-4, 1e-2, log=True), "units": [4, 6]}
    assert plan(tmp_path, SEARCH).search == Search(6, values, together=3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("task = ", "is not TOML"),
        ("seeds = [1]", "say what to train on"),
        ('task = "adding"', "a \\[grid\\] or a \\[search\\], one of the two"),
        (GRID + "[search]\ntrials = 3\nvalues = {lr = [1]}", "one of the two"),
        (GRID.replace("[0, 1]", '["a"]'), "seeds are whole numbers"),
        (GRID.replace("[1e-3, 1e-2]", "1e-3"), "the values of lr in the grid are a list"),
        (GRID.replace("[recipe]", "[recipes]"), "no entry 'recipes'; there are grid, preset"),
        (SEARCH.replace("trials = 6", "trials = 0"), "trials in \\[search\\] is a whole number of at least 1"),
        (SEARCH.replace("trials = 6", ""), "needs trials"),
        (SEARCH.replace("low = 1e-4", "low = 1"), "from low to a larger high"),
        (SEARCH.replace("low = 1e-4", "least = 1"), "is a list, or { low = 1, high = 9 }"),
        (SEARCH.replace("together", "jointly"), "no entry 'jointly'"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_refused(tmp_path, text, sentence):
    with pytest.raises(UserError, match=sentence):
        plan(tmp_path, text)


def test_a_plan_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.toml cannot be read"):
        read_plan(tmp_path / "none.toml")


def test_values_are_those_of_a_recipe():
    base = PRESETS["adding-1000"]
    assert with_values(base, {"lr": 0.1, "gate.sigma": 3.0, "data": {"train_size": 9}}) == base.changed(
        lr=0.1, gate={"sigma": 3.0}, data={"train_size": 9}
    )
    assert with_values(base, {"data.steps": 100, "lr": 0.1}) == base.at_length(100).changed(lr=0.1)
    assert with_values(base, {"units": 5, "cell": "lstm"}) == base.changed(cell="lstm").changed(units=5)
    for name in ("rate", "gate", "lr.low", "gates.sigma"):
        with pytest.raises(UserError, match=f"a recipe has no value '{name}'; it has alpha, .* gate.NAME"):
            with_values(base, {name: 1.0})


PAGE = Path(__file__).parents[2] / "docs/sweeps.md"
PLANS = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), flags=re.S)


@pytest.mark.parametrize("text", PLANS)
def test_the_plans_of_the_page_can_be_followed(tmp_path, text):
    found = plan(tmp_path, text)
    recipe = with_values(preset(found.task), found.recipe)
    first = next(found.in_grid()) if found.grid else dict.fromkeys(found.search.values, 32)
    assert with_values(recipe, first) != recipe
