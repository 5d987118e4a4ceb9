"""Several processes train into one store: each network is claimed by one of them."""

import subprocess
import sys
import threading

import pytest
from typer.testing import CliRunner

from glstm.cli.main import app
from glstm.errors import UserError
from glstm.experiments import EXPERIMENTS
from glstm.experiments.experiment import SMALL
from glstm.experiments.runner import wanted
from glstm.experiments.store import Store
from glstm.recipes import Recipe
from glstm.stopping import INTERRUPTED

ONE, OTHER, THIRD = (Recipe("adding", seed=seed) for seed in range(3))

CLAIM_AND_WAIT = """
import os, sys
from glstm.experiments.store import Store
from glstm.recipes import Recipe
with Store(sys.argv[1]).claim([Recipe("adding")]) as ours:
    print(len(ours), flush=True)
    sys.stdin.read()
    os._exit(9)
"""


def test_a_network_is_claimed_by_one_and_free_again_afterwards(tmp_path):
    first, second = Store(tmp_path), Store(tmp_path)
    with first.claim([ONE, OTHER]) as ours:
        assert ours == [ONE, OTHER]
        with second.claim([THIRD, OTHER]) as theirs:  # what is free can be had
            assert theirs == [THIRD]
            with first.claim([THIRD, ONE]) as more:
                assert more == []
    with second.claim([THIRD, OTHER, ONE]) as theirs:
        assert theirs == [THIRD, OTHER, ONE]


def test_a_claim_ends_with_its_process_however_that_ends(tmp_path):
    store, command = Store(tmp_path), [sys.executable, "-c", CLAIM_AND_WAIT, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "1\n"
        with store.claim([ONE]) as ours:
            assert ours == []
    assert other.returncode == 9
    with store.claim([ONE]) as ours:
        assert ours == [ONE]


def test_what_another_process_trains_is_left_to_it(tmp_path):
    store, results = Store(tmp_path / "store"), tmp_path / "results"
    every = [one.recipe for one in wanted([EXPERIMENTS["table1-adding1000"].at(SMALL)], Store(tmp_path))]
    command = ["reproduce", "table1-adding1000", "--small", "--device", "cpu", "--minutes", "0.01"]
    command += ["--store", str(store.path), "--out", str(results)]
    with store.claim(every[1:]) as ours:
        assert ours == every[1:]
        said = CliRunner().invoke(app, command)
        assert said.exit_code == INTERRUPTED, said.output  # one was free, and there was no time to finish it
        assert said.output.startswith("a network of a search: 32 units")
        assert [path.parent for path in store.path.glob("*/config.json")] == [store.folder(every[0]).path]
    with store.claim(every) as ours:
        said = CliRunner().invoke(app, command)
        assert said.exit_code == INTERRUPTED, said.output
        assert said.output.startswith("other processes train the rest; waiting for what they decide\nstopped")
    assert not results.exists()


def test_results_are_written_by_one_at_a_time(tmp_path):
    store, other = Store(tmp_path), Store(tmp_path)
    entered = threading.Event()

    def enter() -> None:
        with other.alone():
            entered.set()

    with store.alone():
        waiting = threading.Thread(target=enter)
        waiting.start()
        assert not entered.wait(0.2)
    waiting.join()
    assert entered.is_set()


def test_a_store_that_cannot_be_locked_is_named(tmp_path):
    (tmp_path / ".lock").mkdir()
    message = r"\.lock cannot be locked against other processes: Is a directory"
    with pytest.raises(UserError, match=message), Store(tmp_path).alone():
        pass
