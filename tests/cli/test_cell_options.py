"""`glstm train --cell NAME` for every cell: it trains, is tested and read again, and what does not apply to it is
refused in one sentence that says what to leave out."""

import json
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from glstm import SequenceModel
from glstm.cells import CELLS
from glstm.cells.recurrent import Recurrent
from glstm.cli.main import app
from glstm.errors import UserError
from glstm.gated import GatedLSTM

SMALL = ["--steps", 12, "--epochs", 2, "--units", 8, "--train-size", 20, "--test-size", 10, "--batch", 10]
NEEDS: dict[str, list[Any]] = {"clockwork": ["--cell-option", "periods=1,2"]}
RIVALS = [name for name, cell in CELLS.items() if isinstance(cell, type) and not issubclass(cell, GatedLSTM)]
# Options of time gates, of a curriculum, and of LSTMs: no rival has any of them, but for a GRU's starts.
NOT_FOR_RIVALS = {
    "--mu": "has no time gate: leave out --mu",
    "--sigma": "has no time gate: leave out --sigma",
    "--gate-value tau=10": "has no time gate: leave out --gate-value",
    "--threshold": "has no time gate: leave out --threshold",
    "--gate-lr": "has no time gate: leave out --gate-lr",
    "--alpha": "has no time gate: leave out --alpha",
    "--rho": "has no time gate: leave out --rho",
    "--open-epochs": "has no time gate: leave out --open-epochs",
    "--open-sigma": "has no time gate: leave out --open-sigma",
    "--curriculum": "widens Gaussian gates, and this network has none: leave it out",
    "--gate gaussian": "does not take a gate of your choice: use the cell gated",
    "--candidate tanh": "cell cannot be chosen: leave out --candidate",
    "--init orthogonal": "has its own: leave them out",
    "--forget-bias": "has its own: leave them out",
    "--chrono 12": "has its own: leave them out",
    "--segment": "is none: leave it out",
    "--cell-option nothing=1": "nothing",
    "--sparsity 0.5": "gated layers, such as the cells glstm and lstm, and this network has none: leave it out",
    "--prune-until": "is for pruning: give --sparsity, or leave it out",
    "--budget-epochs": "budget_epochs is how long a budget takes to rise, but budget is 0.0",
}
FLAGS = ("--curriculum",)
STARTS = ("--init", "--forget-bias", "--chrono")  # which a GRU takes as an LSTM does


def run(*words: Any) -> Any:
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None:
        raise done.exception
    return done.stdout


def train(cell: str, *words: Any) -> Any:
    return run("train", "adding", "--cell", cell, *SMALL, *NEEDS.get(cell, []), *words)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("cell", RIVALS)
def test_what_does_not_apply_is_refused_and_leaves_nothing(cell, tmp_path):
    for words, sentence in NOT_FOR_RIVALS.items():
        option, *value = words.split()
        if cell == "gru" and option in STARTS:
            continue
        given = [] if option in FLAGS else value or ["1"]
        with pytest.raises(UserError) as refused:
            train(cell, option, *given)
        said = str(refused.value)
        assert sentence in said, f"{cell} {option}: {said}"
        assert "\n" not in said
        assert "__init__" not in said
        assert list(tmp_path.iterdir()) == [], f"{cell} {option}"


@pytest.mark.parametrize("cell", [*RIVALS, "lstm"])
def test_a_budget_is_for_cells_that_skip(cell, tmp_path):
    if hasattr(CELLS[cell], "share_of_updates"):
        train(cell, "--budget", 1, "--budget-epochs", 2, "--out", "run")
        return
    with pytest.raises(UserError, match="no gates that could close, nor does it skip steps: leave the budget out"):
        train(cell, "--budget", 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cell", RIVALS)
def test_it_trains_and_its_folder_is_tested_and_read_again(cell, tmp_path):
    train(cell, "--layers", 2, "--out", "run")
    (row,) = json.loads(run("evaluate", "run", "--json"))["rows"]
    model = SequenceModel.from_pretrained(tmp_path / "run")
    assert isinstance(model.layer, CELLS[cell])
    assert 0 < row["updates"] <= 1
    if not hasattr(CELLS[cell], "share_of_updates"):
        assert row["updates"] == 1
    if isinstance(model.layer, Recurrent):
        assert row["ops"] == pytest.approx(model.layer.count_ops(12, row["updates"]))
    table = run("evaluate", "run")
    assert "updates" in table
    assert "ops" in table


def test_weight_drop_needs_recurrent_weights(tmp_path):
    with pytest.raises(UserError, match="matrices named weight_hh, and this network has none: leave it out"):
        train("indrnn", "--weight-drop", 0.3, "--out", "run")
    assert list(tmp_path.iterdir()) == []
    train("gru", "--weight-drop", 0.3, "--out", "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["settings"]["weight_drop"] == 0.3


def test_options_of_a_curriculum_need_one():
    for option in ("--alpha", "--rho", "--open-epochs", "--open-sigma"):
        with pytest.raises(
            UserError, match=f"{option} is for a temporal curriculum: give --curriculum, or leave it out"
        ):
            run("train", "adding", *SMALL, option, 1)


@pytest.mark.parametrize("cell", ["lstm", "glstm"])
def test_a_pruned_network_is_saved_and_counted_without_what_was_pruned(cell, tmp_path):
    dense, sparse = ([] for _ in range(2))
    for name, options in (("dense", []), ("sparse", ["--sparsity", 0.75, "--prune-from", 0, "--prune-until", 0.5])):
        train(cell, *options, "--out", name)
        layer = SequenceModel.from_pretrained(tmp_path / name).layer
        weights = torch.cat([layer.weight_ih_l0.flatten(), layer.weight_hh_l0.flatten()])
        (row,) = json.loads(run("evaluate", name, "--json"))["rows"]
        (sparse if options else dense).extend([(weights == 0).double().mean().item(), row["cached_ops"]])
    assert (dense[0], sparse[0]) == (0.0, 0.75)
    assert sparse[1] < 0.75 * dense[1]


def test_the_gated_cell_asks_for_its_gate():
    for option in ("--mu", "--threshold", "--budget"):
        with pytest.raises(UserError, match="the cell gated needs a kind of gate: open, gaussian"):
            train("gated", option, 1)
