"""Sweeps by the command line: real trainings of tiny networks."""

import json

import pytest
from typer.testing import CliRunner

from glstm.cli.main import app
from glstm.errors import UserError
from glstm.stopping import INTERRUPTED

COMMON = """
task = "adding"
[recipe]
epochs = 2
units = 4
data = { steps = 12, train_size = 40, test_size = 10, validation = 30 }
batch = 20
"""
GRID = f"""{COMMON}
[grid]
lr = [1e-3, 1e-2]
"gate.sigma" = [2.0, 6.0]
"""
SEARCH = f"""{COMMON}
[search]
trials = 5
together = 2
[search.values]
lr = {{ low = 1e-4, high = 1e-1, log = true }}
units = {{ low = 2, high = 4 }}
"gate.sigma" = [2.0, 4.0]
"""


def sweep(tmp_path, text, *more, name="plan"):
    path = tmp_path / f"{name}.toml"
    path.write_text(text)
    return CliRunner().invoke(app, ["sweep", str(path), "--out", str(tmp_path / name), "--device", "cpu", *more])


def found(tmp_path, name="plan"):
    return json.loads((tmp_path / name / "sweep.json").read_text())


def test_a_grid_is_ranked_by_validation_and_goes_on(tmp_path):
    said = sweep(tmp_path, "seeds = [0, 3]\n" + GRID)
    assert said.exit_code == 0, said.output
    trials = found(tmp_path)["trials"]
    errors = [trial["validation_error"] for trial in trials]
    assert errors == sorted(errors)
    assert len(trials) == 4
    assert all(len(trial["folders"]) == 2 and trial["standard_deviation"] >= 0 for trial in trials)
    assert "networks of the best recipe: " in said.output
    assert (tmp_path / "plan/sweep.png").read_bytes().startswith(b"\x89PNG")
    for folder in trials[0]["folders"]:
        summary = json.loads((tmp_path / folder / "summary.json").read_text())
        assert set(summary["curve"]["test_error"]) == {None}  # no choice by the test set
    before = (tmp_path / "plan/sweep.json").read_bytes()
    again = sweep(tmp_path, "seeds = [0, 3]\n" + GRID)
    assert "to be trained" not in again.output
    assert (tmp_path / "plan/sweep.json").read_bytes() == before


def test_a_search_that_is_stopped_ends_with_the_same_trials(tmp_path):
    pytest.importorskip("optuna")
    assert sweep(tmp_path, SEARCH, name="whole").exit_code == 0
    stopped = sweep(tmp_path, SEARCH, "--minutes", "0.01", name="cut")
    while stopped.exit_code == INTERRUPTED:
        stopped = sweep(tmp_path, SEARCH, "--minutes", "0.02", name="cut")
    assert stopped.exit_code == 0, stopped.output
    whole, cut = ([trial["values"] for trial in found(tmp_path, name)["trials"]] for name in ("whole", "cut"))
    assert whole == cut
    assert len(whole) == 5


def test_a_recipe_that_comes_twice_is_trained_once(tmp_path):
    said = sweep(tmp_path, "seeds = [0, 0]\n" + GRID.replace("[1e-3, 1e-2]", "[1e-3, 1e-3]"))
    assert said.exit_code == 0, said.output
    assert len(found(tmp_path)["trials"]) == 4
    assert len(list((tmp_path / "plan/networks").glob("*/summary.json"))) == 2


def test_a_task_without_validation_is_refused(tmp_path):
    said = sweep(tmp_path, GRID.replace("validation = 30", "validation = 0"))
    assert said.exit_code != 0
    assert "validation must be a whole number of at least 1" in str(said.exception)


def test_seeds_are_said_in_one_place(tmp_path):
    said = sweep(tmp_path, GRID.replace("lr =", "seed = [1]\nlr ="))
    assert "seeds of a sweep are said by seeds = [0, 1]" in str(said.exception)


BAD = {
    "units = [4, 0]": "units",
    "lr = [1e-2, -1.0]": "lr",
    "optimizer = ['adam', 'adm']": "adm",
    "cell = ['gru', 'nothing']": "nothing",
    '"gate.sigma" = [2.0, "wide"]': "wide",
    '"data.steps" = [12, 1]': "steps",
    "init = ['orthogonal', 'square']": "square",
}


@pytest.mark.parametrize("line", BAD)
def test_a_bad_value_in_the_last_recipe_is_found_before_the_first_is_trained(tmp_path, line):
    said = CliRunner().invoke(
        app, ["sweep", _plan(tmp_path, f"{COMMON}\n[grid]\n{line}"), "--out", str(tmp_path / "x")]
    )
    assert isinstance(said.exception, UserError), said.output
    assert BAD[line] in str(said.exception)
    assert not (tmp_path / "x").exists()


def test_a_bad_end_of_a_search_is_found_before_the_first_is_trained(tmp_path):
    pytest.importorskip("optuna")
    search = SEARCH.replace("low = 2, high = 4", "low = 0, high = 4")
    said = CliRunner().invoke(app, ["sweep", _plan(tmp_path, search), "--out", str(tmp_path / "x")])
    assert isinstance(said.exception, UserError)
    assert "units" in str(said.exception)
    assert not (tmp_path / "x").exists()


def _plan(tmp_path, text) -> str:
    (tmp_path / "plan.toml").write_text(text)
    return str(tmp_path / "plan.toml")


def test_with_a_budget_the_error_is_that_of_the_network_that_is_kept(tmp_path):
    budget = COMMON.replace("epochs = 2", "epochs = 12\nbudget = 50.0\nlr = 0.05\ngate_lr = 0.5")
    said = sweep(tmp_path, f'{budget}\n[grid]\n"gate.sigma" = [3.0, 6.0]')
    assert said.exit_code == 0, said.output
    differs = False
    for trial in found(tmp_path)["trials"]:
        (folder,) = trial["folders"]
        kept = json.loads((tmp_path / folder / "result.json").read_text())
        assert trial["validation_error"] == pytest.approx(kept["validation_error"], rel=1e-12)
        curve = json.loads((tmp_path / folder / "summary.json").read_text())["curve"]["validation_error"]
        differs |= min(curve) < kept["validation_error"]
    assert differs  # else this would test nothing
