"""Gates, cells, heads and tasks from a module outside the package, in every part of glstm."""

import csv
import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from own_things import Bump, LeakyCell, Parity, SkippingCell, Window, tanh_head
from torch import nn

import glstm
from glstm import GatedLSTM, SequenceModel
from glstm.errors import UserError
from glstm.pretrained import load_model
from glstm.training import Settings, Trainer
from helpers import glstm_command
from small_runs import StopAfter, results

OUTSIDE = Path(__file__).parent / "outside"

SETTINGS = Settings(optimizer="adam", lr=0.01, batch=16, epochs=3)
MODELS = {
    "gate": lambda: SequenceModel(GatedLSTM(1, 6, gate=Bump(centre=(1.0, 16.0)), threshold=0.1), nn.Linear(6, 2)),
    "fixed gate": lambda: SequenceModel(GatedLSTM(1, 6, gate=Window()), nn.Linear(6, 2)),
    "cell with dropout": lambda: SequenceModel(LeakyCell(1, 6, rate=0.3), tanh_head(6, 2)),
    "cell that skips": lambda: SequenceModel(SkippingCell(1, 6), nn.Linear(6, 2)),
    "torch's LSTM": lambda: SequenceModel(nn.LSTM(1, 6), nn.Linear(6, 2)),
}
every = pytest.mark.parametrize("name", MODELS)


def trainer(name: str, paths: list[Path], **changes) -> Trainer:
    settings = [SETTINGS.changed(seed=seed, **changes) for seed in range(len(paths))]
    return Trainer(Parity(), MODELS[name], settings, paths)


@every
def test_one_trains_stops_and_goes_on_to_the_same_bits(name, tmp_path):
    whole = trainer(name, [tmp_path / "whole"])
    whole.begin()
    assert whole.fit()
    cut = trainer(name, [tmp_path / "cut"])
    cut.begin()
    for batches in (2, 1, 4):
        assert not cut.fit(should_stop=StopAfter(batches))
        torch.manual_seed(batches)  # whatever the process draws meanwhile
        cut = trainer(name, [tmp_path / "cut"])
        cut.resume()
    assert cut.fit()
    cut.finish()
    assert results(tmp_path / "cut") == results(tmp_path / "whole")
    assert (tmp_path / "cut" / "learning_curve.png").exists()


@every
def test_five_seeds_train_together_as_each_would_alone(name, tmp_path):
    together = trainer(name, [tmp_path / f"seed{seed}" for seed in range(5)])
    together.begin()
    assert not together.fit(should_stop=StopAfter(7))
    together = trainer(name, [tmp_path / f"seed{seed}" for seed in range(5)])
    together.resume()
    assert together.fit()
    for seed in (0, 3):
        alone = Trainer(Parity(), MODELS[name], SETTINGS.changed(seed=seed), tmp_path / f"alone{seed}")
        alone.begin()
        alone.fit()
        assert results(tmp_path / f"alone{seed}") == results(tmp_path / f"seed{seed}")


@every
def test_it_is_saved_and_loaded(name, tmp_path):
    model = MODELS[name]().eval()
    model.save_pretrained(tmp_path / "model")
    loaded = SequenceModel.from_pretrained(tmp_path / "model")
    x = torch.randn(16, 3, 1)
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))
    assert type(loaded.layer) is type(model.layer)
    run = trainer(name, [tmp_path / "run"])
    run.begin()
    run.fit()
    trained = run.runs[0].model.eval()
    with torch.no_grad():
        assert torch.equal(load_model(tmp_path / "run")(x), trained(x))


LOGGED = {"gate": (True, True), "cell that skips": (False, True), "torch's LSTM": (False, False)}


@pytest.mark.parametrize("name", LOGGED)
def test_openness_is_logged_where_there_is_any(name, tmp_path):
    run = trainer(name, [tmp_path / "run"], epochs=1)
    run.begin()
    run.fit()
    with (tmp_path / "run" / "metrics.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["mean_k"] != "", row["open_share"] != "") == LOGGED[name]
    if name == "cell that skips":
        assert float(row["open_share"]) == 0.5


def test_gates_that_learn_do_and_fixed_ones_do_not(tmp_path):
    for name, learns in (("gate", True), ("fixed gate", False)):
        run = trainer(name, [tmp_path / name], budget=0.1)
        before = {key: value.clone() for key, value in run.runs[0].model.layer.gate_values("_l0").items()}
        run.begin()
        run.fit()
        after = run.runs[0].model.layer.gate_values("_l0")
        assert any(not torch.equal(before[key], after[key]) for key in before) == learns


@pytest.mark.parametrize("name", ["gate", "fixed gate"])
@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
def test_its_gate_is_deployed_and_exported(name, tmp_path):
    from glstm.runtime.check_onnx import differences
    from glstm.runtime.export_c import export_c, vectors_from
    from glstm.runtime.export_onnx import export_step, export_whole

    torch.manual_seed(1)
    model = MODELS[name]().eval()
    runtime = glstm.deploy(model, 16, 0.1)
    x = torch.randn(16, 4, 1)
    model.layer.threshold = 0.1
    with torch.no_grad():
        assert torch.allclose(runtime(x), model(x), atol=1e-5)
    assert max(differences(model, export_whole(model), export_step(model), 16).values()) < 1e-5
    export_c(runtime.plan, tmp_path, "own", vectors_from(model, 0.1, x))
    subprocess.run(["gcc", "-std=c99", "-DOWN_TEST", "own.c", "-o", "own"], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "own"], check=True)


def test_what_cannot_be_found_again_is_said_and_trains_all_the_same(tmp_path):
    class Local(LeakyCell):
        pass

    model = SequenceModel(Local(1, 3), nn.Linear(3, 2))
    with pytest.raises(UserError, match="Local cannot be imported by its name"):
        model.save_pretrained(tmp_path / "model")
    run = Trainer(Parity(), model, SETTINGS, tmp_path / "run")
    run.begin()
    assert run.fit()
    with pytest.raises(UserError, match=r"does not describe a model: .*Local cannot be imported"):
        load_model(tmp_path / "run")


def test_a_resumed_run_keeps_its_settings(tmp_path):
    trainer("gate", [tmp_path / "run"]).begin()
    with pytest.raises(UserError, match=r"was trained with lr 0\.01, and goes on with it, not with 0\.5"):
        trainer("gate", [tmp_path / "run"], lr=0.5).resume()


def test_all_of_it_by_commands_alone(tmp_path):
    shutil.copy(OUTSIDE / "own_things.py", tmp_path)
    short = ["--units", 5, "--batch", 20, "--epochs", 2]
    own = ["own_things:Parity", "--task-option", "steps=12", "--head", "own_things:tanh_head"]
    gate = ["--gate", "own_things:Bump", "--gate-value", "centre=1,12", "--gate-value", "echo=0.25"]
    calls = [
        ["train", *own, *short, *gate, "--head", "linear", "--out", "gated"],
        ["train", "--resume", "gated", "--epochs", 3],
        ["evaluate", "gated", "-t", 0, "-t", 0.5],
        ["deploy", "gated", "--threshold", 0.2, "--seconds", 0.02],
        ["export", "c", "gated", "--name", "own"],
        ["export", "onnx", "gated"],
        ["train", *own, *short, "--cell", "own_things:LeakyCell", "--cell-option", "rate=0.75", "--out", "leaky"],
        ["train", "--resume", "leaky", "--epochs", 3],
        ["evaluate", "leaky"],
    ]
    for call in calls:
        trust = [] if own[0] in call else ["--trust", "own_things"]  # what the command itself names needs no more
        done = glstm_command(*trust, *call, cwd=tmp_path)
        assert done.returncode == 0, (call, done.stderr)
    config = json.loads((tmp_path / "gated" / "config.json").read_text())
    assert config["model"]["layer"]["gate"]["class"] == "own_things:Bump"
    assert config["model"]["layer"]["gate"]["echo"] == 0.25
    assert config["recipe"]["data"] == {"steps": 12}
    leaky = json.loads((tmp_path / "leaky" / "config.json").read_text())
    assert leaky["model"]["layer"]["rate"] == 0.75
    for call, message in (
        (["--trust", "own_things", "deploy", "leaky"], "holds a LeakyCell, and only networks of gated layers"),
        (["--trust", "own_things", "evaluate", "leaky", "-t", 0.1], "has no gates that a threshold could close"),
        (["train", *own, "--cell", "own_things:LeakyCell", "--sigma", 4], "has no time gate: leave out --sigma"),
        (["train", *own, "--cell", "own_things:Nothing"], "the cell 'own_things:Nothing' cannot be imported"),
    ):
        done = glstm_command(*call, cwd=tmp_path)
        assert done.returncode == 2
        assert message in " ".join(done.stderr.split())


def test_two_processes_test_and_save_the_same_running_statistics(tmp_path):
    shutil.copy(OUTSIDE / "own_things.py", tmp_path)
    options = ["own_things:Parity", "--cell", "own_things:Normed", "--units", 5, "--batch", 20, "--device", "cpu"]
    done = glstm_command("train", *options, "--epochs", 2, "--devices", 2, "--out", "two", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "two" / "metrics.csv").open() as file:
        logged = float(list(csv.DictReader(file))[-1]["test_loss"])
    evaluated = glstm_command("--trust", "own_things", "evaluate", "two", "--json", cwd=tmp_path)
    assert json.loads(evaluated.stdout)["rows"][0]["loss"] == pytest.approx(logged, rel=1e-6)
