"""The command line, end to end."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

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
    done = subprocess.run(command(*arguments), capture_output=True, text=True, **more)
    assert not check or done.returncode == 0, done.stderr
    return done


def command(*arguments) -> list[str]:
    return [sys.executable, "-m", "glstm", *map(str, arguments)]


def test_train_evaluate_resume(tmp_path):
    run = tmp_path / "run"
    done = glstm("train", "adding", *RUN_SMALL, "--epochs", 2, "--out", run)
    assert "epoch 2/2" in done.stdout
    assert "after 2 epochs" in done.stdout
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

    glstm("train", "--resume", run, "--epochs", 3)
    with (run / "metrics.csv").open() as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2", "3"]


def test_ctrl_c_stops_politely_and_resume_ends_at_the_same_bits(tmp_path):
    options = ["train", "adding", *RUN_SMALL, "--epochs", 40, "--train-size", 400, "--test-size", 20]
    glstm(*options, "--out", tmp_path / "whole")
    process = subprocess.Popen(command(*options, "--out", tmp_path / "cut"), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "epoch 1/40" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "go on with: glstm train --resume" in rest
    glstm("train", "--resume", tmp_path / "cut")
    names = ("model.safetensors", "losses.csv")
    assert all((tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes() for name in names)


def test_two_devices_share_a_batch_and_reach_the_same_network(tmp_path):
    options = ["train", "adding", *RUN_SMALL, "--epochs", 2, "--device", "cpu", "--train-size", 50]
    glstm(*options, "--out", tmp_path / "one")
    glstm(*options, "--out", tmp_path / "two", "--devices", 2)
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name, tensor in one.items():
        assert (tensor - two[name]).abs().max() < 1e-5, name
    metrics = [(tmp_path / name / "metrics.csv").read_text().splitlines()[-1].split(",") for name in ("one", "two")]
    assert float(metrics[0][1]) == pytest.approx(float(metrics[1][1]), rel=1e-4)
    assert float(metrics[0][3]) == pytest.approx(float(metrics[1][3]), rel=1e-4)


def test_sequential_mnist_from_real_files(real_mnist, tmp_path):
    run = tmp_path / "run"
    options = ["--units", 4, "--train-size", 20, "--test-size", 10, "--batch", 10, "--epochs", 1, "--data", real_mnist]
    glstm("train", "smnist", *options, "--out", run)
    assert json.loads((run / "config.json").read_text())["shape"] == {"steps": 784, "inputs": 1, "outputs": 10}
    assert "error" in glstm("evaluate", run, "--data", real_mnist).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "say which task to train on: adding, smnist, pmnist or scifar"),
        (["train", "mnist"], "there is no task 'mnist'; the tasks are adding, smnist, pmnist, scifar"),
        (["train", "adding", "--mu", "low"], "--mu takes one number or LOW,HIGH, such as 40 or 300,700, not 'low'"),
        (["train", "adding", "--preset", "smnist"], "adding has no preset 'smnist'"),
        (["train", "adding", "--steps", "1"], "needs at least 2 steps, not 1"),
        (["train", "adding", "--units", "-3"], "units must be at least 1, not -3"),
        (["train", "adding", "--device", "cuda", "--devices", "99"], "CUDA device"),
        (["train", "--resume", "nowhere"], "nowhere is not a run folder"),
        (["evaluate", "nowhere"], "nowhere is not a run folder"),
        (["data", "verify", "imagenet"], "there is no data set 'imagenet'; there are mnist, cifar10"),
        (["demo", "--seconds", "0"], "--seconds must be above 0"),
    ],
)
def test_bad_calls_get_one_sentence_and_leave_nothing(arguments, message, tmp_path):
    done = glstm(*arguments, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_never_overwritten_or_changed_by_resuming(tmp_path):
    run = tmp_path / "run"
    glstm("train", "adding", *RUN_SMALL, "--epochs", 1, "--out", run)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    again = glstm("train", "adding", *RUN_SMALL, "--out", run, check=False)
    assert "already holds a run" in again.stderr
    changed = glstm("train", "--resume", run, "--lr", 0.1, check=False)
    assert "a resumed run keeps its recipe: leave out --lr" in changed.stderr
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


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


def test_help_explains_every_option():
    text = glstm("train", "--help", env={**os.environ, "COLUMNS": "160"}).stdout
    for word in ("--cell", "--gate-lr", "--budget", "--curriculum", "--resume", "--devices", "Gaussian-gated, phased"):
        assert word in text
    assert glstm("--help").stdout.count("train") >= 1


def test_demo_in_a_few_seconds(tmp_path):
    began = time.monotonic()
    done = glstm("demo", "--seconds", 4, "--out", tmp_path / "demo", env={**os.environ, "COLUMNS": "120"})
    assert time.monotonic() - began < 90
    for word in ("g-LSTM", "LSTM", "operations", "demo.png"):
        assert word in done.stdout
    assert (tmp_path / "demo" / "demo.png").read_bytes().startswith(b"\x89PNG")
    other = Path(tmp_path / "mine")
    other.mkdir()
    (other / "thesis.txt").write_text("precious")
    refused = glstm("demo", "--out", other, check=False)
    assert "holds something that is not a demo's result" in refused.stderr
    assert (other / "thesis.txt").exists()
