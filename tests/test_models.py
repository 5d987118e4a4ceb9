"""The paper's networks: a layer and a head."""

import numpy as np
import pytest
import torch

from glstm import GLSTM, SequenceModel
from glstm.models import DropConnect, deep_head, linear_head


def test_the_head_reads_the_last_state_of_the_top_layer():
    layer = GLSTM(2, 4, num_layers=2)
    model = SequenceModel(layer, linear_head(4, 3))
    x = torch.randn(5, 6, 2)
    output, _ = layer(x)
    assert torch.equal(model(x), model.head(output[-1]))


def test_the_head_reads_both_directions():
    layer = GLSTM(2, 4, bidirectional=True)
    model = SequenceModel(layer, linear_head(8, 3))
    x = torch.randn(5, 6, 2)
    output, _ = layer(x)
    assert torch.equal(model(x), model.head(torch.cat((output[-1, :, :4], output[0, :, 4:]), -1)))


@pytest.mark.parametrize(
    ("layer", "width"),
    [
        (GLSTM(2, 4, bidirectional=True), 8),
        (torch.nn.LSTM(2, 4, proj_size=3), 3),
        (torch.nn.GRU(2, 4, num_layers=2), 4),
    ],
    ids=["both directions", "projected", "GRU"],
)
def test_a_head_of_another_width_is_refused(layer, width):
    for head in (linear_head(6, 3), torch.nn.Sequential(linear_head(6, 3), torch.nn.ReLU())):
        with pytest.raises(
            ValueError, match=f"the head reads 6 numbers, but the layer gives {width}: in_features={width}"
        ):
            SequenceModel(layer, head)
    SequenceModel(layer, torch.nn.LazyLinear(3))  # takes what comes


@pytest.mark.parametrize("reads", ["last", "every", "mean", "max"])
@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"bidirectional": True}], ids=str)
def test_lists_are_taken(reads, options):
    layer = GLSTM(2, 4, mu=(1, 5), sigma=2.0, **options)
    model = SequenceModel(layer, linear_head(8 if layer.bidirectional else 4, 3), reads=reads)
    x = torch.randn(5, 5, 2)
    times, lengths = [0.5, 1.0, 2.0, 3.0, 7.0], [5, 3, 1, 5, 2]
    found = model(x.tolist(), times, lengths)
    assert torch.equal(found, model(x, torch.tensor(times, dtype=torch.float64), torch.tensor(lengths)))
    for other in (tuple(lengths), np.array(lengths, np.uint16), np.array(lengths)[::-1].copy()[::-1]):
        assert torch.equal(found, model(x, times, other))


@pytest.mark.parametrize("reads", ["last", "every", "mean", "max"])
@pytest.mark.parametrize(
    ("lengths", "says"),
    [
        ([5, 0, 2], "and one is 0"),
        ([5, 6, 2], "and one is 6"),
        ([5, -1, 2], "and one is -1"),
        ([5.0, 1.0, 2.0], r"not torch.float64 of shape \(3,\)"),
        ([5, 2], r"not torch.int64 of shape \(2,\)"),
        (5, "not 5"),
        ([True, True, True], "not torch.bool"),
        (torch.tensor([5, 0, 2], dtype=torch.int32), "and one is 0"),
    ],
)
def test_wrong_lengths_are_one_sentence(reads, lengths, says):
    model = SequenceModel(GLSTM(2, 4), linear_head(4, 3), reads=reads)
    right = "lengths must be a whole number from 1 to 5 for each of the 3 sequences, "
    with pytest.raises(ValueError, match=right + says):
        model(torch.randn(5, 3, 2), lengths=lengths)


@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"bidirectional": True}], ids=str)
def test_padding_may_be_nan(options):
    """Gradients, too, are those of a padding with zeros."""
    layer = GLSTM(2, 4, mu=(1, 5), sigma=2.0, **options)
    model = SequenceModel(layer, linear_head(8 if layer.bidirectional else 4, 3), reads="mean")
    found = []
    for filler in (0.0, torch.nan):
        x = torch.ones(5, 2, 2)
        x[3:, 1] = filler
        y = model(x.transpose(0, 1) if layer.batch_first else x, lengths=[5, 3])
        found.append([y, *torch.autograd.grad(y.sum(), list(model.parameters()))])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("times", [None, np.arange(1, 101), np.arange(1, 101)[:, None].repeat(3, 1)])
@pytest.mark.parametrize("reads", ["last", "mean"])
def test_gates_do_not_fit_the_times_of_padding(times, reads):
    model = SequenceModel(GLSTM(2, 40), linear_head(40, 1), reads=reads)
    model(torch.randn(100, 3, 2), times, lengths=[10, 8, 9])
    assert model.layer.seen == (1, 10, model.layer.seen.steps)
    assert 1 <= model.layer.gate_in_time("_l0")["mu"].min() < model.layer.gate_in_time("_l0")["mu"].max() <= 10


def test_a_list_of_unequal_sequences_is_one_sentence():
    model = SequenceModel(GLSTM(1, 4), linear_head(4, 3))
    with pytest.raises(ValueError, match="equally long: pad sequences, and give lengths"):
        model([[[1.0], [2.0]], [[1.0]]])


def test_drop_connect_drops_weights_in_training_only():
    layer = DropConnect(400, 50, p=0.25)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.bias.zero_()
    x = torch.eye(400)
    seen = layer(x)  # the weights themselves, as used
    assert seen.unique().tolist() == pytest.approx([0, 4 / 3])
    assert (seen == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert (layer.eval()(x) == 1).all()


def test_the_deep_head_is_256_256_with_drop_connect_on_the_second():
    shapes = [tuple(p.shape) for p in deep_head(128, 10).parameters()]
    assert shapes == [(256, 128), (256,), (256, 256), (256,), (10, 256), (10,)]
    assert isinstance(deep_head(128, 10)[2], DropConnect)
