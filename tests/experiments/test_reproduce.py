"""Every experiment in a tiny form, from training to its JSON; what is done is not done again."""

import json
import math
from dataclasses import replace
from functools import partial
from statistics import mean

import pytest
import torch

from glstm.data import TASKS
from glstm.data.images import PixelTask
from glstm.errors import UserError
from glstm.experiments import EXPERIMENTS
from glstm.experiments.experiment import TINY, Arm, Experiment
from glstm.experiments.runner import (
    ALIKE,
    ON_A_CPU,
    Runner,
    Wanted,
    populations,
    room_among,
    room_on,
    trained,
    wanted,
    write_result,
)
from glstm.experiments.search import chosen_recipes, outcome
from glstm.experiments.store import Store
from glstm.report.page import page
from glstm.report.reading import load
from glstm.report.tables import document
from glstm.training.display import Display, EpochRow
from glstm.training.fabric import make_fabric
from small_runs import SMALL, StopAfter

SHAPES = {"smnist": (784, 1), "pmnist": (784, 1), "scifar": (1024, 3)}


@pytest.fixture
def noise_for_images(monkeypatch):
    """Images of noise in the shape of the real ones: nothing here depends on what they show."""

    def noise(name, *, folder=None, train_size=0, test_size=0, validation=None, shift=0, device="cpu"):
        draws = torch.Generator().manual_seed(list(SHAPES).index(name))
        splits = [
            (torch.randint(256, (size, *SHAPES[name]), generator=draws, dtype=torch.uint8), torch.arange(size) % 10)
            for size in (train_size + (validation or 0), test_size)
        ]
        return PixelTask(name, *splits, validation=validation, shift=shift, device=device)

    for name in SHAPES:
        monkeypatch.setitem(TASKS, name, partial(noise, name))


def run(experiments, store: Store, should_stop=lambda: False) -> bool:
    machine = {"device": "CPU", "commit": "0123456789abcdef", "software": {}}
    runner = Runner(store, make_fabric("cpu"), None, {"device": "cpu"}, machine)
    while todo := [one for one in wanted(experiments, store) if one.missing(store.summary(one.recipe))]:
        if not all(runner.train(part, Display(), should_stop) for part in populations(todo, lambda recipe: 4)):
            return False
    return True


PAIR_ARMS = (
    Arm("g", "gated", SMALL, seeds=(0, 1), twin="l"),
    Arm("l", "plain", SMALL.changed(cell="lstm"), seeds=(0,)),
)
PAIR = Experiment("pair", "", "", PAIR_ARMS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_leads_to_its_json(name, tmp_path, noise_for_images):
    experiment = EXPERIMENTS[name].at(TINY)
    store = Store(tmp_path / "store")
    assert not write_result(experiment, store, tmp_path, small=True)
    assert run([experiment], store)
    assert write_result(experiment, store, tmp_path, small=True)
    result = json.loads((tmp_path / f"{name}.json").read_text())
    for field in ("key", "name", "twin"):
        assert [arm[field] for arm in result["arms"]] == [getattr(arm, field) for arm in EXPERIMENTS[name].arms]
    for arm, found in zip(experiment.arms, result["arms"], strict=True):
        for summary in found["runs"]:
            curve = summary["curve"]
            assert curve["epoch"] == list(range(1, arm.recipe.epochs + 1))
            assert all(math.isfinite(value) for value in curve["test_error"])
            assert set(arm.probes) <= set(summary["probes"])
            (trained,) = summary["trained"]
            assert trained["seconds"] > 0
            assert trained["epochs"] == arm.recipe.epochs
            if "thresholds" in arm.probes:
                tested = [row["threshold"] for row in summary["probes"]["thresholds"]]
                assert set(experiment.thresholds) <= set(tested)
            if "gradient flow" in arm.probes:
                assert len(summary["probes"]["gradient flow"]) == 784
    found = load(tmp_path, [name])  # and to its report
    assert all(arm.name in document(found) for arm in experiment.arms)
    assert f'id="{name}"' in page(found)
    assert run([experiment], store)  # nothing is left to do: nothing could be trained twice
    before = (tmp_path / f"{name}.json").read_bytes()
    assert write_result(experiment, store, tmp_path, small=True)
    assert (tmp_path / f"{name}.json").read_bytes() == before


def test_a_network_that_two_ask_for_is_trained_once(tmp_path):
    first = Experiment("first", "", "", (*PAIR_ARMS[1:], replace(PAIR_ARMS[0], twin=None)))
    tested = replace(PAIR_ARMS[0], twin=None, probes=("thresholds",))
    second = Experiment("second", "", "", (tested,), thresholds=(0.1,))
    store = Store(tmp_path)
    every = wanted([first, second, replace(second, thresholds=(0.2, 0.3))], store)
    assert [one.recipe for one in every] == [recipe for arm in first.arms for recipe in arm.recipes()]
    assert [one.thresholds for one in every] == [set(), {0.1, 0.2, 0.3}, {0.1, 0.2, 0.3}]


TRIES = ({"lr": 1e-3}, {"lr": 1e30, "clip": 0.0}, {"lr": 1e-2})
SEARCHED = replace(SMALL, epochs=2)
CHOSEN = Arm("g", "gated", SEARCHED, track="best", seeds=(0, 1), tries=TRIES, held_out=40)


def test_validation_chooses_and_the_chosen_one_is_trained_on_all_data(tmp_path):
    """One of the tries diverges: that is no reason to stop, and it is not chosen."""
    store = Store(tmp_path / "store")
    experiment = Experiment("choice", "", "", (CHOSEN,))
    assert chosen_recipes(CHOSEN, store) is None
    assert run([experiment], store)
    searched = [store.summary(recipe) for (recipe,) in CHOSEN.searched()]
    assert [one["diverged"] for one in searched] == [False, True, False]
    assert all(set(one["curve"]["test_error"]) <= {None} for one in searched)  # none of these was tested
    errors = [mean(one["curve"]["validation_error"][-5:]) for one in searched if not one["diverged"]]
    best = TRIES[0 if errors[0] <= errors[1] else 2]
    assert chosen_recipes(CHOSEN, store) == [SEARCHED.changed(**best, seed=seed) for seed in (0, 1)]
    assert write_result(experiment, store, tmp_path, small=False)
    (arm,) = json.loads((tmp_path / "choice.json").read_text())["arms"]
    assert [one["change"] for one in arm["search"]["tries"]] == list(TRIES)
    assert (arm["search"]["tries"][1]["validation"], arm["search"]["tries"][1]["diverged"]) == (None, True)
    assert arm["search"]["chosen"] == TRIES.index(best)
    assert all("validation" not in one["recipe"]["data"] for one in arm["runs"])


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_network_that_diverges_does_not_stop_the_others(tmp_path, killed):
    """It is recorded once and not trained again; if the process was killed before that, it diverges again."""
    bad = Arm("bad", "bad", SMALL.changed(lr=1e30, clip=0.0), seeds=(0,), probes=("gates",))
    good = Arm("good", "good", SMALL, seeds=(1, 2), probes=("gates",))
    experiment, store = Experiment("both", "", "", (bad, good)), Store(tmp_path / "store")
    assert not run([experiment], store, StopAfter(12))
    (recipe,) = bad.recipes()
    assert store.summary(recipe)["diverged"]
    if killed:
        (store.folder(recipe).path / "summary.json").unlink()
    assert run([experiment], store)
    assert write_result(experiment, store, tmp_path, small=False)
    (result,) = load(tmp_path, [])
    lost, found = result.arms
    assert [one.summary["diverged"] for one in lost.runs] == [True]
    assert all("gates" in one.summary["probes"] for one in found.runs)


def test_a_measurement_of_another_experiment_stays(tmp_path):
    store = Store(tmp_path)
    arm = Arm("g", "gated", SMALL, seeds=(0,))
    for probes, thresholds in ((("gates",), ()), (("thresholds",), (0.1,)), (("thresholds",), (0.3,))):
        assert run([Experiment("one", "", "", (replace(arm, probes=probes),), thresholds=thresholds)], store)
    probes = store.summary(SMALL.changed(seed=0))["probes"]
    assert "gates" in probes
    assert [row["threshold"] for row in probes["thresholds"]] == [0.1, 0.3]


def test_what_takes_too_many_operations_is_not_chosen(tmp_path):
    sizes = replace(CHOSEN, tries=tuple({"units": units} for units in (3, 9, 5)))
    store = Store(tmp_path)
    assert run([Experiment("sizes", "", "", (sizes,))], store)
    found = outcome(sizes, store).as_dict(sizes)["tries"]
    small, large, middle = (one["operations"] for one in found)
    assert small < middle < large
    most = replace(sizes, most_operations=middle)
    assert outcome(most, store).chosen == (0 if found[0]["validation"] <= found[2]["validation"] else 2)
    assert outcome(replace(sizes, most_operations=1.0), store).chosen == 0  # the cheapest


def test_populations_share_a_shape_and_fit(tmp_path):
    every = wanted(EXPERIMENTS.values(), Store(tmp_path))
    parts = populations(every, lambda recipe: 10)
    assert sum(map(len, parts)) == len(every)
    for part in parts:
        assert len(part) <= 10
        assert len({str([getattr(one.recipe, name) for name in ALIKE]) for one in part}) == 1


def test_networks_that_begin_with_more_open_units_than_the_sparse_path_takes_train_by_themselves():
    narrow = SMALL.changed(units=220, gate={"mu": (1.0, 784.0), "sigma": 10.0}, options={"threshold": 0.01})
    recipes = [narrow.changed(gate={"sigma": sigma}) for sigma in (5.0, 10.0, 25.0, 50.0, 100.0)]
    parts = populations([Wanted(recipe) for recipe in recipes], lambda recipe: 10)
    assert sorted(sorted(one.recipe.gate["sigma"] for one in part) for part in parts) == [
        [5.0, 10.0], [25.0], [50.0], [100.0],
    ]  # fmt: skip
    odd = [{"mu": (500.0, 500.0)}, {"mu": 500.0}, {"sigma": (1.0, 2.0)}, {"sigma": 0.0}, {"sigma": 10}]
    alone = [Wanted(narrow.changed(gate=gate)) for gate in odd]
    assert sum(map(len, populations(alone, lambda recipe: 10))) == len(odd)
    open_ones = [Wanted(recipe.changed(options={"threshold": 0.0})) for recipe in recipes]
    assert len(populations(open_ones, lambda recipe: 10)) == 1


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_on_a_small_scale_the_tries_still_differ(name):
    for arm in EXPERIMENTS[name].at(TINY).arms:
        tried = [recipe for (recipe,) in arm.searched()]
        assert len(set(map(str, tried))) == len(tried)


def test_no_more_train_together_than_is_asked_for():
    cpu = torch.device("cpu")
    assert [room_on(cpu)(SMALL), room_on(cpu, 1)(SMALL), room_on(cpu, 50)(SMALL)] == [ON_A_CPU, 1, ON_A_CPU]


def test_small_networks_share_multiprocessors():
    """An H200 has 132 of them, and a batch of 100 takes 13 for each network of 110 units."""
    room = {
        units: room_among(132, EXPERIMENTS["small"].arms[0].recipe.changed(units=units)) for units in (4, 25, 64, 110)
    }
    assert room == {4: 40, 25: 40, 64: 20, 110: 10}
    for cell, count in {"gru": 40, "lstm": 40, "indrnn": 10, "skip-lstm": 10, "tcn": 10}.items():
        assert room_among(132, SMALL.changed(cell=cell, units=16, batch=100)) == count


def test_a_search_may_have_its_tries_in_another_form(tmp_path):
    """Such as biases for memories as long as its own sequences."""
    forms = tuple({**change, "chrono": 20.0} for change in TRIES)
    arm = replace(CHOSEN, tries=tuple({**change, "chrono": 40.0} for change in TRIES), search_tries=forms)
    assert [recipe.chrono for (recipe,) in arm.searched()] == [20.0] * len(TRIES)
    assert [recipe.chrono for recipe in arm.recipes(arm.tries[0])] == [40.0, 40.0]
    with pytest.raises(ValueError, match="odd: 'g' has another number of tries in its search"):
        Experiment("odd", "", "", (replace(arm, search_tries=forms[1:]),))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": "l"}, "odd: two arms have the key 'l'"),
        ({"key": "G LSTM"}, "odd: an arm's key is of a-z, 0-9, .* but one is 'G LSTM'"),
        ({"twin": "lstm"}, "odd: the twin of 'g' must be another arm's key, but is 'lstm'"),
        ({"twin": "g"}, "odd: the twin of 'g' must be another arm's key, but is 'g'"),
    ],
)
def test_arms_are_told_apart_by_their_keys(changes, message):
    gated, plain = PAIR_ARMS
    with pytest.raises(ValueError, match=message):
        Experiment("odd", "", "", (replace(gated, **changes), plain))


def test_a_stopped_experiment_goes_on_to_the_same_figures(tmp_path):
    assert run([PAIR], Store(tmp_path / "whole"))
    store = Store(tmp_path / "cut")
    assert not run([PAIR], store, StopAfter(4))
    assert not write_result(PAIR, store, tmp_path, small=False)
    assert not run([PAIR], store, StopAfter(3))
    assert run([PAIR], store)
    for recipe in (recipe for arm in PAIR.arms for recipe in arm.recipes()):
        whole, cut = (Store(tmp_path / name).summary(recipe) for name in ("whole", "cut"))
        assert whole["curve"]["test_error"] == cut["curve"]["test_error"]


def test_an_arm_that_is_finished_is_written_and_the_others_are_named(tmp_path):
    store = Store(tmp_path / "store")
    assert run([Experiment("half", "", "", PAIR.arms[1:])], store)
    assert write_result(PAIR, store, tmp_path, small=False)
    result = json.loads((tmp_path / "pair.json").read_text())
    assert [arm["key"] for arm in result["arms"]] == ["l"]
    assert [arm["name"] for arm in result["missing"]] == ["gated"]


def test_a_part_does_not_take_the_place_of_what_has_more(tmp_path):
    store = Store(tmp_path / "store")
    assert run([PAIR], store)
    assert write_result(PAIR, store, tmp_path, small=False)
    whole = json.loads((tmp_path / "pair.json").read_text())
    other = Store(tmp_path / "other")
    assert run([Experiment("half", "", "", PAIR.arms[1:])], other)
    assert not write_result(PAIR, other, tmp_path, small=True)  # of another scale
    assert json.loads((tmp_path / "pair.json").read_text()) == whole
    assert write_result(PAIR, other, tmp_path, small=False)
    both = json.loads((tmp_path / "pair.json").read_text())
    assert [arm["key"] for arm in both["arms"]] == ["g", "l"]
    assert both["arms"][0] == whole["arms"][0]
    assert [arm["key"] for arm in both["missing"]] == ["g"]
    assert run([PAIR], other)
    assert write_result(PAIR, other, tmp_path, small=False)
    assert json.loads((tmp_path / "pair.json").read_text())["missing"] == []


def test_who_shares_a_device_takes_part_of_the_time(tmp_path):
    store = Store(tmp_path)
    runner = Runner(store, make_fabric("cpu"), None, {"device": "cpu"}, {"device": "CPU"}, sharing=4)
    (one,) = wanted([Experiment("one", "", "", PAIR.arms[1:])], store)
    assert runner.train([one], Display(), lambda: False)
    summary = store.summary(one.recipe)
    whole = sum(summary["curve"]["seconds"]) + sum(summary["curve"]["test_seconds"])
    assert summary["trained"][0]["seconds"] == pytest.approx(whole / 4)


def test_a_network_that_goes_on_elsewhere_says_where_it_was_trained(tmp_path):
    store = Store(tmp_path)
    (one,) = wanted([Experiment("one", "", "", PAIR.arms[1:])], store)
    task_batches = math.ceil(one.recipe.data["train_size"] / one.recipe.batch)
    for name, stop in (("here", StopAfter(task_batches + 1)), ("here", StopAfter(1)), ("there", lambda: False)):
        runner = Runner(store, make_fabric("cpu"), None, {"device": "cpu"}, {"device": name}, sharing=2)
        done = runner.train([one], Display(), stop)
    assert done
    summary = store.summary(one.recipe)
    took = [sum(pair) / 2 for pair in zip(summary["curve"]["seconds"], summary["curve"]["test_seconds"], strict=True)]
    assert summary["trained"] == [
        {"machine": {"device": "here"}, "epochs": 1, "seconds": pytest.approx(took[0])},
        {"machine": {"device": "there"}, "epochs": one.recipe.epochs - 1, "seconds": pytest.approx(sum(took[1:]))},
    ]


def test_a_network_that_is_only_measured_anew_was_trained_where_it_was(tmp_path):
    store = Store(tmp_path)
    for probes, machine in (((), "here"), (("gates",), "there")):
        (one,) = wanted([Experiment("one", "", "", (Arm("g", "gated", SMALL, seeds=(0,), probes=probes),))], store)
        assert one.missing(store.summary(one.recipe))
        runner = Runner(store, make_fabric("cpu"), None, {"device": "cpu"}, {"device": machine})
        assert runner.train([one], Display(), lambda: False)
    summary = store.summary(one.recipe)
    assert "gates" in summary["probes"]
    assert [part["machine"] for part in summary["trained"]] == [{"device": "here"}]


def test_epochs_of_which_nobody_knows_are_nobodys():
    row = EpochRow(1, 0, 0, 0, 0, 0, seconds=3.0, test_seconds=1.0)
    history = [replace(row, epoch=epoch) for epoch in (1, 2, 3)]
    unknown, known = trained(history, [{"from_epoch": 3, "machine": {"device": "here"}, "sharing": 2}])
    assert (unknown["machine"]["device"], unknown["epochs"], unknown["seconds"]) == ("an unknown machine", 2, 8.0)
    assert (known["machine"]["device"], known["epochs"], known["seconds"]) == ("here", 1, 2.0)
    assert trained(history, []) == [{"machine": unknown["machine"], "epochs": 3, "seconds": 12.0}]


def test_a_broken_summary_is_named(tmp_path):
    store = Store(tmp_path)
    store.write_summary(SMALL, {})
    path = store.folder(SMALL).path / "summary.json"
    path.write_text("{")
    with pytest.raises(UserError, match=r"summary.json is not the summary of a network: .*; remove it"):
        store.summary(SMALL)
    (path.parent / "sessions.json").write_text("[")
    with pytest.raises(UserError, match=r"sessions.json is not a list of the sessions of training: .*; remove it"):
        store.sessions(SMALL)
