"""Streams by commands: C of a model folder that counts samples, takes times or has windows; ONNX that takes times."""

import shutil
import subprocess
from importlib.util import find_spec

import numpy as np
import onnx
import pytest
import torch
from test_folders import run
from torch import nn

import glstm
from glstm.errors import UserError
from glstm.runtime.check_onnx import session
from glstm.scaling import Standardize

V_T, TICK, START = 0.01, 0.01, 90.0
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-O1"]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
COMPILERS = [command for command in ("gcc", "clang") if shutil.which(command)]
needs_compiler = pytest.mark.skipif(not COMPILERS, reason="no C compiler")


def saved(folder, layer, reads="last", **options) -> glstm.SequenceModel:
    for parameter in layer.parameters():
        if parameter.dim() == 2:
            nn.init.uniform_(parameter, -0.9, 0.9)  # large enough for every path to matter
    head = nn.Sequential(nn.Linear(layer.hidden_size * layer.num_directions, 5), nn.GELU(), nn.Linear(5, 2))
    model = glstm.SequenceModel(layer, head, reads=reads, **options)
    model.eval().save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """`again`: gates that come back; `once`: gates that open once; `timed`: a network that has seen times from 100 on,
    and takes raw numbers of which some are missing."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    inputs = Standardize(2, "carry")
    inputs.mean.copy_(torch.tensor([1000.0, -3.0]))
    layer = glstm.GLSTM(2, 7)
    layer.fit_times(100 + 0.5 * torch.arange(60, dtype=torch.float64))
    models = {
        "again": saved(folder / "again", glstm.GatedLSTM(2, 9, gate=glstm.Periodic((0.0, 30.0), 2.0, (20.0, 40.0)))),
        "once": saved(folder / "once", glstm.GLSTM(2, 8, mu=(1, 40), sigma=4.0)),
        "timed": saved(folder / "timed", layer, "every", inputs=inputs, classes=("low", "high")),
    }
    return folder, models


def built(folder, name: str, *more: str, sources=(), compilers=COMPILERS) -> list:
    """The program of each compiler, with its sanitizers."""
    programs = []
    for compiler in compilers:
        command = [compiler, *STRICT, *SANITIZED, *more, *sources, f"{name}.c", "-o", f"{name}-{compiler}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        programs.append(folder / f"{name}-{compiler}")
    return programs


def says(program, text="") -> str:
    done = subprocess.run([program], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows(x: np.ndarray) -> list[str]:
    return [" ".join(f"{value:.9g}" for value in row) for row in x.tolist()]


def numbers(text: str) -> np.ndarray:
    return np.array([line.split("\t")[0].split() for line in text.splitlines()], np.float64)


def gaps(steps: int) -> np.ndarray:
    """Whole ticks after START that nobody knew before."""
    between = np.random.default_rng(0).exponential(0.6, steps)
    return 1000 + np.cumsum(np.maximum(1, np.rint(between / TICK))).astype(np.int64)


@needs_compiler
def test_a_stream_without_an_end(folders, tmp_path):
    folder, models = folders
    shown = run("export", "c", folder / "again", "--stream", "--int8", "--name", "gauge", "--out", tmp_path)
    assert "the self-test's inputs are random" in shown
    assert "int8 scales are chosen for random inputs" in shown
    for program in built(tmp_path, "gauge", "-DGAUGE_TEST"):
        assert "largest difference from PyTorch with the same int8 weights" in says(program)
    run("export", "c", folder / "again", "--stream", "--name", "gauge", "--out", tmp_path)
    assert "for streams without an end" in (tmp_path / "gauge.h").read_text()
    x = np.random.default_rng(1).normal(size=(700, 2)).astype(np.float32)  # many periods
    (program,) = built(tmp_path, "gauge", "-DGAUGE_MAIN", compilers=COMPILERS[:1])
    said = numbers(says(program, "\n".join(rows(x)) + "\n"))
    models["again"].layer.threshold = V_T
    with torch.no_grad():
        expected = models["again"](torch.from_numpy(x)[:, None])
    assert np.abs(said - expected.numpy()).max() < 1e-5


@needs_compiler
def test_a_stream_with_times_in_c_and_onnx(folders, tmp_path):
    """Gaps that nobody knew: C, ONNX, whole and step by step, and Python are the layer to 1e-5."""
    folder, models = folders
    at = ["--tick", TICK, "--start", START]
    run("export", "c", folder / "timed", *at, "--int8", "--name", "meter", "--out", tmp_path)
    for program in built(tmp_path, "meter", "-DMETER_TEST"):
        assert "largest difference" in says(program)
    run("export", "c", folder / "timed", *at, "--name", "meter", "--out", tmp_path)
    header = " ".join((tmp_path / "meter.h").read_text().split())
    assert "a whole number of 0.01, in the unit of the times of training, from 90 on" in header
    model, ticks = models["timed"], gaps(50)
    times = START + TICK * ticks
    x = (np.random.default_rng(2).normal(size=(50, 2)) + np.array([1000, -3])).astype(np.float32)
    x[::7, 1] = np.nan
    model.layer.threshold = V_T
    with torch.no_grad():
        expected = model(torch.from_numpy(x)[:, None], times)[:, 0].numpy()
    (program,) = built(tmp_path, "meter", "-DMETER_MAIN", compilers=COMPILERS[:1])
    lines = [f"{tick} {row}" for tick, row in zip(ticks, rows(x), strict=True)]
    assert np.abs(numbers(says(program, "\n".join(lines) + "\n")) - expected).max() < 1e-5
    stream = glstm.deploy(model, threshold=V_T).stream()
    assert np.abs([stream.step(*sample) for sample in zip(x, times, strict=True)] - expected).max() < 1e-5

    shown = run("export", "onnx", folder / "timed", "--times-as-input", "-t", V_T, "--name", "meter", "--out", tmp_path)
    assert "50 single steps, batches of 1 and 7: within" in shown
    whole, step = (session(onnx.load(tmp_path / name)) for name in ("meter.onnx", "meter-step.onnx"))
    assert {one.name: one.shape for one in whole.get_inputs()}["times"] == ["steps", "one_or_batch"]
    for given in (times[:, None], np.stack([times, times + 3], 1)):
        (y,) = whole.run(None, {"x": np.stack([x, x], 1), "times": given})
        assert np.abs(np.asarray(y)[:, 0] - expected).max() < 1e-5
    assert np.abs(np.asarray(y)[:, 1] - expected).max() > 1e-3  # the second has other times
    state = {one.name: np.zeros([n if isinstance(n, int) else 1 for n in one.shape], np.float32)
             for one in step.get_inputs() if one.name not in ("x", "t")}  # fmt: skip
    for sample, time, answer in zip(x, times, expected, strict=True):
        y, *after = step.run(None, {"x": sample[None], "t": np.array([time]), **state})
        state = dict(zip(state, after, strict=True))
        assert np.abs(y - answer).max() < 1e-5


@pytest.mark.skipif(find_spec("ziglang") is None, reason="no ziglang")
def test_a_stream_with_times_in_a_browser(folders, tmp_path):
    run("export", "wasm", folders[0] / "timed", "--tick", TICK, "--start", START, "--name", "meter", "--out", tmp_path)
    assert (tmp_path / "meter.wasm").read_bytes().startswith(b"\0asm")
    assert "step: (sample, t) =>" in (tmp_path / "meter.js").read_text()


WINDOWS = """#include <stdio.h>
#include "NAME.h"
int main(void) {
  static NAME_windows windows;
  float x[2], y[2];
  NAME_windows_reset(&windows);
  while (scanf("%f %f", x, x + 1) == 2)
    if (NAME_windows_step(&windows, x, y)) printf("%d %.9g %.9g\\n", (int)windows.start, (double)y[0], (double)y[1]);
  return 0;
}
"""


@needs_compiler
def test_windows_on_a_stream(folders, tmp_path):
    """Also with states in 8 bits, which have 7 bits of h: near, not equal."""
    folder, models = folders
    x = np.random.default_rng(3).normal(size=(150, 2)).astype(np.float32)
    windows = glstm.deploy(models["once"], 40, V_T).windows(40, 15)
    expected = np.array([[window.start, *window.output] for window in windows.feed(x)])
    for options, near in ([], 1e-5), (["--int8-states"], 0.05), (["--stream"], 1e-5):
        name = "eight" if near > 0.01 else "wide"
        steps = [] if "--stream" in options else ["--steps", 40]
        given = ["export", "c", folder / "once", *steps, *options, "--windows", "40,15", "--name", name]
        shown = run(*given, "--out", tmp_path)
        assert "windows: 3 at once," in shown
        (tmp_path / "use.c").write_text(WINDOWS.replace("NAME", name))
        for program in built(tmp_path, name, sources=["use.c"]):
            said = numbers(says(program, "\n".join(rows(x))))
            assert np.array_equal(said[:, 0], expected[:, 0])
            assert np.abs(said - expected).max() < near


@needs_compiler
def test_sequences_with_their_own_times(tmp_path, monkeypatch):
    """A run whose sequences share no times: it cannot be a schedule, but a stream it is."""
    monkeypatch.chdir(tmp_path)
    draws = np.random.default_rng(0)
    steps = [f"{one},{time:.2f},{draws.normal():.4f},{'ab'[one % 2]}"
             for one in range(24) for time in np.cumsum(draws.exponential(1, 12) + 0.02)]  # fmt: skip
    (tmp_path / "log.csv").write_text("\n".join(["who,hour,level,kind", *steps]) + "\n")
    run(
        "train",
        "log.csv",
        "--id",
        "who",
        "--time",
        "hour",
        "--target",
        "kind",
        "--units",
        5,
        "--epochs",
        1,
        "--out",
        "r",
    )
    shown = run("export", "c", "r", "--tick", TICK, "--int8", "--name", "log")
    assert "error on the test set:" in shown
    for program in built(tmp_path, "log", "-DLOG_TEST", compilers=COMPILERS[:1]):
        assert "largest difference" in says(program)
    run("export", "onnx", "r", "--times-as-input", "--name", "log")
    for words, expected in (
        (["export", "c", "r"], "each sequence of log has its own times"),
        (["export", "onnx", "r"], "export c takes --tick instead, and export onnx --times-as-input"),
        (["predict", "r", "log.csv", "--id", "who"], "r is a run and knows how its files are read: leave out --id"),
    ):
        with pytest.raises(UserError, match=expected):
            run(*words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["c", "again", "--start", 3], "--start says from when on ticks count: give --tick, too"),
        (["c", "again", "--stream", "--steps", 9], "and --stream and --tick that nobody knows: give one"),
        (["c", "again", "--stream", "--times", "1,2"], "--stream that they are counted: give --tick instead"),
        (["c", "again", "--tick", 0], "the tick of times is a duration above 0, such as 0.001, not 0.0"),
        (["c", "timed", "--stream"], "was trained at times from 100 to 129.5, so its samples are not counted"),
        (["c", "timed", "--tick", 0.01, "--start", 1e6], "--start 1e+06 is after the last time at which the export"),
        (["c", "timed", "--tick", 0.01, "--start", -1e15], "choose a start near the first sample, or a longer tick"),
        (["c", "both", "--stream"], "a bidirectional layer reads a sequence from both ends"),
        (["c", "both", "--steps", 9, "--windows", "9,3"], "a bidirectional layer reads a window from both ends"),
        (["c", "once", "--steps", 9, "--windows", "12,3"], "deployed for 9 steps, so a window cannot have 12"),
        (["c", "once", "--steps", 9, "--windows", "12"], "--windows takes LENGTH,HOP in samples, such as 200,50"),
        (["c", "once", "--steps", 9, "--windows", "3,0"], "each at least 1 sample, not (3, 0)"),
        (["c", "once", "--tick", 0.5, "--windows", "3,1"], "windows are counted in samples"),
        (["c", "once", "--stream", "--int8-states"], "--int8-states is for sequences with known steps"),
        (["c", "once", "--tick", 1, "--int8-states"], "--int8-states is for sequences with known steps"),
        (["c", "both", "--steps", 9, "--int8-states"], "int8 states are for networks of one direction"),
        (["c", "mean", "--steps", 9, "--int8-states"], "int8 states are for heads that read h"),
        (["onnx", "once", "--times-as-input", "--times", "1,2"], "given when the graph runs: leave out --times"),
        (["onnx", "once", "--times-as-input", "--steps", 9], "given when the graph runs: leave out --steps"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(folders, words, expected, tmp_path):
    folder = folders[0]
    if not (folder / "both").exists():
        saved(folder / "both", glstm.GLSTM(2, 4, bidirectional=True, mu=(1, 9), sigma=3.0))
        saved(folder / "mean", glstm.GLSTM(2, 4, mu=(1, 9), sigma=3.0), "mean")
    kind, name, *options = words
    with pytest.raises(UserError) as error:
        run("export", kind, folder / name, *options, "--out", tmp_path)
    assert expected in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_predict_takes_a_model_folder(folders, tmp_path):
    folder = folders[0]
    x = (np.random.default_rng(4).normal(size=(5, 20, 2)) + np.array([1000, -3])).astype(np.float32)
    times = 100 + 0.5 * np.arange(20)
    np.savez(tmp_path / "x.npz", x=x)
    lines = [
        f"{one},{times[step]},{x[one, step, 1]:.9g},{x[one, step, 0]:.9g}" for one in range(5) for step in range(20)
    ]
    (tmp_path / "x.csv").write_text("\n".join(["who,second,b,a", *lines]) + "\n")
    model = glstm.SequenceModel.from_pretrained(folder / "timed")
    with torch.no_grad():
        expected = model(torch.from_numpy(x).transpose(0, 1), times).softmax(-1).transpose(0, 1).numpy()
    columns = ["--id", "who", "--time", "second", "--input", "a", "--input", "b"]
    listed = ["--times", ",".join(map(str, times))]
    for file, options in (("x.csv", columns), ("x.npz", listed)):
        run("predict", folder / "timed", tmp_path / file, *options, "--out", tmp_path / "p.npz", "--device", "cpu")
        assert np.allclose(np.load(tmp_path / "p.npz")["outputs"], expected, atol=1e-5)
    for options, says_what in (
        ([], "has no times, and the network was trained at times"),
        (["--id", "a"], "id does not"),
    ):
        with pytest.raises(UserError, match=says_what):
            run("predict", folder / "timed", tmp_path / "x.npz", *options, "--device", "cpu")
