"""Initialisers, each as the paper has it, on our layers and on torch's."""

import math
from typing import Any

import pytest
import torch

from glstm import GLSTM, init
from glstm.cells.gru import GRU

LAYERS = [
    lambda: GLSTM(3, 8, num_layers=2, bidirectional=True),
    lambda: torch.nn.LSTM(3, 8, num_layers=2),
    lambda: torch.nn.GRU(3, 8, num_layers=2),
    lambda: GRU(3, 8, num_layers=2),
]


@pytest.mark.parametrize("make", LAYERS)
def test_orthogonal_blocks_and_input_kernel(make):
    layer = make()
    init.orthogonal_(layer)
    for name, weight in layer.named_parameters():
        if name.startswith("weight_hh"):
            for block in weight.detach().split(8):
                assert torch.allclose(block @ block.T, torch.eye(8), atol=1e-5)
        if name.startswith("weight_ih"):  # as D x 4H, or D x 3H: orthonormal rows
            assert torch.allclose(weight.detach().T @ weight.detach(), torch.eye(weight.shape[1]), atol=1e-5)
        if name.startswith("bias"):
            assert (weight == 0).all()


@pytest.mark.parametrize("make", LAYERS)
def test_xavier_is_bounded_by_each_gates_own_fans(make):
    layer = make()
    init.xavier_(layer)
    for name, weight in layer.named_parameters():
        if name.startswith("weight"):
            bound = math.sqrt(6 / (8 + weight.shape[1]))
            assert weight.abs().max() <= bound
            assert weight.abs().max() > 0.8 * bound


@pytest.mark.parametrize("make", LAYERS)
def test_forget_bias_is_in_one_vector_only(make):
    layer = make()
    init.forget_bias_(layer, 1.0)
    for suffix in ("_l0", "_l1"):
        forget = [getattr(layer, f"{name}{suffix}").detach()[8:16] for name in ("bias_ih", "bias_hh")]
        assert (forget[0] + forget[1] == 1).all()
        assert (getattr(layer, f"bias_ih{suffix}")[:8] != 0).any()  # the others are left alone


def test_chrono_biases_of_a_gru_are_those_of_what_keeps():
    """torch's z multiplies the old state."""
    layer: Any = GRU(3, 4000)
    before = layer.bias_ih_l0.detach().clone(), layer.bias_hh_l0.detach().clone()
    init.chrono_(layer, 784)
    z = (layer.bias_ih_l0 + layer.bias_hh_l0).detach()[4000:8000]
    assert 1 <= z.exp().min() < 3
    assert 780 < z.exp().max() <= 783.001
    for now, then in zip((layer.bias_ih_l0, layer.bias_hh_l0), before, strict=True):
        assert torch.equal(now[:4000], then[:4000])
        assert torch.equal(now[8000:], then[8000:])


def test_chrono_draws_memories_up_to_t_max():
    layer = GLSTM(3, 4000)
    init.chrono_(layer, 784)
    i, f, _, _ = (layer.bias_ih_l0 + layer.bias_hh_l0).detach().chunk(4)
    assert torch.equal(i, -f)
    memory = f.exp()
    assert 1 <= memory.min() < 3
    assert 780 < memory.max() <= 783.001
    assert memory.mean() == pytest.approx(392, rel=0.05)  # U(1, 783) before the logarithm
    with pytest.raises(ValueError, match="t_max must be a number of steps above 2, not 2"):
        init.chrono_(layer, 2)


def test_the_layer_itself_is_wanted_in_any_precision():
    layer = GLSTM(3, 4, dtype=torch.bfloat16)
    init.orthogonal_(layer)
    block = layer.weight_hh_l0.detach()[:4].float()
    assert torch.allclose(block @ block.T, torch.eye(4), atol=0.05)
    for initialise in (init.orthogonal_, init.xavier_, init.forget_bias_):
        with pytest.raises(ValueError, match="takes the recurrent layer itself, not the Sequential around it"):
            initialise(torch.nn.Sequential(layer))


def test_without_biases_there_is_nothing_to_set():
    layer = GLSTM(3, 4, bias=False)
    init.orthogonal_(layer)
    with pytest.raises(ValueError, match="bias=False"):
        init.forget_bias_(layer)
