"""The command line, end to end."""

import csv
import json
import os
import signal
import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.main import get_command

from commands import glstm_process
from glstm import __version__
from glstm.cells import CELLS
from glstm.cli.main import app
from glstm.gates import GATES
from glstm.models import HEADS
from glstm.ops import CANDIDATES
from glstm.recipes import INITIALISERS, PRESETS, Recipe
from glstm.training.optimizers import OPTIMIZERS
from glstm.training.settings import SCHEDULES

RUN_SMALL = [
    "--steps",
    "20",
    "--units",
    "6",
    "--train-size",
    "60",
    "--test-size",
    "40",
    "--batch",
    "20",
    "--mu",
    "1,20",
    "--sigma",
    "5",
]


def glstm(*arguments, check=True, **more) -> subprocess.CompletedProcess:
    done = glstm_process(*arguments, **more)
    assert not check or done.returncode == 0, done.stderr
    return done


def command(*arguments) -> list[str]:
    return [sys.executable, "-m", "glstm", *map(str, arguments)]


def test_train_evaluate_resume(tmp_path):
    run = tmp_path / "run"
    done = glstm("train", "adding", *RUN_SMALL, "--epochs", 2, "--out", run)
    assert "epoch 2/2" in done.stdout
    assert done.stdout.endswith("in epoch 2\n")
    with (run / "metrics.csv").open() as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2"]
    assert (run / "gates.png").read_bytes().startswith(b"\x89PNG")
    assert (run / "learning_curve.png").exists()

    found = json.loads(glstm("evaluate", run, "-t", 0, "-t", 0.5, "--json").stdout)
    closed = found["rows"][1]
    assert [row["threshold"] for row in found["rows"]] == [0, 0.5]
    assert closed["open_share"] < found["rows"][0]["open_share"]
    assert closed["cached_ops"] < closed["paper_ops"] < closed["lstm_ops"]
    table = glstm("evaluate", run, env={**os.environ, "COLUMNS": "120"}).stdout
    for word in ("threshold", "mse", "ops exact"):
        assert word in table

    finished = glstm("train", "--resume", run)
    assert "is finished, after 2 epochs; give more --epochs" in finished.stdout
    glstm("train", "--resume", run, "--epochs", 3)
    with (run / "metrics.csv").open() as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2", "3"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=["Ctrl-C", "a closed terminal"])
def test_a_signal_stops_politely_and_resume_ends_at_the_same_bits(tmp_path, number):
    options = ["train", "adding", *RUN_SMALL, "--epochs", 20, "--train-size", 100, "--test-size", 20]
    glstm(*options, "--out", tmp_path / "whole")
    at_first = signal.signal(number, signal.SIG_DFL)  # under nohup it would be ignored, and commands keep that
    try:
        process = subprocess.Popen(command(*options, "--out", tmp_path / "cut"), stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(number, at_first)
    assert process.stdout is not None
    assert "epoch 1/20" in process.stdout.readline()
    process.send_signal(number)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "go on with: glstm train --resume" in rest
    glstm("train", "--resume", tmp_path / "cut")
    names = ("model.safetensors", "losses.csv")
    assert all((tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes() for name in names)


def test_several_seeds_train_together_and_go_on_from_their_folder(tmp_path):
    options = ["train", "adding", *RUN_SMALL, "--seed", 3, "--train-size", 100, "--test-size", 20, "--epochs", 20]
    done = glstm(*options, "--seeds", 2, "--out", tmp_path / "whole")
    assert "epoch 20/20: loss " in done.stdout
    assert [line.split(":")[0] for line in done.stdout.splitlines()[-2:]] == [
        str(tmp_path / "whole" / f"seed{seed}") for seed in (3, 4)
    ]
    glstm(*options, "--out", tmp_path / "alone")
    cut = tmp_path / "cut"
    process = subprocess.Popen(command(*options, "--seeds", 2, "--out", cut), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "epoch 1/20" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert f"go on with: glstm train --resume {cut}\n" in process.communicate(timeout=60)[0]
    assert process.returncode == 130
    glstm("train", "--resume", cut)
    for name in ("model.safetensors", "losses.csv"):
        for seed in (3, 4):
            assert (cut / f"seed{seed}" / name).read_bytes() == (tmp_path / f"whole/seed{seed}" / name).read_bytes()
        assert (tmp_path / "alone" / name).read_bytes() == (cut / "seed3" / name).read_bytes()
    glstm("evaluate", cut / "seed4")
    both = ["--resume", cut / "seed4", "--resume", tmp_path / "alone"]
    assert glstm("train", *both).stdout.count("is finished, after 20 epochs") == 2


def test_two_devices_share_a_batch_and_reach_the_same_network(tmp_path):
    options = ["train", "adding", *RUN_SMALL, "--epochs", 2, "--device", "cpu", "--train-size", 50, "--seeds", 2]
    glstm(*options, "--out", tmp_path / "one")
    glstm(*options, "--out", tmp_path / "two", "--devices", 2)
    for seed in ("seed0", "seed1"):
        paths = [tmp_path / name / seed for name in ("one", "two")]
        one, two = (load_file(path / "model.safetensors") for path in paths)
        for name, tensor in one.items():
            assert (tensor - two[name]).abs().max() < 1e-5, name
        metrics = [(path / "metrics.csv").read_text().splitlines()[-1].split(",") for path in paths]
        assert float(metrics[0][1]) == pytest.approx(float(metrics[1][1]), rel=1e-4)
        assert float(metrics[0][3]) == pytest.approx(float(metrics[1][3]), rel=1e-4)


def test_sequential_mnist_from_real_files(real_mnist, tmp_path):
    run = tmp_path / "run"
    options = ["--units", 4, "--train-size", 20, "--test-size", 10, "--batch", 10, "--epochs", 1, "--data", real_mnist]
    glstm("train", "smnist", *options, "--out", run)
    assert json.loads((run / "config.json").read_text())["task"]["steps"] == 784
    assert "error" in glstm("evaluate", run, "--data", real_mnist).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "say what to train on: a file of yours, adding, smnist, pmnist, scifar, or your"),
        (["train", "mnist"], "there is no task 'mnist'; there are adding, smnist, pmnist, scifar, and your own as"),
        (["train", "adding", "--mu", "low"], "--mu takes one number or LOW,HIGH, such as 40 or 300,700, not 'low'"),
        (["train", "adding", "--preset", "smnist"], "adding has no preset 'smnist'"),
        (["train", "adding", "--steps", "1"], "needs at least 2 steps, not 1"),
        (["train", "adding", "--cell", "lstm", "--sigma", "4"], "the lstm cell has no time gate: leave out --sigma"),
        (["train", "adding", "--mu", "5000", "--sigma", "4"], "no gate opens within the 1000 steps of adding"),
        (["train", "adding", "--units", "-3"], "units must be a whole number of at least 1, not -3"),
        (["train", "adding", "--seeds", "0"], "--seeds is how many networks to train, at least 1, not 0"),
        (
            ["train", "adding", "--budget-epochs", "3"],
            "budget_epochs is how long a budget takes to rise, but budget is",
        ),
        (["train", "adding", "--device", "cuda", "--devices", "99"], "CUDA device"),
        (["train", "--resume", "nowhere"], "nowhere is not there; a run is a folder that glstm train made"),
        (["evaluate", "nowhere"], "nowhere is not there; a run is a folder that glstm train made"),
        (["data", "verify", "imagenet"], "there is no data set 'imagenet'; there are mnist, cifar10"),
        (["train", "adding", "--chrono", "inf"], "chrono must be a finite number, not inf"),
        (["train", "adding", "--seed", "99999999999999999999"], "seed must fit 64 bits"),
        (["train", "adding", "--curriculum", "--open-sigma", "nan"], "open_sigma must be finite"),
        (["train", "adding", "--mu", "[/x]"], "not '[/x]'"),
        (["train", "adding", "--preset", "[bold]x"], "adding has no preset '[bold]x'"),
        (["train", "adding", "--out", "/proc/nowhere"], "/proc/nowhere cannot be made"),
        (["train", "smnist", "--data", "mnst"], "--data is a folder of data files, but mnst is not there"),
        (
            ["train", "adding", "--epochs", "3", "--budget-epochs", "9"],
            "budget_epochs is at most epochs, 3 here, not 9",
        ),
        (["demo", "--seconds", "0"], "--seconds must be at least 1, not 0"),
        (["demo", "--seconds", "nan"], "--seconds must be at least 1, not nan"),
    ],
)
def test_bad_calls_get_one_sentence_and_leave_nothing(arguments, message, tmp_path):
    done = glstm(*arguments, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_of_ours_is_a_sentence_too(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("def task():\n    raise AssertionError('two\\nlines')\n")
    done = glstm("train", "broken:task", check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    says = "error: 'glstm train broken:task' stopped at something that nobody expected, AssertionError two:"
    assert done.stderr.startswith(says)
    monkeypatch.setenv("GLSTM_TRACEBACK", "1")
    assert "Traceback" in glstm("train", "broken:task", check=False, cwd=tmp_path).stderr


def test_a_file_in_the_way_is_named_and_kept(tmp_path):
    (tmp_path / "file").write_text("precious")
    for arguments in (["train", "adding", *RUN_SMALL, "--out", "file"], ["demo", "--out", "file"]):
        done = glstm(*arguments, check=False, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("error: the folder file cannot be made")
    assert (tmp_path / "file").read_text() == "precious"
    assert glstm("evaluate", "file", "--batch", 0, check=False, cwd=tmp_path).returncode == 2


def test_a_resumed_run_remembers_where_and_how_it_ran(tmp_path, real_mnist):
    small = ["--units", 2, "--train-size", 4, "--test-size", 4, "--batch", 2, "--epochs", 1]
    (tmp_path / "link").symlink_to(real_mnist)
    glstm("train", "smnist", *small, "--data", "link", "--precision", "64-true", "--out", "run", cwd=tmp_path)
    elsewhere = {**os.environ, "GLSTM_DATA": str(tmp_path / "empty"), "HOME": str(tmp_path / "home"), "PATH": ""}
    glstm("train", "--resume", tmp_path / "run", "--epochs", 2, env=elsewhere, cwd="/")
    assert {tensor.dtype for tensor in load_file(tmp_path / "run" / "model.safetensors").values()} == {torch.float64}
    glstm("evaluate", tmp_path / "run", env=elsewhere, cwd="/")
    refused = glstm("train", "--resume", tmp_path / "run", "--precision", "32-true", check=False)
    assert "was trained with --precision 64-true: resume it alone, without --precision" in refused.stderr
    assert json.loads((tmp_path / "run/config.json").read_text())["where"]["matmul"] == "high"


def test_a_run_is_never_overwritten_or_changed_by_resuming(tmp_path):
    run = tmp_path / "run"
    glstm("train", "adding", *RUN_SMALL, "--epochs", 1, "--out", run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    again = glstm("train", "adding", *RUN_SMALL, "--out", run, check=False)
    assert "already holds a run" in again.stderr
    for option, value in (("--lr", 0.1), ("--seeds", 3), ("--schedule", "cosine")):
        changed = glstm("train", "--resume", run, option, value, check=False)
        assert f"a resumed run keeps its recipe and its folder: leave out {option}" in changed.stderr
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_folder_holds_one_run_or_the_folders_of_several(tmp_path):
    glstm("train", "adding", *RUN_SMALL, "--epochs", 1, "--seeds", 2, "--out", tmp_path / "two")
    into = glstm("train", "adding", *RUN_SMALL, "--out", tmp_path / "two", check=False)
    assert f"{tmp_path / 'two'} already holds a run" in into.stderr
    glstm("train", "adding", *RUN_SMALL, "--epochs", 1, "--out", tmp_path / "one")
    below = glstm("train", "adding", *RUN_SMALL, "--seeds", 2, "--out", tmp_path / "one", check=False)
    assert f"{tmp_path / 'one'} already holds a run" in below.stderr
    which = glstm("evaluate", tmp_path / "two", check=False)
    assert "holds the folders of several runs: say which, seed0, seed1" in which.stderr
    longer = glstm("train", "--resume", tmp_path / "two" / "seed1", "--epochs", 2)
    assert "in epoch 2" in longer.stdout
    unequal = glstm("train", "--resume", tmp_path / "two", check=False)
    assert "seed0 and" in unequal.stderr
    assert "--epochs gives all of them the same" in unequal.stderr


def test_data_lists_and_verifies(tmp_path, real_mnist):
    empty = glstm("data", "list", "--data", tmp_path).stdout
    assert "train-images-idx3-ubyte" in empty
    missing = glstm("data", "verify", "mnist", "--data", tmp_path, check=False)
    assert missing.returncode == 2
    assert "t10k-labels-idx1-ubyte missing; run 'glstm data fetch mnist'" in missing.stderr
    verified = glstm("data", "verify", "mnist", "--data", real_mnist)
    assert verified.stdout.count("ok ") == 4
    by_variable = glstm("data", "verify", "mnist", env={**os.environ, "GLSTM_DATA": str(real_mnist)})
    assert by_variable.stdout == verified.stdout


def test_help_names_every_value_of_a_recipe():
    text = glstm("train", "--help", env={**os.environ, "COLUMNS": "200"}).stdout
    elsewhere = {"task", "data", "options"}  # the argument, and what several options make up
    for field in fields(Recipe):
        assert field.name in elsewhere or f"--{field.name.replace('_', '-')} " in text, field.name
    for name in (*PRESETS, *CELLS, *GATES, *HEADS):
        assert name in text, name
    for choices in (OPTIMIZERS, (*INITIALISERS, "own"), CANDIDATES, SCHEDULES):
        assert f"<{'|'.join(choices)}>" in text


def test_version_says_which_engine_runs():
    assert glstm("--version").stdout.startswith(f"glstm {__version__}: glstm runs on its ")


def test_demo_in_a_few_seconds(tmp_path):
    out = tmp_path / "demo"
    for seconds in (3, 1):  # a second time it replaces its own result
        done = glstm("demo", "--seconds", seconds, "--out", out, env={**os.environ, "COLUMNS": "120"})
        for word in ("g-LSTM", "LSTM", "operations", "demo.png", "explore.html"):
            assert word in done.stdout
        assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
        assert (out / "explore.html").read_text().startswith("<!doctype html>")


def test_demo_touches_no_folder_that_is_not_its_own(tmp_path):
    (tmp_path / "glstm").mkdir()
    (tmp_path / "thesis.txt").write_text("precious")
    refused = glstm("demo", "--out", tmp_path, check=False)
    assert "holds something that is not a demo's result" in refused.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["glstm", "thesis.txt"]


def test_a_polite_kill_stops_as_ctrl_c_does(tmp_path):
    run = tmp_path / "run"
    process = subprocess.Popen(
        command("train", "adding", *RUN_SMALL, "--epochs", 5000, "--out", run), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert "go on with" in process.communicate(timeout=60)[0]
    assert process.returncode == 130


def test_presets_are_said_to_be_for_the_papers_tasks():
    verbs: Any = get_command(app)
    preset = next(one for one in verbs.commands["train"].params if one.name == "preset")
    assert "For a task of the paper" in preset.help
    assert "Files and your own tasks have none" in preset.help
