"""From a trained run to what goes elsewhere, on the command line."""

import shlex
import shutil
import subprocess
from importlib.util import find_spec

import onnx
import pytest
from test_cli import RUN_SMALL

from commands import glstm_process


def glstm(*arguments, check=True) -> subprocess.CompletedProcess:
    done = glstm_process(*arguments)
    assert not check or done.returncode == 0, done.stderr
    return done


def trained(folder, precision):
    glstm("train", "adding", *RUN_SMALL, "--epochs", 2, "--precision", precision, "--out", folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("deploy"), "32-true")


@pytest.fixture(scope="module")
def wide_run(tmp_path_factory):
    """A network in float64; what is deployed is in float32."""
    return trained(tmp_path_factory.mktemp("wide"), "64-true")


def test_deploy_says_what_it_brings(wide_run):
    shown = glstm("deploy", wide_run, "--threshold", 0.05, "--seconds", 0.02).stdout
    rows = ("units", "open", "operations, exact", "mse", "state, bytes", "Cortex-M4", "server core")
    for word in (*rows, "torch.nn.LSTM", "ONNX Runtime's LSTM"):
        assert word in shown
    assert "deployed at 0.05" in shown


def test_deploy_ends_with_the_command_that_exports_at_its_threshold(run, tmp_path):
    last = glstm("deploy", run, "--max-error", 0, "--seconds", 0.02).stdout.splitlines()[-1]
    name, *arguments = shlex.split(last.removeprefix("as C, at this threshold: "))
    assert name == "glstm"
    assert glstm("deploy", run, "--threshold", 0.05, "--seconds", 0.02).stdout.endswith(" --threshold 0.05\n")
    glstm(*arguments, "--out", tmp_path / "chosen")
    glstm("export", "c", run, "--out", tmp_path / "usual")
    at = float(arguments[-1])
    assert at != 0.01
    glstm("export", "c", run, "--threshold", at, "--out", tmp_path / "given")
    code = {name: (tmp_path / name / "network.c").read_text() for name in ("chosen", "usual", "given")}
    assert code["chosen"] == code["given"] != code["usual"]


def test_deploy_finds_a_threshold(run):
    free = glstm("deploy", run, "--max-error", 1000, "--seconds", 0.02).stdout
    assert "threshold 0.9, chosen on 5,000 fresh sequences; there" in " ".join(free.split())
    careful = glstm("deploy", run, "--max-error", 0, "--seconds", 0.02)
    assert float(careful.stdout.split("threshold ")[1].split(",")[0]) < 0.9
    assert "arning" not in careful.stderr


def test_deploy_chooses_on_images_that_were_held_out(real_mnist, tmp_path):
    options = ["--units", 4, "--train-size", 20, "--test-size", 10, "--batch", 10, "--epochs", 1, "--data", real_mnist]
    glstm("train", "smnist", *options, "--out", tmp_path / "run")
    shown = glstm("deploy", tmp_path / "run", "--max-error", 100, "--seconds", 0.02, "--data", real_mnist).stdout
    assert "threshold 0.9, chosen on 5,000 training sequences that were held out" in " ".join(shown.split())


@pytest.mark.parametrize("int8", [[], ["--int8"], ["--int8-states"]])
@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
def test_export_c_leaves_a_program_that_checks_itself(wide_run, int8, tmp_path):
    shown = glstm("export", "c", wide_run, "--out", tmp_path, "--name", "adder", *int8).stdout
    assert "bytes of constant data" in shown
    assert ("with int8" in shown) == bool(int8)
    build = ["gcc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-DADDER_TEST", "adder.c", "-o", "adder"]
    subprocess.run(build, cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "adder"]).returncode == 0


@pytest.mark.skipif(find_spec("ziglang") is None, reason="no ziglang")
def test_export_wasm_leaves_a_module_and_its_loader(run, tmp_path):
    shown = glstm("export", "wasm", run, "--out", tmp_path, "--name", "adder").stdout
    assert shown.split() == [str(tmp_path / "adder.wasm"), str(tmp_path / "adder.js")]
    assert (tmp_path / "adder.wasm").read_bytes().startswith(b"\0asm")


def test_export_onnx_is_checked_and_written(wide_run, tmp_path):
    shown = glstm("export", "onnx", wide_run, "--out", tmp_path, "--name", "adder").stdout
    assert "2000 steps" in shown
    assert "20 single steps" in shown
    for name in ("adder.onnx", "adder-step.onnx"):
        onnx.checker.check_model(onnx.load(tmp_path / name))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["deploy", "RUN", "--threshold", 1.5], "threshold must be a number, at least 0 and below 1, not 1.5"),
        (["deploy", "RUN", "--threshold", 0.1, "--max-error", 1], "give one of them"),
        (["deploy", "RUN", "--max-error", -1], "--max-error is how much more error may be"),
        (["deploy", "nowhere"], "nowhere is not there; a run is a folder that glstm train made"),
        (["export", "onnx", "RUN", "--name", "a/b"], "a file's name is made of letters"),
        (["export", "c", "RUN", "--name", "No-Name"], "a name for C is made of lower-case letters"),
        (["export", "c", "RUN", "--layout", "mbed"], "a layout is one of plain, arduino, zephyr, not 'mbed'"),
        (["export", "onnx", "RUN", "--threshold", 1], "threshold must be a number, at least 0 and below 1, not 1.0"),
    ],
)
def test_what_is_wrong_is_one_sentence(run, arguments, says, tmp_path):
    done = glstm(*(run if one == "RUN" else one for one in arguments), check=False)
    assert done.returncode == 2
    assert says in " ".join(done.stderr.split())
    assert done.stderr.count("\n") == 1
