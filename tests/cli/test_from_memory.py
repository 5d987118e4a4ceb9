"""A run from arrays in memory is as good as one from a file: every command can use it."""

import csv
import json

import numpy as np
import pytest
from safetensors.torch import load_file
from typer.testing import CliRunner

import glstm
from glstm.cli.main import app
from glstm.data import Adding, ArrayTask, Task
from glstm.errors import UserError
from glstm.training.run import RunFolder
from helpers import glstm_command

DRAWS = np.random.default_rng(0)
X = [DRAWS.normal(5, 2, (int(steps), 2)) for steps in DRAWS.integers(6, 12, 40)]
Y = np.array(["high" if one[3, 0] > 5 else "low" for one in X])
OWN = [np.cumsum(DRAWS.uniform(0.5, 2, len(one))) for one in X]
SHARED = [0.25 * np.arange(len(one)) for one in X]
VALUES = {"units": 6, "batch": 8, "seed": 2}


def command(*arguments, cwd) -> str:
    done = glstm_command(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("times", [OWN, SHARED, None], ids=["own times", "shared times", "steps"])
def test_commands_find_the_data_again(times, tmp_path):
    task = Task.from_arrays(X, Y, times=times, name="mine")
    trained = glstm.train(task, tmp_path / "run", epochs=4, **VALUES)
    (tmp_path / "run").rename(tmp_path / "moved")
    (row,) = json.loads(command("evaluate", "moved", "--device", "cpu", "--json", cwd=tmp_path))["rows"]
    assert row["error"] == pytest.approx(trained.result["test_error"])
    assert row["loss"] == pytest.approx(trained.result["test_loss"])
    assert row["mean_k"] == pytest.approx(trained.result["mean_k"], rel=1e-5)

    test = task.sequences["test"]
    steps = max(len(one) for one in test.x)
    arrays = {"x": np.zeros((len(test), steps, 2)), "times": np.zeros((len(test), steps))}
    for number, one in enumerate(test.x):
        arrays["x"][number, : len(one)] = one
        if test.times is not None:
            arrays["times"][number, : len(one)] = test.times[number]
    used = ("x",) if times is None else ("x", "times")
    lengths = np.array([len(one) for one in test.x])
    np.savez(tmp_path / "new.npz", lengths=lengths, **{name: arrays[name] for name in used})
    command("predict", "moved", "new.npz", "--out", "answers.csv", "--device", "cpu", cwd=tmp_path)
    rows = list(csv.DictReader((tmp_path / "answers.csv").read_text().splitlines()))
    wrong = [row["class"] != label for row, label in zip(rows, test.y, strict=True)]
    assert np.mean(wrong) == pytest.approx(trained.result["test_error"])

    if times is OWN:
        assert "each sequence of mine has its own times" in glstm_command("deploy", "moved", cwd=tmp_path).stderr
        return
    assert "as C, at this threshold" in command("deploy", "moved", "--seconds", 0.02, cwd=tmp_path)
    command("export", "c", "moved", cwd=tmp_path)
    assert (tmp_path / "network.c").exists()


def test_a_run_goes_on_to_the_same_bits(tmp_path):
    for name, epochs in (("whole", 6), ("part", 3)):
        glstm.train(Task.from_arrays(X, Y, times=OWN), tmp_path / name, epochs=epochs, **VALUES)
    words = ["train", "--resume", str(tmp_path / "part"), "--epochs", "6", "--device", "cpu"]
    done = CliRunner().invoke(app, words)  # in this process, which has as many threads
    assert done.exit_code == 0, done.output
    whole, part = (load_file(tmp_path / name / "last.safetensors") for name in ("whole", "part"))
    assert all((part[name] == value).all() for name, value in whole.items())
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("whole", "part")]
    assert results[0] == results[1]


def test_a_class_without_a_name_is_found_again(tmp_path):
    task = Task.from_arrays(X, (Y == "high").astype(int), classes=["", "high"])
    trained = glstm.train(task, tmp_path / "run", epochs=2, **VALUES)
    (row,) = json.loads(command("evaluate", "run", "--device", "cpu", "--json", cwd=tmp_path))["rows"]
    assert row["error"] == pytest.approx(trained.result["test_error"])


def test_another_file_of_that_name_is_not_lost(tmp_path):
    (tmp_path / "data.npz").write_text("mine")
    with pytest.raises(UserError, match=r"data.npz is there, and the run's own data go there: choose another folder"):
        glstm.train(Task.from_arrays(X, Y), tmp_path, epochs=1, **VALUES)
    assert [path.name for path in tmp_path.iterdir()] == ["data.npz"]


def test_large_data_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("glstm.training.run.MOST_KEPT", 1000)
    with pytest.warns(UserWarning, match=r"the data of arrays are .* GiB and are not kept in .*run, so no command"):
        glstm.train(Task.from_arrays(X, Y), tmp_path / "run", epochs=1, **VALUES)
    assert not (tmp_path / "run" / "data.npz").exists()
    with pytest.raises(UserError, match="was begun from Python"):
        RunFolder(tmp_path / "run").recipe()


def test_a_task_of_another_class_is_not_kept_as_arrays(tmp_path):
    class Other(ArrayTask):
        """It may do more than its data say."""

    for name, task in (("own", Other(X, Y)), ("adding", Adding(12, train_size=40, test_size=20))):
        glstm.train(task, tmp_path / name, units=4, epochs=1)
        assert not (tmp_path / name / "data.npz").exists()


def test_a_table_for_a_run_without_names_of_columns(tmp_path):
    glstm.train(Task.from_arrays(X, Y), tmp_path / "run", epochs=1, **VALUES)
    (tmp_path / "new.csv").write_text("id,a,b\np0,1.5,2.5\np0,1.0,2.0\n")
    arguments = ["predict", str(tmp_path / "run"), str(tmp_path / "new.csv"), "--out", str(tmp_path / "answers.csv")]
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, UserError)
    assert "trained without names of columns" in str(done.exception)
    assert str(done.exception).endswith("give the sequences as .npz")
    (tmp_path / "new.csv").write_text("a,b\n1.5,2.5\n1.0,2.0\n")
    assert CliRunner().invoke(app, arguments).exit_code == 0
