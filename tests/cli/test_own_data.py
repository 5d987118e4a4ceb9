"""From a file to a trained, tested and deployed network, by commands alone."""

import csv
import json
import subprocess
from typing import Any

import numpy as np
import pytest
import torch

from glstm.errors import UserError
from glstm.recipes import Recipe, make_task
from helpers import glstm_command

SHORT = ["--units", 6, "--epochs", 3, "--batch", 8]


def write_ts(path, count, seed, unequal=True):
    draws = np.random.default_rng(seed)
    lines = [
        "@problemName bumps",
        "@univariate false",
        "@dimensions 2",
        "@equalLength false",
        "@classLabel true up down",
    ]
    lines += ["@data"]
    for number in range(count):
        steps = int(draws.integers(6, 12)) if unequal else 10
        sign = 1 if number % 2 else -1
        channels = [sign * np.sin(np.arange(steps)) * 100 + 1000 + draws.normal(size=steps) for _ in range(2)]
        label = "up" if sign > 0 else "down"
        lines.append(":".join([",".join(f"{value:.4f}" for value in one) for one in channels] + [label]))
    path.write_text("\n".join(lines) + "\n")


def write_table(path, irregular=True):
    draws = np.random.default_rng(0)
    with path.open("w") as file:
        print("patient,hour,heart,oxygen,outcome", file=file)
        for patient in range(24):
            time = 0.0
            for step in range(int(draws.integers(5, 9))):
                time += draws.uniform(0.5, 2) if irregular else 1.0
                oxygen = "" if step % 3 == 1 else f"{90 + patient % 2 * 5:.1f}"
                print(
                    f"p{patient},{time:.3f},{60 + 30 * (patient % 2)},{oxygen},{('well', 'ill')[patient % 2]}",
                    file=file,
                )


def run(*arguments, cwd):
    done = glstm_command(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ts_files_to_a_deployed_network(tmp_path):
    write_ts(tmp_path / "bumps_TRAIN.ts", 30, 0)
    write_ts(tmp_path / "bumps_TEST.ts", 10, 1)
    train = ["train", "bumps_TRAIN.ts", "--test", "bumps_TEST.ts", *SHORT]
    out = run(*train, "--seeds", 2, "--patience", 2, "--budget", 0.1, "--threshold", 0.05, "--out", "r", cwd=tmp_path)
    assert "bumps: 24 training, 6 validation and 10 test sequences of 6 to 11 steps, 2 inputs, 2 classes" in out
    assert "validation error" in out
    assert "test error" in out
    out = run("evaluate", "r/seed0", "--picture", "c.png", "--json", cwd=tmp_path)
    found = json.loads(out)
    assert found["classes"] == ["up", "down"]
    assert sum(map(sum, found["confusion"])) == 10
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert "answer" in run("evaluate", "r/seed1", "--last", cwd=tmp_path)
    run("predict", "r/seed0", "bumps_TEST.ts", "--out", "answers.csv", cwd=tmp_path)
    rows = list(csv.DictReader((tmp_path / "answers.csv").read_text().splitlines()))
    assert len(rows) == 10
    assert {row["class"] for row in rows} <= {"up", "down"}
    assert all(float(row["p(up)"]) + float(row["p(down)"]) == pytest.approx(1, abs=1e-5) for row in rows)
    run("train", "--resume", "r", "--epochs", 4, cwd=tmp_path)
    assert "test sequences" in run("deploy", "r/seed0", "--max-error", 50, "--seconds", 0.02, cwd=tmp_path)
    run("export", "c", "r/seed0", "--name", "bumps", "--int8", cwd=tmp_path)
    run("export", "onnx", "r/seed0", cwd=tmp_path)
    options = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-DBUMPS_TEST"]
    subprocess.run(["cc", *options, "bumps.c", "-o", "test"], cwd=tmp_path, check=True)
    assert "largest difference" in subprocess.run(["./test"], cwd=tmp_path, capture_output=True, text=True).stdout


def test_changed_data_is_refused_on_resume(tmp_path):
    write_ts(tmp_path / "b.ts", 30, 0)
    run("train", "b.ts", *SHORT, "--out", "r", cwd=tmp_path)
    write_ts(tmp_path / "b.ts", 30, 5)
    done = glstm_command("evaluate", "r", cwd=tmp_path)
    assert done.returncode == 2
    assert "data.json differs" in done.stderr


def test_a_table_with_times_and_missing_values(tmp_path):
    write_table(tmp_path / "log.csv")
    table = ["log.csv", "--id", "patient", "--time", "hour", "--target", "outcome"]
    done = glstm_command("train", *table, *SHORT, cwd=tmp_path)
    assert done.returncode == 2
    assert 'a missing value, at step 2, channel 2: choose missing="carry"' in done.stderr
    out = run("train", *table, "--missing", "mask", *SHORT, "--out", "r", cwd=tmp_path)
    assert "2 inputs (heart, oxygen), 2 classes (ill, well) for each" in out
    run("predict", "r", "log.csv", "--out", "p.npz", cwd=tmp_path)
    assert np.load(tmp_path / "p.npz")["outputs"].shape == (24, 2)
    done = glstm_command("deploy", "r", cwd=tmp_path)
    assert "has its own times" in done.stderr


def test_targets_of_steps_and_windows(tmp_path):
    steps = np.arange(400)
    rows = "\n".join(f"{2 * step},{np.sin(step / 9):.5f},{np.cos(step / 9):.5f}" for step in steps)
    (tmp_path / "wave.csv").write_text(f"t,sine,cosine\n{rows}\n")
    train = ["train", "wave.csv", "--time", "t", "--target", "cosine", "--window", 40, *SHORT, "--out", "r"]
    out = run(*train, cwd=tmp_path)
    assert (
        "6 training, 2 validation and 2 test sequences of 40 steps, 1 input (sine), 1 value (cosine) at each step"
        in out
    )
    assert "mean absolute error" in json.loads(run("evaluate", "r", "--json", cwd=tmp_path))["rows"][0]
    run("predict", "r", "wave.csv", "--out", "p.csv", cwd=tmp_path)
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert len(rows) == 400
    run("deploy", "r", "--threshold", 0.01, "--seconds", 0.02, cwd=tmp_path)


def test_evaluate_says_how_steps_count(tmp_path):
    x = np.random.default_rng(0).normal(size=(30, 9, 1))
    np.savez(tmp_path / "steps.npz", x=x, y=np.where(x[..., 0] > 0, "up", "down"))
    run("train", "steps.npz", *SHORT, "--out", "r", cwd=tmp_path)
    line = "The error is a mean over sequences of each one's mean over its steps; the confusion matrix counts steps."
    assert line in run("evaluate", "r", cwd=tmp_path).splitlines()
    np.savez(tmp_path / "one.npz", x=x, y=np.where(x[:, 3, 0] > 0, "up", "down"))
    run("train", "one.npz", *SHORT, "--out", "one", cwd=tmp_path)
    assert "mean over sequences" not in run("evaluate", "one", cwd=tmp_path)


def test_npz_with_parts(tmp_path):
    draws = np.random.default_rng(0)
    parts = {f"x_{part}": draws.normal(size=(n, 9, 2)) for part, n in (("train", 20), ("validation", 6), ("test", 8))}
    parts |= {name.replace("x", "y"): x.mean((1, 2)) for name, x in parts.items()}
    np.savez(tmp_path / "means.npz", **parts)
    out = run("train", "means.npz", *SHORT, "--reads", "mean", "--out", "r", cwd=tmp_path)
    assert "20 training, 6 validation and 8 test sequences of 9 steps, 2 inputs, 1 value for each" in out


def test_whole_numbers_as_values(tmp_path):
    """Each verb reads the targets of such a run as values again."""
    draws = np.random.default_rng(0)
    x = draws.normal(size=(40, 9, 2))
    np.savez(tmp_path / "counts.npz", x=x, y=np.stack([np.round(100 * x.mean((1, 2))), np.arange(40)], 1).astype(int))
    out = run("train", "counts.npz", "--values", *SHORT, "--seeds", 2, "--out", "r", cwd=tmp_path)
    assert "2 inputs, 2 values for each" in out
    assert "mean absolute error" in out
    assert "mean absolute error" in json.loads(run("evaluate", "r/seed0", "--json", cwd=tmp_path))["rows"][0]
    run("predict", "r/seed0", "counts.npz", "--out", "p.npz", cwd=tmp_path)
    assert np.load(tmp_path / "p.npz")["outputs"].shape == (40, 2)
    run("train", "--resume", "r/seed0", "--epochs", 4, cwd=tmp_path)
    run("deploy", "r/seed0", "--max-error", 1, "--seconds", 0.02, cwd=tmp_path)
    run("export", "onnx", "r/seed0", cwd=tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("a.csv", "i,a,y\n" + "".join(f"{n // 2},{n},{n // 2}\n" for n in range(80)), ["--id", "i", "--target", "y"]),
        ("b.ts", "@classLabel true " + " ".join(map(str, range(40))) + "\n@data\n"
         + "".join(f"{n},{n + 1}:{n}\n" for n in range(40)), []),
    ],
)  # fmt: skip
def test_whole_numbers_of_tables_and_ts_files_as_values(tmp_path, name, text, options):
    (tmp_path / name).write_text(text)
    out = run("train", name, *options, "--values", *SHORT, "--out", "r", cwd=tmp_path)
    shown = out.replace("input (a)", "input").replace("value (y)", "value")  # a table has names for them
    assert "24 training, 8 validation and 8 test sequences of 2 steps, 1 input, 1 value for each" in shown
    assert json.loads((tmp_path / "r" / "config.json").read_text())["recipe"]["data"]["values"] is True


def test_values_of_a_ts_file_to_a_deployed_network(tmp_path):
    lines = [f"{n},{n + 1},{n + 2}:{n / 2}" for n in range(30)]
    (tmp_path / "a.ts").write_text("@targetLabel true\n@data\n" + "\n".join(lines) + "\n")
    assert "1 value for each" in run("train", "a.ts", *SHORT, "--out", "r", cwd=tmp_path)
    run("deploy", "r", "--threshold", 0.01, "--seconds", 0.02, cwd=tmp_path)


def test_a_function_that_returns_arrays(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\ndef noise(count=30):\n    draws = np.random.default_rng(0)\n"
        "    return draws.normal(size=(count, 7, 1)), draws.integers(0, 2, count)\n"
    )
    out = run("train", "mine:noise", "--task-option", "count=40", *SHORT, "--out", "r", cwd=tmp_path)
    assert "noise: 24 training" in out


@pytest.mark.parametrize("key", ["device", "name", "tset"])
def test_a_dictionary_with_an_unknown_key_is_refused_in_a_sentence(tmp_path, monkeypatch, key):
    (tmp_path / f"my_{key}.py").write_text(
        f"def data():\n    return {{'x': [[1], [2]], 'y': [0, 1], '{key}': 'cpu'}}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        UserError, match=f"made a dictionary with the key '{key}', which is not known; known are x, y, "
    ):
        make_task(Recipe(f"my_{key}:data"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["gone.csv"], "gone.csv"),
        (["b.ts", "--id", "x"], "id does not apply to a .ts file"),
        (["b.ts", "--preset", "smnist"], "presets are for the paper's tasks"),
        (["adding", "--test", "b.ts"], "--test is for files of your own"),
        (["rec.cvs", "--id", "i"], "rec.cvs is not one: known endings are .ts, .npz, .csv"),
        (
            ["a.ts", "--test", "20"],
            "--test is a share of the sequences from 0 to 1, such as 0.2, or another file, not 20",
        ),
        (["b.ts", "--test", "1.5"], "--test is a share of the sequences"),
        (["b.ts", "--reads", "every"], "has a target for each sequence"),
        (["b.xyz"], "there is no task 'b.xyz'"),
        (["b.ts", "--validation", "0", "--patience", "50"], "patience waits for a better validation error, and b has"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(tmp_path, arguments, sentence):
    write_ts(tmp_path / "b.ts", 12, 0)
    done = glstm_command("train", *arguments, *SHORT, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_onnx_has_the_times_of_the_task_inside(tmp_path):
    """Days of 86,400 seconds since 1970, the same for all sequences."""
    import onnxruntime

    from glstm.training.run import RunFolder

    draws = np.random.default_rng(0)
    x, times = draws.normal(size=(30, 12, 2)), 1.7e9 + 86400.0 * np.cumsum(draws.integers(1, 4, 12))
    np.savez(tmp_path / "days.npz", x=x, y=np.arange(30) % 2, times=times)
    run("train", "days.npz", *SHORT, "--as-they-are", "--out", "r", cwd=tmp_path)
    run("export", "onnx", "r", "--threshold", 0.05, cwd=tmp_path)
    model: Any = RunFolder(tmp_path / "r").load_model()
    model.layer.threshold = 0.05
    session = onnxruntime.InferenceSession(str(tmp_path / "network.onnx"), providers=["CPUExecutionProvider"])
    for steps in (12, 5):
        given = torch.tensor(x[:3, :steps], dtype=torch.float32).transpose(0, 1)
        expected = model(given, times=torch.tensor(times[:steps])).detach().numpy()
        (found,) = session.run(None, {"x": given.numpy()})
        assert np.abs(found - expected).max() < 1e-5
    run("deploy", "r", "--seconds", 0.02, cwd=tmp_path)


def test_a_doubt_about_the_data_is_said_in_training_only(tmp_path):
    x = np.random.default_rng(0).normal(size=(20, 6, 1))
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(120).reshape(20, 6) % 3 - 1)
    for words, doubted in ((["train", "a.npz", *SHORT, "--out", "r"], True), (["evaluate", "r"], False)):
        done = glstm_command(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("-1 at a step was taken as a missing target") == doubted
