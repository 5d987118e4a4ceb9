"""Training, sweeps and reproductions on a real Ray cluster of two nodes, of which one is killed; and Ctrl-C.

`make fleet` installs Ray.
"""

import json
import os
import subprocess
import sys

import pytest
import torch

from glstm.fleet import Fleet
from glstm.stopping import INTERRUPTED
from glstm.training.run import RunFolder
from small_runs import results

pytest.importorskip("ray", reason="ray is not installed: make fleet installs it, and runs these tests")

PLAN = """
task = "adding"
[recipe]
epochs = 300
units = 4
data = { steps = 12, train_size = 40, test_size = 10, validation = 30 }
batch = 20
[grid]
lr = [1e-3, 1e-2]
"gate.sigma" = [2.0, 6.0]
"""
SIZES = "--steps 30 --units 6 --train-size 200 --test-size 20 --batch 20"
TRAIN = ["train", "adding", *SIZES.split(), "--epochs", "200", "--seeds", "4"]
SEEDS = [f"seed{seed}" for seed in range(4)]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}  # for each node has one core
KILL, PRESS = "kill the other node", "press Ctrl-C"
ON_TWO_NODES = """
import os, signal, sys, threading, time
from pathlib import Path
from ray.cluster_utils import Cluster
from typer.testing import CliRunner
from glstm.cli.main import app

what, store = sys.argv[1], Path(sys.argv[2])
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
other = cluster.add_node(num_cpus=1)
os.environ["RAY_ADDRESS"] = cluster.address
os.environ["GLSTM_COMMIT"] = "of the driver"  # the workers, which exist already, do not have it

def disturb():
    while len(list(store.rglob("checkpoint.safetensors"))) < 2:  # both nodes have begun
        time.sleep(0.02)
    if what == "press Ctrl-C":
        os.kill(os.getpid(), signal.SIGINT)
    else:
        cluster.remove_node(other, allow_graceful=False)
    print("DISTURBED", len(list(store.rglob("summary.json"))), flush=True)

threading.Thread(target=disturb, daemon=True).start()
said = CliRunner().invoke(app, [*sys.argv[3:], "--device", "cpu", "--engine", "ray"], catch_exceptions=False)
print(said.output)
sys.exit(said.exit_code)
"""


def on_two_nodes(what, store, *command, ends_with=0):
    """What was printed, and how many networks of a store were finished when it happened."""
    call = [sys.executable, "-c", ON_TWO_NODES, what, str(store), *map(str, command)]
    done = subprocess.run(call, capture_output=True, text=True, timeout=1800, check=False, env=ONE_THREAD)
    assert done.returncode == ends_with, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("DISTURBED")]
    return done.stdout, int(line.split()[1])


def glstm_in_a_process(*words):
    call = [sys.executable, "-m", "glstm", *map(str, words), "--device", "cpu"]
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=ONE_THREAD)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def trained_here(tmp_path_factory):
    out = tmp_path_factory.mktemp("here") / "runs"
    glstm_in_a_process(*TRAIN, "--out", out)
    return [results(out / seed) for seed in SEEDS]


def test_training_loses_nothing_with_a_node(tmp_path, trained_here):
    out = tmp_path / "there"
    said, _ = on_two_nodes(KILL, out, *TRAIN, "--out", out)
    assert [results(out / seed) for seed in SEEDS] == trained_here
    for seed in SEEDS:
        assert f"{out / seed}: mse" in said
        assert (out / seed / "learning_curve.png").exists()


def test_training_that_is_stopped_is_saved_and_goes_on_anywhere(tmp_path, trained_here):
    out = tmp_path / "there"
    said, _ = on_two_nodes(PRESS, out, *TRAIN, "--out", out, ends_with=INTERRUPTED)
    assert f"go on with: glstm train --resume {out}" in said
    assert any(0 < RunFolder(out / seed).epochs_done() < 200 for seed in SEEDS)
    glstm_in_a_process("train", "--resume", out)
    assert [results(out / seed) for seed in SEEDS] == trained_here


def test_a_task_has_as_many_threads_as_the_driver():
    """Bits depend on their number."""
    torch.set_num_threads(3)
    found = []
    with Fleet() as fleet:
        assert fleet.run(torch.get_num_threads, [()], "cpu", lambda _, count: found.append(count), lambda: False)
    assert found == [3]


def test_a_sweep_loses_nothing_with_a_node(tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    here, there = tmp_path / "here", tmp_path / "there"
    glstm_in_a_process("sweep", plan, "--out", here)
    _, finished = on_two_nodes(KILL, there, "sweep", plan, "--out", there)
    assert finished < 4
    local, fleet = (json.loads((folder / "sweep.json").read_text())["trials"] for folder in (here, there))
    assert len(local) == 4
    for ours, theirs in zip(local, fleet, strict=True):
        assert (ours["values"], ours["validation_error"]) == (theirs["values"], theirs["validation_error"])


def test_a_reproduction_loses_nothing_with_a_node(tmp_path):
    places = {place: (tmp_path / place, tmp_path / f"{place}-results") for place in ("here", "there")}
    for place, (store, out) in places.items():
        command = ["reproduce", "fig3-trainability", "--small", "--store", store, "--out", out]
        if place == "here":
            glstm_in_a_process(*command)
        else:
            on_two_nodes(KILL, store, *command)
    local, fleet = (json.loads((out / "fig3-trainability.json").read_text())["arms"] for _, out in places.values())
    for ours, theirs in zip(local, fleet, strict=True):
        assert ours["search"] == theirs["search"]
        for one, other in zip(ours["runs"], theirs["runs"], strict=True):
            assert one["curve"]["test_error"] == other["curve"]["test_error"]
            assert one["probes"] == other["probes"]
            assert all(part["machine"]["commit"] != "of the driver" for part in other["trained"])
