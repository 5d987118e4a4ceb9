"""A network's answers for new sequences, in Python."""

import numpy as np
import pytest
import torch

import glstm
from glstm.data import Sequences, Task
from glstm.errors import UserError
from glstm.predictions import answers

X = np.random.default_rng(0).normal(5, 2, (40, 20, 2))
SECONDS = 0.5 * np.arange(20)


@pytest.fixture(scope="module")
def model():
    return glstm.train(Task.from_arrays(X, X[:, 12, 0] > 5), units=6, epochs=2).model


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """From its folder: what it knows of its times is saved."""
    task = Task.from_arrays(X, X[:, 12, 0], times=SECONDS)
    return glstm.train(task, tmp_path_factory.mktemp("timed") / "run", units=6, epochs=2).model


def test_arrays_lists_tensors_and_sequences_have_the_same_answers(model):
    with torch.no_grad():
        expected = model(torch.from_numpy(X).float().transpose(0, 1)).softmax(-1)
    for x in (X, list(X), X.tolist(), torch.from_numpy(X), Sequences(list(X))):
        found = answers(model, x)
        assert found.classes == ("false", "true")
        assert np.allclose(np.stack(found.outputs), expected, atol=1e-6)


def test_lengths_may_differ(model):
    short = answers(model, [X[0], X[1][:7]])
    assert np.allclose(short.outputs, answers(model, X[:2], lengths=[20, 7]).outputs)
    assert np.allclose(short.outputs[1], answers(model, X[1:2, :7]).outputs[0], atol=1e-6)


def test_another_number_of_inputs_is_one_sentence(model):
    with pytest.raises(UserError, match="x has 1 input, and the network 2"):
        answers(model, X[..., :1])
    alone = glstm.SequenceModel(glstm.GLSTM(2, 4), torch.nn.Linear(4, 1))
    with pytest.raises(UserError, match="x has 1 input, and the network 2"):
        answers(alone, X[..., :1])


def test_times_that_are_forgotten_are_one_sentence(timed):
    with pytest.raises(UserError, match=r"x has no times, and the network was trained at times from 0 to 9\.5: give"):
        answers(timed, X)
    with torch.no_grad():
        expected = timed(torch.from_numpy(X).float().transpose(0, 1), SECONDS)
    assert np.allclose(np.stack(answers(timed, X, times=SECONDS).outputs), expected, atol=1e-5)


@pytest.mark.parametrize("reads", ["last", "every"])
def test_the_layout_of_the_layer_does_not_matter(reads):
    layers = [glstm.GLSTM(2, 4, batch_first=first, mu=(0, 9), sigma=3.0) for first in (False, True)]
    layers[1].load_state_dict(layers[0].state_dict())
    head = torch.nn.Linear(4, 1)
    each = [answers(glstm.SequenceModel(layer, head, reads=reads), X, times=[SECONDS] * 40) for layer in layers]
    for one, other in zip(each[0].outputs, each[1].outputs, strict=True):
        assert one.shape == other.shape
        assert np.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("factor", [1000, 60, 1 / 60, 1 / 1000])
def test_times_in_another_unit_are_doubted_once(timed, factor):
    with pytest.warns(glstm.GateWarning, match=r"are not like those from 0 to 9\.5 that the network has seen") as said:
        answers(timed, X, times=SECONDS * factor, batch=8)
    assert len(said) == 1
    assert said[0].filename == __file__


def test_times_from_another_start_are_doubted(timed):
    with pytest.warns(glstm.GateWarning, match="from the same start"):
        answers(timed, X, times=SECONDS + 1_700_000_000)
    with pytest.warns(glstm.GateWarning, match="in the same unit"):
        glstm.deploy(timed, SECONDS + 12)


@pytest.mark.parametrize("steps", [1, 2, 20])
def test_times_like_those_of_training_are_not_doubted(timed, steps):
    """Warnings are errors here."""
    answers(timed, X[:, :steps], times=SECONDS[:steps] + 0.1)
    glstm.deploy(timed, SECONDS[:steps])
