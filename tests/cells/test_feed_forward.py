"""The network without recurrence: a fully connected layer that may also read step by step."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from glstm.cells.feed_forward import FeedForward
from glstm.data.images import PixelTask
from glstm.errors import UserError
from glstm.experiments import EXPERIMENTS
from glstm.recipes import make_model
from helpers import relative_error

T, B, D, H = 9, 4, 3, 5


def layer(**options) -> FeedForward:
    torch.manual_seed(1)
    return FeedForward(D, H, t_max=T, **options)


def dense(own: FeedForward, x: torch.Tensor) -> torch.Tensor:
    """By torch's own layer, in float64."""
    plain = nn.Linear(T * D, H).double()
    plain.load_state_dict(own.layers[0].state_dict())
    missing = x.new_zeros(T - len(x), *x.shape[1:])
    return plain(torch.cat((x, missing)).double().transpose(0, 1).flatten(1)).relu()


@pytest.mark.parametrize("steps", [1, 2, T])
@pytest.mark.parametrize("batch", [1, B])
def test_the_last_h_is_that_of_a_fully_connected_layer(steps, batch):
    own, x = layer(), torch.randn(steps, batch, D)
    output, (h, _, counted) = own(x)
    short = own(x, sequence=False)
    assert short[0] is None
    assert output.shape == (steps, batch, H)
    assert relative_error(output[-1].double(), dense(own, x)) < 1e-6
    assert torch.equal(h[0], output[-1])
    assert relative_error(short[1][0][0].double(), dense(own, x)) < 1e-6
    assert torch.equal(short[1][2], counted)
    for n in range(1, steps):  # the outputs before the last one
        assert relative_error(output[n - 1].double(), dense(own, x[:n])) < 1e-6


def test_gradients_are_the_same_both_ways_and_in_float64():
    own, x = layer(), torch.randn(T, B, D)
    weights = list(own.parameters())
    found = [torch.autograd.grad(h[0].pow(2).sum(), weights) for h in (own(x)[1][0], own(x, sequence=False)[1][0])]
    exact = layer().double()
    right = torch.autograd.grad(exact(x.double())[1][0].pow(2).sum(), list(exact.parameters()))
    for one, other, wanted in zip(*found, right, strict=True):
        assert relative_error(one.double(), wanted) < 1e-6
        assert relative_error(other.double(), wanted) < 1e-6


@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_sequence_may_come_in_pieces(at):
    own, x = layer(), torch.randn(T, B, D)
    whole, (h, *_) = own(x)
    first, state = own(x[:at])
    second, (last, *_) = own(x[at:], state)
    assert torch.allclose(torch.cat((first, second)), whole, atol=1e-6)
    assert torch.allclose(last, h, atol=1e-6)


def test_sequences_of_several_lengths_and_layouts():
    own, x, lengths = layer(batch_first=True), torch.randn(B, T, D), torch.tensor([9, 4, 1, 6])
    _, (packed, _, steps) = own(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    _, (told, *_) = own(x, lengths=lengths)
    for number, length in enumerate(lengths.tolist()):
        alone = own(x[number, :length])[1][0][0]
        assert torch.allclose(packed[0, number], alone, atol=1e-6)
        assert torch.allclose(told[0, number], alone, atol=1e-6)
    assert steps.flatten().tolist() == lengths.tolist()
    assert torch.allclose(own(x, sequence=False)[1][0], own(x)[1][0], atol=1e-6)


def test_the_last_state_alone_can_be_asked_for_in_every_way_of_calling():
    own, x = layer(), torch.randn(4, B, D)
    _, state = own(x)
    for call in ((x, state), (x[:, 0],), (pack_padded_sequence(x, torch.tensor([4, 3, 2, 1])),)):
        output, after = own(*call, sequence=False)
        assert output is None
        assert all(torch.equal(one, other) for one, other in zip(after, own(*call)[1], strict=True))
    lengths = torch.tensor([4, 3, 0, 1])
    assert own(x, lengths=lengths, sequence=False)[0] is None
    assert own(x[:, :0])[0].shape == (4, 0, H)


def test_no_steps_leave_the_state_as_it_was():
    own, x = layer(), torch.randn(2, B, D)
    _, state = own(x)
    output, after = own(x[:0], state)
    assert output.shape == (0, B, H)
    assert all(torch.equal(one, other) for one, other in zip(state, after, strict=True))
    assert torch.equal(own(x[:0])[1][0], own(x[:0], sequence=False)[1][0])


def test_more_steps_than_it_has_weights_for_are_refused():
    own, x = layer(), torch.randn(T + 1, B, D)
    for call in (lambda: own(x), lambda: own(x, sequence=False), lambda: own(x[:1], own(x[:T])[1])):
        with pytest.raises(UserError, match=f"for {T} steps here, and the sequence has {T + 1}"):
            call()
    for options, words in (({"t_max": 0}, "t_max is the most steps"), ({"num_layers": 2}, "one hidden layer")):
        with pytest.raises(UserError, match=words):
            FeedForward(D, H, **{"t_max": T, **options})


def test_its_operations_are_those_of_a_hidden_layer():
    assert layer().count_ops(T) == H * (2 * T * D + 6)


def test_the_experiments_networks_are_made_of_it():
    images, labels = torch.randint(0, 256, (20, 16, 1), dtype=torch.uint8), torch.arange(20) % 10
    task = PixelTask("smnist", (images, labels), (images[:4], labels[:4]))
    for arm in EXPERIMENTS["no-recurrence"].arms:
        own = make_model(arm.recipe, task).layer
        assert isinstance(own, FeedForward)
        assert (own.t_max, own.hidden_size) == (16, arm.recipe.units)
        assert {name for one in arm.tries for name in one} == {"lr", "data"}
