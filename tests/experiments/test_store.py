"""Several processes train into one store: each network is claimed by one of them."""

import subprocess
import sys

from typer.testing import CliRunner

from glstm.cli.main import app
from glstm.experiments import EXPERIMENTS
from glstm.experiments.experiment import SMALL
from glstm.experiments.runner import wanted
from glstm.experiments.store import Store
from glstm.training.recipe import Recipe

ONE, OTHER, THIRD = (Recipe("adding", seed=seed) for seed in range(3))

CLAIM_AND_WAIT = """
import os, sys
from glstm.experiments.store import Store
from glstm.training.recipe import Recipe
with Store(sys.argv[1]).claim([Recipe("adding")]) as ours:
    print(ours, flush=True)
    sys.stdin.read()
    os._exit(9)
"""


def test_a_network_is_claimed_by_one_and_free_again_afterwards(tmp_path):
    first, second = Store(tmp_path), Store(tmp_path)
    with first.claim([ONE, OTHER]) as ours:
        assert ours
        with second.claim([THIRD, OTHER]) as theirs:
            assert not theirs
            with first.claim([THIRD]) as free:  # who does not get all keeps nothing
                assert free
    with second.claim([THIRD, OTHER, ONE]) as theirs:
        assert theirs


def test_a_claim_ends_with_its_process_however_that_ends(tmp_path):
    store, command = Store(tmp_path), [sys.executable, "-c", CLAIM_AND_WAIT, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "True\n"
        with store.claim([ONE]) as ours:
            assert not ours
    assert other.returncode == 9
    with store.claim([ONE]) as ours:
        assert ours


def test_what_another_process_trains_is_left_to_it(tmp_path):
    store, results = Store(tmp_path / "store"), tmp_path / "results"
    every = [one.recipe for one in wanted([EXPERIMENTS["table1-adding1000"].at(SMALL)])]
    command = ["reproduce", "table1-adding1000", "--small", "--device", "cpu"]
    with store.claim(every) as ours:
        assert ours
        said = CliRunner().invoke(app, [*command, "--store", str(store.path), "--out", str(results)])
    assert said.exit_code == 0, said.output
    assert "another process trains these" in said.output
    assert not list(store.path.rglob("config.json"))
    assert not results.exists()
