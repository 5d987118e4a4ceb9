"""Nothing is lost: not by a kill, not by a second process, not because a folder goes away."""

import json
import os
import shutil
import signal

import pytest
import torch

from glstm.errors import UserError
from glstm.pretrained import load_model
from glstm.recipes import make_task, model_maker
from glstm.stopping import StopOnSignal
from glstm.training.display import Display
from glstm.training.loop import Trainer
from glstm.training.run import RunFolder, runs_in
from small_runs import SMALL, StopAfter, go_on, results, start
from test_saves import largest_file, locked_by_another

PAIR = [SMALL, SMALL.changed(seed=1)]


def only_begun(recipe, folder: RunFolder, together=None) -> None:
    """As if the process had been killed before the first checkpoint."""
    task = make_task(recipe)
    model = model_maker(recipe, task)()
    folder.create(recipe, task, model, {"device": "cpu"}, recipe.names_as_dict(), together)


def test_a_run_without_a_checkpoint_begins_anew(tmp_path):
    start(SMALL, tmp_path / "whole").fit()
    only_begun(SMALL, RunFolder(tmp_path / "run"))
    with pytest.raises(UserError, match="already holds a run: go on with it by --resume"):
        start(SMALL, tmp_path / "run")
    assert go_on(SMALL, tmp_path / "run").fit()
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_a_run_that_was_prepared_elsewhere_says_where_it_began(tmp_path):
    """As on a fleet: one process makes the folder, and another, with other threads here, begins."""
    start(SMALL, tmp_path / "whole").fit()
    task = make_task(SMALL)
    torch.set_num_threads(2)
    Trainer(task, model_maker(SMALL, task), SMALL, tmp_path / "run").prepare([SMALL.names_as_dict()], device="cpu")
    torch.set_num_threads(1)
    folder = RunFolder(tmp_path / "run")
    assert not folder.checkpoint.exists()
    assert json.loads(folder.config.read_text())["about"]["begun_on"] == "CPU, 2 threads"
    assert go_on(SMALL, tmp_path / "run").fit()
    assert json.loads(folder.config.read_text())["about"]["begun_on"] == "CPU, 1 thread"
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_one_of_two_without_a_checkpoint_catches_up(tmp_path):
    paths = [tmp_path / "many" / name for name in ("seed0", "seed1")]
    start(PAIR, [tmp_path / "a", tmp_path / "b"]).fit()
    start(PAIR[0], paths[0]).fit(should_stop=StopAfter(7))
    only_begun(PAIR[1], RunFolder(paths[1]))
    assert go_on(PAIR, paths).fit()
    assert [results(path) for path in paths] == [results(tmp_path / name) for name in "ab"]


def test_runs_that_were_to_begin_together_all_begin(tmp_path):
    only_begun(PAIR[0], RunFolder(tmp_path / "many" / "seed0"), {"seed0": 0, "seed1": 1})
    assert [run.settings().seed for run in runs_in(tmp_path / "many")] == [0, 1]
    shutil.rmtree(tmp_path / "many" / "seed1")
    (alone,) = runs_in(tmp_path / "many" / "seed1")  # named by itself
    assert alone.settings().seed == 1
    go_on(PAIR, [tmp_path / "many" / name for name in ("seed0", "seed1")])
    shutil.rmtree(tmp_path / "many" / "seed1")  # by its owner, later
    assert len(runs_in(tmp_path / "many")) == 1


def test_the_network_is_that_of_the_checkpoint_at_every_moment(tmp_path):
    """Also through a path that does not know about saves."""
    start(SMALL, tmp_path / "run").fit()
    folder = RunFolder(tmp_path / "run")
    assert folder.model.read_bytes() == (tmp_path / "run" / "model.safetensors").read_bytes()
    assert folder.checkpoint.parent == folder.model.parent == folder.config.parent


def test_a_folder_of_an_older_version_is_read_and_goes_on(tmp_path):
    start(SMALL.changed(epochs=5), tmp_path / "whole").fit()
    start(SMALL, tmp_path / "run").fit()
    shutil.copytree(RunFolder(tmp_path / "run").config.parent, tmp_path / "old")
    assert load_model(tmp_path / "old")
    assert go_on(SMALL.changed(epochs=5), tmp_path / "old").fit()
    assert results(tmp_path / "old") == results(tmp_path / "whole")


@pytest.mark.parametrize("begin", [start, go_on])
def test_a_second_process_is_refused(tmp_path, begin):
    if begin is go_on:
        start(SMALL, tmp_path / "run")
    with (
        locked_by_another(tmp_path / "run" / ".lock"),
        pytest.raises(UserError, match=r"another process is training in .*run: wait for it to end, or stop it"),
    ):
        begin(SMALL, tmp_path / "run")
    begin(SMALL, tmp_path / "run")


def test_what_another_process_saved_since_is_not_overwritten(tmp_path):
    first = start(SMALL, tmp_path / "run")
    assert go_on(SMALL, tmp_path / "run").fit()
    finished = results(tmp_path / "run")
    with pytest.raises(UserError, match="run was changed while it was being trained"):
        first.fit()
    assert results(tmp_path / "run") == finished


class AtEpoch(Display):
    def __init__(self, act):
        self.act = act

    def epoch(self, rows):
        if rows[0].epoch == 2:
            self.act()


def test_a_folder_that_is_removed_ends_the_run_in_a_sentence(tmp_path):
    trainer = start(SMALL, tmp_path / "run")
    with pytest.raises(UserError, match="run was removed while it was being trained"):
        trainer.fit(AtEpoch(lambda: shutil.rmtree(tmp_path / "run")))
    assert not (tmp_path / "run").exists()


def test_a_full_disk_leaves_the_last_save(tmp_path):
    trainer = start(SMALL, tmp_path / "run")
    trainer.fit(should_stop=StopAfter(3))
    before = results(tmp_path / "run")
    trainer = go_on(SMALL, tmp_path / "run")
    with (
        largest_file(2000),
        pytest.raises(UserError, match=r"cannot be saved: File too large; its last save is intact"),
    ):
        trainer.fit()
    assert results(tmp_path / "run") == before
    start(SMALL, tmp_path / "whole").fit()
    assert go_on(SMALL, tmp_path / "run").fit()
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_a_data_folder_that_is_gone_is_not_replaced_by_another(tmp_path):
    (tmp_path / "data").mkdir()
    trainer = Trainer(make_task(SMALL), model_maker(SMALL, make_task(SMALL)), SMALL, tmp_path / "run")
    trainer.begin(data=str(tmp_path / "data"))
    folder = RunFolder(tmp_path / "run")
    assert folder.data() == tmp_path / "data"
    (tmp_path / "data").rmdir()
    with pytest.raises(UserError, match=r"data, the data folder of .*run, is not there any more: .* by --data"):
        folder.data()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_ask_to_stop_once(number):
    at_first = signal.getsignal(number)
    before = signal.SIG_DFL if at_first is signal.SIG_IGN else at_first  # under nohup the tests themselves ignore it
    signal.signal(number, before)
    try:
        with StopOnSignal() as asked:
            assert not asked()
            os.kill(os.getpid(), number)
            assert asked()
            assert signal.getsignal(number) is before  # the next one ends the program
        assert signal.getsignal(number) is before
    finally:
        signal.signal(number, at_first)


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopOnSignal() as asked:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not asked()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_result_belongs_to_the_epochs_it_is_of(tmp_path):
    folder = RunFolder(tmp_path / "run")
    start(SMALL, folder.path).fit()
    folder.take_up()
    folder.save_result({"epoch": 1})
    saves = folder.number
    folder.save_result({"epoch": 1})
    assert folder.number == saves
    assert json.loads((folder.path / "result.json").read_text()) == {"epoch": 1}
    go_on(SMALL.changed(epochs=4), folder.path).fit()
    assert not (folder.path / "result.json").is_symlink()
