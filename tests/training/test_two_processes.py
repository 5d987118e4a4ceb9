"""Several processes that share every batch: the gradients are those of one, and nothing is lost with one of them."""

import os
import signal
import socket
import subprocess
import sys

import pytest
from safetensors.torch import load_file

from glstm.training.run import RunFolder
from small_runs import results

SMALL = ["train", "adding", "--steps", "30", "--units", "8", "--test-size", "20", "--device", "cpu"]
ALONE = {**os.environ, "OMP_NUM_THREADS": "1"}


def glstm(*words):
    return subprocess.run(command(*words), capture_output=True, text=True, check=False, env=ALONE, timeout=300)


def command(*words):
    return [sys.executable, "-m", "glstm", *map(str, words)]


@pytest.mark.parametrize("drop", [0, 0.5])
def test_the_gradient_of_a_batch_is_that_of_one_process(tmp_path, drop):
    """One step of plain descent with rate 1: the values change by the gradient. 21 samples are shared as 11 and 10; all
    processes leave out the same weights."""
    one_step = ["--train-size", 21, "--batch", 22, "--optimizer", "sgd", "--lr", 1, "--gate-lr", 1, "--clip", 1e9]
    one_step += ["--weight-drop", drop]
    trained = {}
    for name, more in {"before": ("--epochs", 1, "--lr", 1e-30, "--gate-lr", 1e-30), "one": (), "two": ()}.items():
        devices = 2 if name == "two" else 1
        done = glstm(*SMALL, *one_step, "--epochs", 1, *more, "--devices", devices, "--out", tmp_path / name)
        assert done.returncode == 0, done.stderr
        trained[name] = load_file(tmp_path / name / "model.safetensors")
    largest = 0.0
    for name, before in trained["before"].items():
        one, two = (before - trained[many][name] for many in ("one", "two"))
        assert (one - two).abs().max() <= 1e-6, name
        largest = max(largest, float(one.abs().max()))
    assert largest > 0.01  # else the limit would say little


LONGER = [*SMALL, "--train-size", 200, "--batch", 20, "--epochs", 30, "--devices", 2]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    done = glstm(*LONGER, "--out", out)
    assert done.returncode == 0, done.stderr
    return results(out)


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_all_and_the_run_goes_on(tmp_path, killed, undisturbed):
    out = tmp_path / "cut"
    process = subprocess.Popen(
        command(*LONGER, "--out", out), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ALONE
    )
    assert process.stdout is not None
    while "epoch 2/" not in (line := process.stdout.readline()):
        assert line
    os.kill(process.pid if killed == 0 else child_of(process.pid), signal.SIGKILL)
    said = process.communicate(timeout=60)[0]  # until both are gone: both write to it
    assert process.returncode != 0
    assert "error: another process of this run has ended" in said
    assert f"what was saved is intact, and --resume {out} goes on from there" in " ".join(said.split())
    assert RunFolder(out).epochs_done() < 30
    done = glstm("train", "--resume", out)
    assert done.returncode == 0, done.stderr
    assert results(out) == undisturbed


def by_hand(rank: int) -> dict[str, str]:
    return {"NODE_RANK": str(rank)}


def by_slurm(rank: int) -> dict[str, str]:
    """What srun sets for a task on each of two machines."""
    return {
        "SLURM_JOB_ID": "1", "SLURM_JOB_NAME": "glstm", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_NNODES": "2", "SLURM_NODELIST": "localhost", "SLURM_JOB_NODELIST": "localhost",
        "SLURM_PROCID": str(rank), "SLURM_NODEID": str(rank), "SLURM_LOCALID": "0",
    }  # fmt: skip


@pytest.mark.parametrize("started", [by_hand, by_slurm])
def test_two_machines_train_as_two_processes_of_one_do(tmp_path, started, undisturbed):
    """Both are this machine, and each is told that it is one of two."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.getsockname()[1])}
    call = command(*LONGER[:-2], "--nodes", 2, "--out", tmp_path / "run")
    both = [
        subprocess.Popen(
            call, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ALONE | meet | started(n)
        )
        for n in (0, 1)
    ]
    said = [one.communicate(timeout=300)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert results(tmp_path / "run") == undisturbed


CLOCKS = """
import os
import glstm.training.loop as loop

# It is always time to save for one process, and never for the other.
loop.SAVE_GAP = loop.SAVE_EVERY = 0.0 if os.environ.get("LOCAL_RANK") == "{eager}" else 1e9
loop.SAVE_SHARE = 0
from glstm.cli.main import main
main()
"""


@pytest.mark.parametrize("eager", ["None", "1"])
def test_processes_save_together_though_their_clocks_differ(tmp_path, eager):
    script = tmp_path / "clocks.py"
    script.write_text(CLOCKS.format(eager=eager).replace('== "None"', "is None"))
    options = [*SMALL, "--train-size", 40, "--batch", 10, "--epochs", 4, "--devices", 2, "--out", tmp_path / "run"]
    call = [sys.executable, script, *map(str, options)]
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=ALONE, timeout=300)
    assert done.returncode == 0, done.stderr
    assert RunFolder(tmp_path / "run").epochs_done() == 4


def child_of(process: int) -> int:
    found = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True, check=True).stdout.split()
    return int(found[-1])
