"""The paper's networks: a layer and a head."""

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
