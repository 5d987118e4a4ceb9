"""Which path a call takes: the one for open units only, or that for all; and how much room it has."""

import pytest
import torch

from emulated import started
from glstm.ops import gated_lstm, gpu
from glstm.ops.gpu import choice, scan, sparse
from helpers import relative_error
from ops.test_gpu import EMULATED
from ops.test_gpu_sparse import final_h, operands


def test_emulated_both_paths_are_there(emulated):
    """Forced, or chosen by time: a call's schedule says which it was."""
    emulated(1)
    tensors = operands(12, 3, 1, 9)
    inputs = gpu.Inputs(**tensors, k_h=None)
    for path, taken in (("sparse", True), ("dense", False)):
        with choice.forcing(path):
            made = gpu.forward(inputs, "tanh", False, False, True)
        assert isinstance(made.schedule, sparse.Schedule) == taken
        assert made.tape.numel() % 2 == taken
    assert gpu.forward(inputs, "tanh", False, False, True).schedule is None  # so few samples: nobody waits
    with choice.forcing("sparse"):
        assert gpu.forward(inputs, "tanh", True, False, True).schedule is None
        per_sample = inputs._replace(k=inputs.k.unsqueeze(1).expand(-1, 3, -1))
        assert gpu.forward(per_sample, "tanh", False, False, True).schedule is None


def test_emulated_more_open_units_than_slots_take_the_dense_path(emulated):
    emulated(1)
    tensors = operands(6, 3, 1, 40)
    tensors["k"][3] = 0.5
    counts = sparse.schedule_of(tensors["k"].unsqueeze(0)).counts.tolist()
    assert choice.room_for(counts) is None
    with choice.forcing("sparse"):
        h_n, gradients = final_h(tensors, "cuda")
    right_h, right = final_h({name: part.double() for name, part in tensors.items()}, "reference")
    assert relative_error(h_n, right_h) < EMULATED["highest"]["outputs"]
    assert relative_error(gradients["w_hh"], right["w_hh"]) < EMULATED["highest"]["gradients"]


def test_emulated_too_little_room_gives_no_numbers(emulated):
    emulated(1)
    tensors = operands(12, 3, 1, 9)
    room = choice.room_for(sparse.schedule_of(tensors["k"].unsqueeze(0)).counts.tolist())
    with choice.planned(room) as plan:
        assert gated_lstm(*tensors.values(), backend="cuda", sequence=False).h_n.isfinite().all()
    assert plan.used
    tensors["w_hh"].requires_grad_()
    with choice.planned(sparse.Room(room.blocks, room.pairs - 1)):
        h_n = gated_lstm(*tensors.values(), backend="cuda", sequence=False).h_n
        assert h_n.isnan().all()
        assert torch.autograd.grad(h_n.sum(), tensors["w_hh"])[0].isnan().all()
    with choice.planned(None) as plan:
        assert gated_lstm(*tensors.values(), backend="cuda", sequence=False).h_n.isfinite().all()
    assert not plan.used


def test_emulated_a_call_guesses_its_room_from_the_one_before(emulated, monkeypatch):
    """It does not wait, and runs once; if the guess was too small, it runs again."""
    emulated(1)
    monkeypatch.setattr(choice, "WORTH_COUNTING", 1)
    monkeypatch.setattr(choice, "worthwhile", lambda *_: True)
    monkeypatch.setattr(choice, "_last_calls", {})
    tensors = operands(12, 3, 1, 9)
    first = gated_lstm(*tensors.values(), backend="cuda", sequence=False).h_n
    for share, runs in ((1, 1), (0.6, 2)):
        tensors["k"] = torch.where(tensors["k"] > 0, share * tensors["k"], 0 if share == 1 else 0.1)
        started.clear()
        found = gated_lstm(*tensors.values(), backend="cuda", sequence=False).h_n
        assert started.count("sparse_forward") == runs
        with choice.forcing("sparse"):
            assert torch.equal(found, gated_lstm(*tensors.values(), backend="cuda", sequence=False).h_n)
        assert torch.equal(found, first) == (share == 1)


H200 = {"multiprocessors": 132}


def counts_of(openness: float, steps=784, hidden=110):
    """Of a model whose units open once, at moments that are evenly spread."""
    opened = openness * hidden
    blocks = -(-round(opened + 1) // 8)
    return [2 * hidden, round(steps * opened), round(opened) + 2, steps * blocks, hidden, 0, 0, 0]


@pytest.mark.parametrize("taped", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_the_choice(taped, exact):
    shape = scan.Shape(100, 784, 100, 110, exact, 1)
    for openness in (0.02, 0.082):
        assert choice.worthwhile(shape, taped, counts=[counts_of(openness)] * 100, **H200)
    restless = [784, 784 * 25, 30, 784 * 4, 784 * 25, 0, 0, 0]  # units open and close at every step
    assert not choice.worthwhile(shape, taped, counts=[restless] * 100, **H200)


def test_rooms_grow_in_steps():
    counts = [counts_of(0.082)] * 3
    room = choice.room_to_grow(counts, None)
    needed = choice.room_for(counts)
    assert needed.pairs < room.pairs < 2 * needed.pairs
    assert room.blocks >= needed.blocks
    more = [[*counts[0][:1], counts[0][1] + 5, *counts[0][2:]]] * 3
    assert choice.room_to_grow(more, room) is room
    double = [[*counts[0][:1], 2 * counts[0][1], *counts[0][2:]]] * 3
    assert choice.room_to_grow(double, room).pairs > room.pairs
    assert choice.room_to_grow([[*counts[0][:2], 33, *counts[0][3:]]], room) is None
