"""Runs that train together, each in its own folder: they stop, fail and go on as if each were alone."""

import shutil

import pytest
import torch
from safetensors.torch import load_file

from glstm.errors import UserError
from glstm.training.display import Display
from small_runs import PHASES, RECIPES, SMALL, StopAfter, go_on, population, results, start

TRIO = [
    SMALL,
    SMALL.changed(
        seed=1,
        budget=0.5,
        budget_epochs=2,
        options={"threshold": 0.05},
        schedule="linear",
        cell="plstm",
        gate=PHASES,
    ),
    SMALL.changed(seed=5, clip=0.0, lr=1e-3, cell="lstm"),
]
NAMES = ["a", "b", "c"]


def folders(path) -> list:
    return [path / name for name in NAMES]


def all_results(path) -> list:
    return [results(folder) for folder in folders(path)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> list:
    """What each of the three leaves when it trains by itself."""
    path = tmp_path_factory.mktemp("alone")
    for recipe, folder in zip(TRIO, folders(path), strict=True):
        assert start(recipe, folder).fit()
    return all_results(path)


def test_each_run_leaves_what_it_would_alone(tmp_path, alone):
    assert start(TRIO, folders(tmp_path)).fit()
    assert all_results(tmp_path) == alone


@pytest.mark.parametrize("stops", [[1], [2, 1, 4], [5], [6, 1, 1]])
def test_they_stop_anywhere_and_go_on(tmp_path, alone, stops):
    trainer = start(TRIO, folders(tmp_path))
    for batches in stops:
        assert not trainer.fit(should_stop=StopAfter(batches))
        trainer = go_on(TRIO, folders(tmp_path))
    assert trainer.fit()
    assert all_results(tmp_path) == alone


def test_a_member_goes_on_alone_or_in_other_company(tmp_path, alone):
    start(TRIO, folders(tmp_path)).fit(should_stop=StopAfter(3))
    a, b, c = folders(tmp_path)
    assert go_on(TRIO[1], b).fit()
    assert go_on([TRIO[2], TRIO[0]], [c, a]).fit()
    assert all_results(tmp_path) == alone


@pytest.mark.parametrize(("first", "second"), [(1, 3), (0, 5), (4, 12)])
def test_runs_that_a_kill_left_at_different_places_end_together(tmp_path, alone, first, second):
    """One had been saved and the others not yet: 'a' stands behind, 'c' further on than 'b'."""
    start(TRIO, folders(tmp_path))
    for name, recipe, batches in zip(NAMES, TRIO, (first, second, second + 1), strict=True):
        if batches:
            assert not go_on(recipe, tmp_path / name).fit(should_stop=StopAfter(batches))
    assert go_on(TRIO, folders(tmp_path)).fit()
    assert all_results(tmp_path) == alone


def test_catching_up_can_be_stopped_too(tmp_path, alone):
    start(TRIO, folders(tmp_path))
    go_on(TRIO[:2], folders(tmp_path)[:2]).fit(should_stop=StopAfter(9))
    trainer = go_on(TRIO, folders(tmp_path))
    assert not trainer.fit(should_stop=StopAfter(2))
    assert trainer.place == (1, 2)
    assert [run.resumed_at for run in trainer.runs] == [(2, 3), (2, 3), (1, 2)]
    assert go_on(TRIO, folders(tmp_path)).fit()
    assert all_results(tmp_path) == alone


BAD = SMALL.changed(seed=7, lr=1e30, clip=0.0)


def test_who_diverges_is_named_and_the_others_end_as_they_would(tmp_path, alone):
    paths = [*folders(tmp_path), tmp_path / "bad"]
    with pytest.raises(UserError, match=r"bad \(seed 7\): .* training diverged; lower lr .*; the other 3 are finished"):
        start([*TRIO, BAD], paths).fit()
    assert load_file(tmp_path / "bad" / "model.safetensors")["head.weight"].isfinite().all()
    assert all_results(tmp_path) == alone


def test_the_others_of_one_that_diverges_can_stop_and_go_on(tmp_path, alone):
    trainer = start([*TRIO, BAD], [*folders(tmp_path), tmp_path / "bad"])
    with pytest.raises(
        UserError, match=r"bad \(seed 7\): .*; the others go on with --resume .*a --resume .*b --resume .*c$"
    ):
        trainer.fit(should_stop=StopAfter(7))
    assert go_on(TRIO, folders(tmp_path)).fit()
    assert all_results(tmp_path) == alone


def test_starting_an_epoch_twice_moves_a_curriculum_once():
    twice = population([RECIPES["curriculum"]])
    twice.train(1)
    twice.start(2)
    twice.train(2)
    again = population([RECIPES["curriculum"]])
    again.train(1)
    again.train(2)
    assert torch.equal(twice.stack.flat, again.stack.flat)


def test_a_checkpoint_of_another_shape_is_refused_in_one_sentence(tmp_path):
    start(SMALL, tmp_path / "run")
    start(SMALL.changed(optimizer="sgd"), tmp_path / "other")
    shutil.copy(tmp_path / "other" / "checkpoint.safetensors", tmp_path / "run")
    with pytest.raises(UserError, match="does not fit the network and the optimiser"):
        go_on(SMALL, tmp_path / "run")


def test_everybody_is_told_about_everybody(tmp_path):
    told = []

    class Listen(Display):
        def start(self, settings, task, histories):
            told.append(([one.seed for one in settings], [len(history) for history in histories]))

        def loss(self, rows):
            told.append(len({row.loss for row in rows}))

        def epoch(self, rows):
            told.append([row.epoch for row in rows])

    start(TRIO, folders(tmp_path)).fit(Listen(), StopAfter(6))
    assert told == [([0, 1, 5], [0, 0, 0]), *[3] * 5, [1, 1, 1]]


def test_a_folder_is_given_once(tmp_path):
    start(SMALL, tmp_path / "run")
    with pytest.raises(UserError, match="run was given more than once"):
        go_on([SMALL, SMALL], [tmp_path / "run", tmp_path / "x" / ".." / "run"])


def test_a_folder_in_use_stops_all_before_anything_is_written(tmp_path):
    start(SMALL, tmp_path / "b")
    before = {path: path.read_bytes() for path in (tmp_path / "b").rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="b already holds a run"):
        start(TRIO, folders(tmp_path))
    assert {path: path.read_bytes() for path in (tmp_path / "b").rglob("*") if path.is_file()} == before
    assert not (tmp_path / "a").exists()


def test_pictures_and_files_are_each_runs_own(tmp_path):
    trainer = start(TRIO, folders(tmp_path))
    trainer.fit()
    trainer.finish()
    for folder, recipe in zip(folders(tmp_path), TRIO, strict=True):
        gates = set() if recipe.cell == "lstm" else {"gates.png"}
        expected = {"config.json", "learning_curve.png", "losses.csv", *gates}
        assert expected <= {path.name for path in folder.iterdir()}
    shutil.rmtree(tmp_path / "a")  # nobody needs another's
    assert go_on(TRIO[2].changed(epochs=4), tmp_path / "c").fit()


def test_masks_do_not_depend_on_what_the_process_drew_before(tmp_path):
    recipe = RECIPES["RMSProp, Drop-Connect"]
    start(recipe, tmp_path / "one").fit()
    trainer = start([recipe.changed(seed=3), recipe], [tmp_path / "other", tmp_path / "same"])
    torch.rand(100)
    trainer.fit()
    assert results(tmp_path / "one") == results(tmp_path / "same")
