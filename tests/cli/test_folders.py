"""A network trained in a plain loop: its folder is tested, deployed and exported by commands."""

import json
import subprocess

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import glstm
from glstm.cli.folders import parse_times
from glstm.cli.main import app
from glstm.data import SequentialMNIST
from glstm.errors import UserError
from glstm.runtime.check_onnx import session
from glstm.scaling import Rescale, Standardize

STEPS = 20
TIMES = 100 + 0.5 * np.arange(STEPS)


def run(*words) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None:
        raise done.exception
    return done.stdout


def compiled(folder, name: str, text: str = "", *, kind: str) -> str:
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror", f"-D{name.upper()}_{kind}"]
    subprocess.run(["cc", *flags, f"{name}.c", "-o", kind], cwd=folder, check=True)
    return subprocess.run([folder / kind], input=text, capture_output=True, text=True, check=True).stdout


def in_onnx_runtime(path, x: torch.Tensor) -> np.ndarray:
    return np.asarray(session(onnx.load(path)).run(None, {"x": x.numpy()})[0])


def in_numbers(x: torch.Tensor) -> str:
    return " ".join(f"{value:.9g}" for value in x.flatten().tolist())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """x (N, T, 2) in units of its own, and a network of it in a folder; its classes are not in the alphabet's order."""
    folder = tmp_path_factory.mktemp("trained")
    torch.manual_seed(0)
    x = torch.randn(60, STEPS, 2) * torch.tensor([5.0, 0.1]) + torch.tensor([100.0, 3.0])
    y = (x[..., 0].mean(1) > 100).long()
    inputs = Standardize(2, "carry")
    inputs.mean.copy_(x.flatten(0, 1).mean(0))
    inputs.scale.copy_(x.flatten(0, 1).std(0))
    layer = glstm.GLSTM(2, 9, batch_first=True, mu=(1, STEPS), sigma=5.0)
    head = nn.Sequential(nn.LayerNorm(9), nn.Linear(9, 6), nn.GELU(), nn.Linear(6, 2), nn.Softmax(-1))
    model = glstm.SequenceModel(layer, head, inputs=inputs, classes=("low", "high"))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(25):
        loss = nn.functional.nll_loss(model(x).log(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval().save_pretrained(folder / "model")
    np.savez(folder / "words.npz", x=x.numpy(), y=np.array(["low", "high"])[y])
    np.savez(folder / "numbers.npz", x=x.numpy(), y=y.numpy())
    with torch.no_grad():
        return folder, model, x, y


@pytest.mark.parametrize("file", ["words.npz", "numbers.npz"])
def test_evaluate_by_names_or_numbers_of_classes(trained, file):
    folder, model, x, y = trained
    found = json.loads(run("evaluate", folder / "model", "--test", folder / file, "--json"))
    with torch.no_grad():
        wrong = (model(x).argmax(1) != y).float().mean().item()
    assert found["classes"] == ["low", "high"]
    assert found["rows"][0]["error"] == pytest.approx(wrong)
    assert wrong < 0.3
    assert "loss" not in found["rows"][0]  # of probabilities, a cross-entropy would mean nothing


def test_deploy_with_and_without_sequences(trained):
    folder = trained[0]
    shown = run("deploy", folder / "model", "--seconds", 0.01)
    assert "error" not in shown
    assert shown.endswith("--threshold 0.01\n")
    shown = run("deploy", folder / "model", "--test", folder / "words.npz", "--steps", STEPS + 5, "--seconds", 0.01)
    assert "error, 60 test sequences" in shown
    assert f"--test {folder / 'words.npz'} --steps 25 --threshold 0.01" in shown


@pytest.mark.parametrize("int8", [[], ["--int8"]])
def test_c_with_real_and_with_random_inputs(trained, int8, tmp_path):
    folder, model, x, _ = trained
    shown = run("export", "c", folder / "model", "--out", tmp_path, "--name", "bumps", *int8)
    assert "the self-test's inputs are random, of the network's range: --test FILE takes real ones\n" in shown
    assert ("int8 scales are chosen for random inputs" in shown) == bool(int8)
    assert "NAN" in (tmp_path / "bumps.c").read_text()  # missing ones are among them
    assert "largest difference" in compiled(tmp_path, "bumps", kind="TEST")
    shown = run(
        "export", "c", folder / "model", "--test", folder / "words.npz", "--out", tmp_path, "--name", "bumps", *int8
    )
    assert "random" not in shown
    assert "largest difference" in compiled(tmp_path, "bumps", kind="TEST")
    rows = [line.split("\t") for line in compiled(tmp_path, "bumps", in_numbers(x[:9]), kind="MAIN").splitlines()]
    expected = glstm.deploy(model, STEPS, 0.01)(x[:9])
    assert np.allclose([[float(one) for one in row[0].split()] for row in rows], expected, atol=0.05 if int8 else 1e-5)
    assert [row[1] for row in rows] == [("low", "high")[best] for best in expected.argmax(1)] or int8


def test_onnx_of_it(trained, tmp_path):
    folder, model, x, _ = trained
    shown = run("export", "onnx", folder / "model", "--out", tmp_path, "--name", "bumps", "-t", 0)
    assert "20 single steps" in shown
    with torch.no_grad():
        assert np.allclose(in_onnx_runtime(tmp_path / "bumps.onnx", x), model(x), atol=1e-5)


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """A bidirectional network of values at times of its own, 100 to 109.5."""
    folder = tmp_path_factory.mktemp("timed")
    torch.manual_seed(0)
    x = torch.randn(STEPS, 30, 1)
    layer = glstm.GLSTM(1, 6, bidirectional=True)
    outputs = Rescale(1)
    outputs.mean.fill_(50.0)
    model = glstm.SequenceModel(layer, nn.Linear(12, 1), reads="every", outputs=outputs)
    model(x, TIMES)
    model.eval().save_pretrained(str(folder / "model"))
    with torch.no_grad():
        y = model(x, TIMES)
    rows = [
        f"{number},{time},{x[step, number, 0]:.9g},{y[step, number, 0]:.9g}"
        for number in range(30)
        for step, time in enumerate(TIMES)
    ]
    (folder / "log.csv").write_text("\n".join(["run,second,level,flow", *rows]) + "\n")
    np.savetxt(folder / "times.txt", TIMES)
    np.savez(folder / "x.npz", x=x.transpose(0, 1).numpy(), y=y.transpose(0, 1).numpy())
    return folder, model, x, y


def test_times_from_a_file_and_from_a_column(timed, tmp_path):
    folder, _, x, y = timed
    table = ["--test", folder / "log.csv", "--id", "run", "--time", "second", "--target", "flow"]
    with_times = ["--test", folder / "x.npz", "--times", folder / "times.txt"]
    for given in (table, with_times):
        found = json.loads(run("evaluate", folder / "model", *given, "--json"))
        assert found["rows"][0]["mean absolute error"] < 1e-4
    run("deploy", folder / "model", "--times", folder / "times.txt", "--seconds", 0.01)
    run("export", "c", folder / "model", *table, "--out", tmp_path, "--name", "flow", "-t", 0.02)
    assert "largest difference" in compiled(tmp_path, "flow", kind="TEST")
    assert "a sample every 0.5, the first at 100" in (tmp_path / "flow.h").read_text()
    run("export", "onnx", folder / "model", "--times", ",".join(map(str, TIMES)), "--out", tmp_path, "-t", 0)
    assert not (tmp_path / "network-step.onnx").exists()
    assert np.allclose(in_onnx_runtime(tmp_path / "network.onnx", x), y, atol=1e-4)


def test_what_is_missing_is_one_sentence(trained, timed, tmp_path):
    named, _, x, _ = trained
    free = timed[0]
    np.savez(tmp_path / "other.npz", x=np.zeros((4, STEPS, 2)), y=np.array(["low", "high", "odd", "low"]))
    np.savez(tmp_path / "wide.npz", x=np.zeros((4, STEPS, 3)), y=np.array(["low", "high", "low", "low"]))
    np.savez(tmp_path / "steps.npz", x=x.numpy(), y=np.where(x[..., 0] > 0, "high", "low"))
    (tmp_path / "words.txt").write_text("one two")
    model, words = named / "model", named / "words.npz"
    for arguments, says in (
        (["evaluate", model], f"{model} is a model folder without a task: say what to test it on by --test"),
        (["evaluate", model, "--id", "run"], "--id says how the file of --test is read: give --test"),
        (["evaluate", model, "--times", "1,2"], "--times says how the file of --test is read: give --test"),
        (["evaluate", model, "--test", tmp_path / "other.npz"], "has the class 'odd', and the network knows low, high"),
        (["evaluate", model, "--test", tmp_path / "wide.npz"], "wide.npz has 3 inputs, and the network takes 2"),
        (["evaluate", model, "--test", tmp_path / "steps.npz"], "has a target for each step, and the network's head"),
        (["evaluate", model, "--test", "nothing.npz"], "nothing.npz"),
        (["evaluate", model, "--test", "adding"], "asks for 1 output, and the network has 2"),
        (["evaluate", free / "model", "--test", free / "x.npz"], "has no times, and the network was trained at times"),
        (["evaluate", free / "model", "--test", free / "x.npz", "--times", "1,2"], "20 steps, and --times has 2"),
        (["deploy", free / "model"], "does not say how long its sequences are: give --steps N"),
        (["deploy", free / "model", "--steps", STEPS], "20 steps stand for the times 1 to 20, but the network was"),
        (["deploy", free / "model", "--times", tmp_path / "words.txt"], "words.txt holds something else"),
        (["deploy", free / "model", "--times", "3,2"], "--times must increase"),
        (["deploy", model, "--steps", STEPS, "--times", "1,2"], "give one of them"),
        (["deploy", model, "--steps", 5, "--test", words], "words has a sequence of 20 steps, and --steps says 5"),
        (["deploy", model, "--max-error", 1, "--test", words], "chooses on other sequences than those of the test"),
        (["export", "onnx", free / "model"], "was trained at times from 100 to 109.5: give the times"),
        (["export", "c", model, "--name", "while"], "while is a keyword of C or C++: choose another"),
    ):
        with pytest.raises(UserError) as error:
            run(*arguments)
        assert says in str(error.value)


def test_a_run_is_tested_on_other_sequences(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(30, 9, 1))
    for name in ("first", "second"):
        np.savez(f"{name}.npz", x=x, y=np.where(x.mean((1, 2)) > 0, "up", "down"))
        x = x[:12] + 1.0
    run("train", "first.npz", "--units", 4, "--epochs", 1, "--out", "r")
    assert json.loads(run("evaluate", "r", "--json"))["test_size"] == 6
    assert json.loads(run("evaluate", "r", "--test", "second.npz", "--json"))["test_size"] == 12


def test_real_digits_in_c_onnx_and_a_stream(real_mnist, tmp_path):
    """In small; benchmarks/plain_loop.py does it with more of everything."""
    task = SequentialMNIST(folder=real_mnist, train_size=200, test_size=20)
    x, y = task.cut(task.stage(0, 0), slice(0, 100))
    torch.manual_seed(0)
    head = nn.Sequential(nn.Linear(16, 12), nn.SiLU(), nn.Linear(12, 10))
    model = glstm.SequenceModel(glstm.GLSTM(1, 16, mu=(1, 784), sigma=20.0), head)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(3):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval().save_pretrained(tmp_path / "model")
    digits, _ = task.test_samples(slice(0, 20))
    for_all = ["export", "c", tmp_path / "model", "--test", "smnist", "--data", real_mnist]
    run(*for_all, "--out", tmp_path, "--name", "digits")
    run("export", "onnx", tmp_path / "model", "--out", tmp_path, "--name", "digits")
    model.layer.threshold = 0.01
    with torch.no_grad():
        expected = model.double()(digits.double()).numpy()
    said = compiled(tmp_path, "digits", in_numbers(digits.transpose(0, 1)), kind="MAIN")
    stream = glstm.deploy(glstm.SequenceModel.from_pretrained(tmp_path / "model"), 784, 0.01).stream()
    for sample in digits[:, 7].tolist():
        stream.step(sample)
    assert np.allclose([list(map(float, line.split())) for line in said.splitlines()], expected, atol=1e-5)
    assert np.allclose(in_onnx_runtime(tmp_path / "digits.onnx", digits), expected, atol=1e-5)
    assert np.allclose(stream.output(), expected[7], atol=1e-5)


def test_a_file_of_times_that_is_none_is_named(tmp_path):
    """numpy tells of a broken head in five kinds of errors."""
    path = tmp_path / "times.npy"
    for head in (b"{'descr': '<f8'", b"{'descr': '<f8', 'shape': (1,", b"(((", b"'\x00'", b""):
        path.write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
        with pytest.raises(UserError, match=r"--times takes numbers, .* the file .*times\.npy holds something else"):
            parse_times(str(path))
    with pytest.raises(UserError, match=r"--times: there is no file"):
        parse_times(str(tmp_path / "none.npy"))
