"""A population whose step computes open units only: it counts them before every step, on an emulated device."""

import pytest
import torch

from glstm.ops.gpu import choice
from glstm.training import population as population_module
from glstm.training import room as room_module
from glstm.training.room import OpenUnits
from helpers import relative_error
from small_runs import SMALL, population

THRIFTY = SMALL.changed(
    data={"steps": 12, "train_size": 8, "test_size": 3},
    gate={"mu": (1.0, 12.0), "sigma": 1.0},
    batch=4,
    options={"threshold": 0.05, "backend": "cuda"},
)
RECIPES = [THRIFTY, THRIFTY.changed(seed=1, lr=1e-3), THRIFTY.changed(seed=2, gate={"sigma": 0.5})]


@pytest.fixture
def without_graphs(emulated, monkeypatch):
    """On the CPU, with steps instead of graphs; the sparse path is taken wherever it can be."""
    emulated(1)
    made = []
    monkeypatch.setattr(population_module, "captured", lambda step, state: made.append(step) or planned(step))
    monkeypatch.setattr(room_module, "captured", lambda step, state: step)
    monkeypatch.setattr(choice, "dense", lambda *_: float("inf"))
    monkeypatch.setattr(choice, "WORTH_COUNTING", 0)
    monkeypatch.setattr(room_module, "FEWEST", 0)
    return made


def planned(step):
    """A graph replays the calls as they were planned when it was captured."""
    room = choice._plans[-1].room
    choice._plans[-1].used = room is not None

    def replay():
        with choice.planned(room) as plan:
            step()
        assert plan.used == (room is not None)

    return replay


def thrifty(recipes):
    found = population(recipes, together=True)
    found.one_graph = True
    found._may_skip = OpenUnits.known(found.models, found.stack.times, found.dtype)
    return found


def test_a_step_computes_open_units_only_and_has_room_when_gates_widen(without_graphs):
    plain = [recipe.changed(options={"threshold": 0.05, "backend": "reference"}) for recipe in RECIPES]
    skipping, right = thrifty(RECIPES), population(plain)
    assert skipping._may_skip
    rooms = []
    for epoch in (1, 2):
        losses, expected = skipping.train(epoch), right.train(epoch)
        assert losses == pytest.approx(expected, rel=1e-4)
        assert relative_error(skipping.stack.flat, right.stack.flat) < 1e-3
        rooms.append(skipping._rooms[4])
        for one in (*skipping.models, *right.models):
            one.layer.sigma_l0.data.mul_(4)
    first, second = rooms
    assert second.pairs > first.pairs
    assert len(without_graphs) == 2


def test_where_all_units_are_open_it_computes_all(without_graphs):
    wide = [recipe.changed(units=40, gate={"sigma": 90.0}) for recipe in RECIPES[:1]]
    found = thrifty(wide)
    found.start(1)
    found.step()
    assert found._rooms == {4: None}


@pytest.mark.parametrize("spare", [0, 1])
def test_with_few_samples_it_computes_all(without_graphs, monkeypatch, spare):
    found = thrifty(RECIPES)
    samples = len(RECIPES) * THRIFTY.batch
    monkeypatch.setattr(room_module, "FEWEST", samples + spare)
    found.start(1)
    found.step()
    assert (found._rooms[THRIFTY.batch] is None) == bool(spare)


def test_what_cannot_be_counted_beforehand(without_graphs):
    def known(*recipes):
        found = population(list(recipes))
        return OpenUnits.known(found.models, found.stack.times, found.dtype)

    assert known(*RECIPES)
    assert not known(THRIFTY.changed(options={"threshold": 0.0}))  # nothing is ever 0
    assert not known(SMALL.changed(cell="lstm"))
    assert not known(THRIFTY, THRIFTY.changed(units=9))
    assert not known(THRIFTY.changed(options={"threshold": 0.05, "backend": "reference"}))
    found = population([THRIFTY])
    assert not OpenUnits.known(found.models, None, torch.float32)
    assert not OpenUnits.known(found.models, found.stack.times, torch.float64)
