"""Sweeps and reproductions on a real Ray cluster of two nodes, of which one is killed. `make fleet` installs Ray."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from glstm.cli.main import app

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
ON_TWO_NODES = """
import os, sys, threading, time
from pathlib import Path
from ray.cluster_utils import Cluster
from typer.testing import CliRunner
from glstm.cli.main import app

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
other = cluster.add_node(num_cpus=1)
os.environ["RAY_ADDRESS"] = cluster.address
store = Path(sys.argv[1])

def kill_the_other_node():
    while len(list(store.rglob("checkpoint.safetensors"))) < 2:  # both nodes have begun
        time.sleep(0.02)
    cluster.remove_node(other, allow_graceful=False)
    print("KILLED", len(list(store.rglob("summary.json"))), flush=True)

threading.Thread(target=kill_the_other_node, daemon=True).start()
said = CliRunner().invoke(app, [*sys.argv[2:], "--device", "cpu", "--engine", "ray"], catch_exceptions=False)
print(said.output)
sys.exit(said.exit_code)
"""


def on_two_nodes(store, *command):
    """Networks that were finished when the node was killed."""
    call = [sys.executable, "-c", ON_TWO_NODES, str(store), *map(str, command)]
    done = subprocess.run(call, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("KILLED")]
    return int(line.split()[1])


def test_a_sweep_loses_nothing_with_a_node(tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    here, there = tmp_path / "here", tmp_path / "there"
    said = CliRunner().invoke(app, ["sweep", str(plan), "--out", str(here), "--device", "cpu"])
    assert said.exit_code == 0, said.output
    assert on_two_nodes(there, "sweep", plan, "--out", there) < 4
    local, fleet = (json.loads((folder / "sweep.json").read_text())["trials"] for folder in (here, there))
    assert len(local) == 4
    for ours, theirs in zip(local, fleet, strict=True):
        assert (ours["values"], ours["validation_error"]) == (theirs["values"], theirs["validation_error"])


def test_a_reproduction_loses_nothing_with_a_node(tmp_path):
    command = ["reproduce", "fig3-trainability", "--small"]
    for place in ("here", "there"):
        where = ["--store", str(tmp_path / place), "--out", str(tmp_path / f"{place}-results")]
        if place == "here":
            said = CliRunner().invoke(app, [*command, *where, "--device", "cpu"])
            assert said.exit_code == 0, said.output
        else:
            on_two_nodes(tmp_path / place, *command, *where)
    local, fleet = (
        json.loads((tmp_path / f"{place}-results/fig3-trainability.json").read_text())["arms"]
        for place in ("here", "there")
    )
    for ours, theirs in zip(local, fleet, strict=True):
        assert ours["search"] == theirs["search"]
        for one, other in zip(ours["runs"], theirs["runs"], strict=True):
            assert one["curve"]["test_error"] == other["curve"]["test_error"]
            assert one["probes"] == other["probes"]
