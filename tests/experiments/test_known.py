"""What results hold of a network need not be trained again, even if the store is lost."""

import json
from dataclasses import replace

import pytest
from test_reproduce import CHOSEN, PAIR_ARMS, run
from typer.testing import CliRunner

from glstm.cli.main import app
from glstm.errors import UserError
from glstm.experiments import EXPERIMENTS
from glstm.experiments.experiment import Experiment
from glstm.experiments.known import adopt
from glstm.experiments.runner import wanted, write_result
from glstm.experiments.search import outcome
from glstm.experiments.store import Store
from glstm.report.reading import load
from glstm.report.tables import document

CHOICE = Experiment("choice", "", "", (CHOSEN,))
PLAIN = Experiment("plain", "", "", (replace(PAIR_ARMS[0], twin=None, probes=()),))


def left(experiment: Experiment, store: Store) -> list:
    return [one.recipe for one in wanted([experiment], store) if one.missing(store.summary(one.recipe))]


def finished(experiment: Experiment, folder) -> Store:
    store = Store(folder / "store")
    assert run([experiment], store)
    assert write_result(experiment, store, folder, small=False)
    return store


def test_nothing_that_results_hold_is_trained_again(tmp_path):
    before = finished(CHOICE, tmp_path)
    written = json.loads((tmp_path / "choice.json").read_text())
    elsewhere = Store(tmp_path / "elsewhere")
    assert adopt([CHOICE], tmp_path, elsewhere) == 5  # three that decided, one of which diverged, and two seeds
    assert left(CHOICE, elsewhere) == []
    assert outcome(CHOSEN, elsewhere).chosen == outcome(CHOSEN, before).chosen
    assert write_result(CHOICE, elsewhere, tmp_path, small=False)
    assert json.loads((tmp_path / "choice.json").read_text()) == written
    assert adopt([CHOICE], tmp_path, elsewhere) == 0


def test_a_search_that_was_stopped_goes_on_from_what_it_found(tmp_path):
    part = replace(CHOSEN, tries=CHOSEN.tries[:2])
    store = Store(tmp_path / "store")
    assert run([Experiment("part", "", "", (part,))], store)
    assert write_result(CHOICE, store, tmp_path, small=False)  # the third is not trained
    elsewhere = Store(tmp_path / "elsewhere")
    assert adopt([CHOICE], tmp_path, elsewhere) == 2
    assert left(CHOICE, elsewhere) == CHOSEN.searched()[2]


def test_a_network_that_was_trained_twice_has_what_was_measured_in_either(tmp_path):
    (tmp_path / "first").mkdir()
    finished(PLAIN, tmp_path / "first")
    measured = replace(PLAIN, arms=(replace(PLAIN.arms[0], probes=("gates",)),))
    finished(replace(measured, name="measured"), tmp_path)
    text = (tmp_path / "first" / "plain.json").read_text()
    (tmp_path / "plain.json").write_text(text)  # with other times
    elsewhere = Store(tmp_path / "elsewhere")
    adopt([PLAIN], tmp_path, elsewhere)
    assert left(replace(measured, name="measured"), elsewhere) == []
    content = json.loads(text)
    content["arms"][0]["runs"][0]["curve"]["test_error"][-1] += 0.1
    (tmp_path / "plain.json").write_text(json.dumps(content))
    (tmp_path / "measured.json").rename(tmp_path / "z.json")  # read after it
    other = Store(tmp_path / "other")
    adopt([PLAIN], tmp_path, other)
    assert left(replace(measured, name="z"), other) == [measured.arms[0].recipes()[0]]


def test_what_a_longer_search_found_is_kept_beside_what_was_tested_before(tmp_path):
    first = replace(CHOSEN, tries=CHOSEN.tries[:1])
    store = finished(replace(CHOICE, arms=(first,)), tmp_path)
    tested = json.loads((tmp_path / "choice.json").read_text())["arms"]
    second = replace(CHOSEN, tries=CHOSEN.tries[1:2])
    assert run([Experiment("second", "", "", (second,))], store)
    grown = replace(CHOICE, arms=(replace(CHOSEN, tries=(*CHOSEN.tries[:2], {"lr": 3e-3})),))
    assert write_result(grown, store, tmp_path, small=False)  # its third is not trained
    written = json.loads((tmp_path / "choice.json").read_text())
    assert written["arms"] == tested
    assert [one["key"] for one in written["missing"]] == [CHOSEN.key]
    elsewhere = Store(tmp_path / "elsewhere")
    adopt([grown], tmp_path, elsewhere)
    assert left(grown, elsewhere) == grown.arms[0].searched()[2]
    (result,) = load(tmp_path, ["choice"])
    assert result.untested == []
    text = document([result])
    assert f"Not finished yet: {CHOSEN.name}, as it is asked for now." in text
    assert text.count(f"{CHOSEN.name}: ") == 1  # what it was tested with, and not how far the new search is


def test_a_network_may_have_been_trained_for_another_experiment(tmp_path):
    finished(CHOICE, tmp_path)
    other, elsewhere = replace(CHOICE, name="other"), Store(tmp_path / "elsewhere")
    assert adopt([other], tmp_path, elsewhere) == 5
    assert left(other, elsewhere) == []


def test_networks_of_another_recipe_are_not_mistaken(tmp_path):
    finished(CHOICE, tmp_path)
    longer = Experiment("choice", "", "", (replace(CHOSEN, recipe=CHOSEN.recipe.changed(epochs=3)),))
    elsewhere = Store(tmp_path / "elsewhere")
    assert adopt([longer], tmp_path, elsewhere) == 2  # the two that were tested, which nobody asks for now
    assert len(left(longer, elsewhere)) == 3


def test_what_is_measured_anew_is_all_of_one_training(tmp_path):
    """The weights are not in the results, so a new measurement needs a new training, and all figures are of that."""
    arm = replace(PAIR_ARMS[1], probes=("gradient flow",))
    finished(Experiment("one", "", "", (PAIR_ARMS[1],)), tmp_path)
    asked = Experiment("one", "", "", (arm,))
    elsewhere = Store(tmp_path / "elsewhere")
    assert adopt([asked], tmp_path, elsewhere) == 1
    (recipe,) = arm.recipes()
    known = elsewhere.summary(recipe)
    known["curve"]["test_error"] = [7.0] * recipe.epochs  # as if it had been trained on another machine
    elsewhere.write_summary(recipe, known)
    assert left(asked, elsewhere) == [recipe]
    assert run([asked], elsewhere)
    found = elsewhere.summary(recipe)
    assert "gradient flow" in found["probes"]
    assert 7.0 not in found["curve"]["test_error"]


def test_measurements_of_one_training_are_joined(tmp_path):
    gated = replace(PAIR_ARMS[0], twin=None, probes=("gates",))
    store = finished(Experiment("first", "", "", (gated,)), tmp_path)
    second = Experiment("second", "", "", (replace(gated, probes=("thresholds",)),), thresholds=(0.1,))
    assert run([second], store)
    assert write_result(second, store, tmp_path, small=False)
    elsewhere = Store(tmp_path / "elsewhere")
    assert adopt([Experiment("first", "", "", (gated,)), second], tmp_path, elsewhere) == 2
    for recipe in gated.recipes():
        assert set(elsewhere.summary(recipe)["probes"]) == {"gates", "thresholds"}


def test_a_damaged_result_is_named_before_anything_is_trained(tmp_path):
    (tmp_path / "choice.json").write_text("{}")
    with pytest.raises(UserError, match=r"choice\.json is not a result of glstm reproduce: it has no name; move it"):
        adopt([CHOICE], tmp_path, Store(tmp_path / "store"))


def changed(folder, **recipe) -> None:
    """The result in this folder, with other values in the recipes of its networks."""
    result = json.loads((folder / "choice.json").read_text())
    for run_of in result["arms"][0]["runs"]:
        run_of["recipe"] |= recipe
    (folder / "choice.json").write_text(json.dumps(result))


def test_a_recipe_that_is_none_is_named_with_its_file(tmp_path):
    finished(CHOICE, tmp_path)
    changed(tmp_path, lr=-1.0)
    with pytest.raises(UserError, match=r"choice\.json cannot be used, for lr must be .*; move it elsewhere"):
        adopt([CHOICE], tmp_path, Store(tmp_path / "elsewhere"))


def test_nothing_is_written_outside_the_store(tmp_path):
    finished(CHOICE, tmp_path)
    changed(tmp_path, task="../../escaped:x")
    elsewhere = tmp_path / "deep" / "elsewhere"
    adopt([CHOICE], tmp_path, Store(elsewhere))
    assert {path.name for path in tmp_path.iterdir()} == {"choice.json", "store", "deep"}
    assert [*(tmp_path / "deep").iterdir()] == [elsewhere]


def test_what_another_process_has_claimed_is_left_to_it(tmp_path):
    finished(CHOICE, tmp_path)
    elsewhere = Store(tmp_path / "elsewhere")
    with elsewhere.claim([recipe for (recipe,) in CHOSEN.searched()]):
        assert adopt([CHOICE], tmp_path, elsewhere) == 2  # the two seeds
    assert adopt([CHOICE], tmp_path, elsewhere) == 3


@pytest.mark.parametrize("track", ["paper", "best", "given"])
def test_a_track_can_be_run_by_itself(track):
    for experiment in EXPERIMENTS.values():
        keys = [arm.key for arm in experiment.only(track).arms]
        assert keys == [arm.key for arm in experiment.arms if arm.track == track]
        assert experiment.only() is experiment
        key = experiment.arms[-1].key
        assert [arm.key for arm in experiment.only(keys=[key]).arms] == [key]  # without the one it is compared with


def test_the_command_takes_a_track_and_says_what_it_knows(tmp_path):
    command = ["reproduce", "table1-adding1000", "--small", "--device", "cpu", "--minutes", "0.01"]
    command += ["--store", str(tmp_path / "store"), "--out", str(tmp_path)]
    said = CliRunner().invoke(app, [*command, "--track", "paper"])
    assert "; 4 are to be trained" in said.output, said.output
    said = CliRunner().invoke(app, command)
    assert "; 8 are to be trained" in said.output, said.output
    said = CliRunner().invoke(app, [*command, "--arm", "lstm-best"])
    assert "; 2 are to be trained" in said.output, said.output
    said = CliRunner().invoke(app, [*command, "--arm", "gru"])
    assert "has an arm 'gru'; there are glstm, glstm-best, lstm, lstm-best" in str(said.exception)
    said = CliRunner().invoke(app, [*command, "--arm", "lstm", "--track", "best"])
    assert "has an arm 'lstm' of the track best; there are glstm-best, lstm-best" in str(said.exception)
    finished(CHOICE, tmp_path)
    said = CliRunner().invoke(app, [*command, "--store", str(tmp_path / "elsewhere")])
    assert said.output.startswith(f"2 networks are known from {tmp_path}"), said.output
