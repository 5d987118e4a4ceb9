import math
from itertools import combinations

import pytest
import torch

from glstm.data import Adding
from glstm.errors import UserError


def same(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("steps", [2, 3, 50])
def test_two_positions_are_marked_and_the_target_is_their_sum(split, steps):
    x, y = Adding(steps).batch(split, 64, seed=1, epoch=2, index=3)
    values, marks = x.unbind(-1)
    assert x.shape == (steps, 64, 2)
    assert y.shape == (64,)
    assert x.dtype == y.dtype == torch.float32
    assert ((values >= 0) & (values < 1)).all()
    assert ((marks == 0) | (marks == 1)).all()
    assert (marks.sum(0) == 2).all()
    torch.testing.assert_close(y, (values * marks).sum(0))


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_batch_is_the_same_whenever_it_is_made(split):
    task = Adding(20)
    first = task.batch(split, 8, seed=1, epoch=2, index=3)
    task.batch(split, 8, seed=5, epoch=6, index=7)
    torch.manual_seed(99)  # the global generator has no say
    assert same(task.batch(split, 8, seed=1, epoch=2, index=3), first)
    assert same(Adding(20).batch(split, 8, seed=1, epoch=2, index=3), first)


@pytest.mark.parametrize("changed", ["seed", "epoch", "index"])
def test_training_batches_differ_by(changed):
    where = {"seed": 1, "epoch": 2, "index": 3}
    (x, y), (other_x, other_y) = (
        Adding(20).batch("train", 8, **place) for place in (where, {**where, changed: where[changed] + 1})
    )
    assert not (x[..., 0] == other_x[..., 0]).any()
    assert not torch.equal(x[..., 1], other_x[..., 1])
    assert not torch.equal(y, other_y)


def test_seed_epoch_and_index_are_not_interchangeable():
    places = [(1, 2, 3), (2, 1, 3), (3, 2, 1), (1, 3, 2), (12, 3, 0), (1, 23, 0)]
    batches = [Adding(20).batch("train", 8, *place)[0] for place in places]
    assert not any(torch.equal(one, other) for one, other in combinations(batches, 2))


def test_test_split_knows_neither_seed_nor_epoch_and_is_not_the_training_split():
    task = Adding(20)
    first = task.batch("test", 8, seed=0, epoch=0, index=1)
    assert same(task.batch("test", 8, seed=4, epoch=5, index=1), first)
    assert not same(task.batch("test", 8, seed=0, epoch=0, index=2), first)
    assert not same(task.batch("train", 8, seed=0, epoch=0, index=1), first)


@pytest.mark.parametrize(("split", "sizes"), [("train", [8, 8, 5]), ("test", [8, 8])])
def test_an_epoch_has_exactly_the_samples_it_should(split, sizes):
    task = Adding(10, train_size=21, test_size=16)
    batches = list(task.batches(split, 8))
    assert task.batch_count(split, 8) == len(sizes)
    assert [x.shape[1] for x, _ in batches] == sizes
    assert [len(y) for _, y in batches] == sizes


def test_an_epoch_can_go_on_in_its_middle():
    task = Adding(10, train_size=21)
    whole, rest = (list(task.batches("train", 8, seed=3, epoch=4, start=start)) for start in (0, 1))
    assert len(rest) == 2
    assert all(map(same, rest, whole[1:]))


def test_every_position_is_marked_equally_often():
    steps, size = 50, 20_000
    marks = Adding(steps, train_size=size).batch("train", size, 0, 0, 0)[0][..., 1]
    share = 2 / steps
    five_sigma = 5 * math.sqrt(size * share * (1 - share))
    assert (marks.sum(1) - size * share).abs().max() < five_sigma


def test_every_pair_of_positions_is_equally_likely():
    size = 12_000
    marks = Adding(4, train_size=size).batch("train", size, 0, 0, 0)[0][..., 1]
    five_sigma = 5 * math.sqrt(size * 1 / 6 * 5 / 6)
    for one, other in combinations(range(4), 2):
        assert abs((marks[one] * marks[other]).sum().item() - size / 6) < five_sigma


def test_always_answering_one_gives_an_mse_of_a_sixth():
    size = 50_000
    task = Adding(10, test_size=size)
    _, y = task.batch("test", size, 0, 0, 0)
    answers = torch.ones(size, task.outputs)
    assert task.losses(answers, y).shape == (size,)
    assert task.losses(answers, y).mean().item() == pytest.approx(1 / 6, abs=0.005)
    assert torch.equal(task.errors(answers, y), task.losses(answers, y))
    assert y.mean().item() == pytest.approx(1, abs=0.01)


def test_the_right_answer_costs_nothing():
    task = Adding(10)
    _, y = task.batch("train", 8, 0, 0, 0)
    assert (task.losses(y[:, None], y) == 0).all()


def test_errors_are_shown_as_plain_numbers():
    assert Adding(10).format_error(0.00123) == "1.23e-03"


@pytest.mark.parametrize(
    ("steps", "message"),
    [(-1, "at least 1, not -1"), (0, "at least 1, not 0"), (1, "at least 2 steps, not 1"), (2.0, "whole number")],
)
def test_fewer_than_two_steps_are_refused(steps, message):
    with pytest.raises(UserError, match=message):
        Adding(steps)


def test_fresh_sequences_to_choose_on_are_in_no_other_set():
    task = Adding(20, train_size=10, test_size=10)
    batches, what = task.held_out(25, batch=10)
    assert what == "fresh sequences"
    assert [len(y) for _, y in batches] == [10, 10, 5]
    others = torch.cat([task.stage(0, 0)[1], task.test_samples(slice(0, 10))[1]])
    assert not torch.isin(torch.cat([y for _, y in batches]), others).any()


def test_the_test_set_is_the_same_however_it_is_cut():
    task = Adding(20, test_size=50)
    whole = torch.cat([x for x, _ in task.batches("test", 50)], 1)
    for batch in (7, 16):
        assert torch.equal(torch.cat([x for x, _ in task.batches("test", batch)], 1), whole)


def test_the_validation_set_is_a_set_of_its_own():
    task = Adding(20, validation=30)
    assert task.validation_size == 30
    x, y = task.validation_samples(slice(0, 30))
    assert torch.equal(y, (x[..., 0] * x[..., 1]).sum(0))
    others = (task.test_samples(slice(0, 30)), task.batch("train", 30, 0, 1, 0))
    assert not any(torch.equal(x, other) for other, _ in others)


def test_the_numbers_are_those_of_every_device():
    """By a hash of whole numbers: another device, or another version, has the same test set."""
    x, _ = Adding(1000).test_samples(slice(0, 2))
    assert x[:3, 0, 0].tolist() == [0.893388569355011, 0.6490276455879211, 0.03868156671524048]
    assert x[:, 0, 1].nonzero().flatten().tolist() == [318, 892]
