"""The temporal convolutional network: the paper's equations, tap by tap; torch's convolutions; its state; dropout."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, pad

from glstm.cells.tcn import TCN
from glstm.recipes import PRESETS
from helpers import relative_error

STEPS, BATCH, INPUTS, UNITS = 11, 3, 2, 4


def make(layers: int = 3, inputs: int = INPUTS, **options) -> TCN:
    torch.manual_seed(1)
    cell = TCN(inputs, UNITS, layers, **{"kernel_size": 3, **options}).double().eval()
    for parameter in cell.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return cell


def layers_of(cell: TCN) -> list[Any]:
    return list(cell.layers)


def sequences(inputs: int = INPUTS) -> Tensor:
    return torch.randn(STEPS, BATCH, inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def weight_of(convolution) -> Tensor:
    v = convolution.direction
    return torch.stack([g * own / own.norm() for g, own in zip(convolution.length.flatten(), v, strict=True)])


def convolved(convolution, x: Tensor, dilation: int) -> Tensor:
    """Every tap by itself; what lies before the first step is 0."""
    weight, taps = weight_of(convolution), convolution.direction.shape[2]
    y = convolution.bias.expand(*x.shape[:2], -1).clone()
    for n in range(len(x)):
        for tap in range(taps):
            at = n - (taps - 1 - tap) * dilation
            if at >= 0:
                y[n] += x[at] @ weight[:, :, tap].T
    return torch.relu(y)


def by_the_paper(cell: TCN, x: Tensor) -> Tensor:
    for level, layer in enumerate(layers_of(cell)):
        y = convolved(layer.second, convolved(layer.first, x, 2**level), 2**level)
        aside = x if layer.aside is None else x @ layer.aside.weight.T + layer.aside.bias
        x = torch.relu(y + aside)
    return x


@pytest.mark.parametrize("inputs", [INPUTS, UNITS])
def test_the_equations(inputs):
    cell, x = make(inputs=inputs), sequences(inputs)
    assert (layers_of(cell)[0].aside is None) == (inputs == UNITS)
    with torch.no_grad():
        output, state = cell(x)
        assert relative_error(output, by_the_paper(cell, x)) < 1e-13
    assert torch.equal(state[0][-1], output[-1])


def test_a_convolution_is_torchs():
    cell, x = make(), sequences()
    convolution, dilation = layers_of(cell)[0].first, 4
    back = 2 * dilation
    seen = pad(x.permute(1, 2, 0), (back, 0))
    theirs = conv1d(seen, weight_of(convolution), convolution.bias, dilation=dilation).permute(2, 0, 1)
    assert relative_error(convolution(seen.permute(2, 0, 1), dilation, STEPS), theirs) < 1e-13


def test_the_start_is_that_of_torchs_convolution():
    torch.manual_seed(1)
    theirs = nn.Conv1d(INPUTS, UNITS, 3)
    torch.manual_seed(1)
    ours = layers_of(TCN(INPUTS, UNITS, kernel_size=3))[0].first
    assert torch.equal(ours.direction, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)
    assert relative_error(weight_of(ours), theirs.weight) < 1e-6


def test_the_start_that_the_paper_states():
    torch.manual_seed(1)
    (layer,) = layers_of(TCN(100, 50, small_start=True))
    for weight in (weight_of(layer.first), weight_of(layer.second), layer.aside.weight):
        assert weight.std().item() == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize("layers", [1, 2])
def test_how_far_it_looks_back(layers):
    cell = make(layers)
    x = torch.randn(40, 1, INPUTS, dtype=torch.float64, requires_grad=True)
    (slopes,) = torch.autograd.grad(cell(x)[0][-1].sum(), x)
    seen = slopes.abs().sum((1, 2)).nonzero().flatten()
    assert cell.reach == 1 + 2 * 2 * (2**layers - 1)
    assert len(x) - int(seen[0]) <= cell.reach


def test_a_state_is_as_wide_as_each_level_looks_back():
    _, (h, first, second) = make(layers=3)(sequences())
    assert h.shape == (3, BATCH, UNITS)
    assert first.shape == (1, BATCH, 2 * (1 * INPUTS + 2 * UNITS + 4 * UNITS))
    assert second.shape == (1, BATCH, 2 * 7 * UNITS)


def test_step_by_step():
    cell, x = make(), sequences()
    output, end = cell(x)
    state, found = None, []
    for step in x:
        one, state = cell(step.unsqueeze(0), state)
        found.append(one)
    assert relative_error(torch.cat(found), output) < 1e-13
    assert all(relative_error(one, other) < 1e-13 for one, other in zip(state, end, strict=True))


def test_dropout_drops_channels():
    """For all steps, scaled, by the key. Of a second convolution that gives 3 everywhere, 0 and 6 are left."""
    cell = make(layers=1, inputs=UNITS, dropout=0.5).train()
    layer = layers_of(cell)[0]
    layer.second.length.data.zero_()
    layer.second.bias.data.fill_(3.0)
    x = torch.zeros(STEPS, 50, UNITS, dtype=torch.float64)
    cell.key = torch.tensor(7)
    output, _ = cell(x)
    assert set(output.unique().tolist()) == {0.0, 6.0}
    assert torch.equal(output, output[0].expand_as(output))
    assert 0.3 < float((output[0] == 0).double().mean()) < 0.7
    assert torch.equal(cell(x)[0], output)
    cell.key = torch.tensor(8)
    assert not torch.equal(cell(x)[0], output)
    assert set(cell.eval()(x)[0].unique().tolist()) == {3.0}


def test_no_two_places_drop_the_same():
    cell = make(layers=2, inputs=UNITS, dropout=0.5).train()
    cell.key = torch.tensor(7)
    seen = []
    for place in range(4):
        layer = layers_of(cell)[place // 2]
        convolution = layer.second if place % 2 else layer.first
        past = torch.zeros(20, UNITS * 2 * 2 ** (place // 2), dtype=torch.float64)
        convolution.bias.data.fill_(1.0)
        convolution.length.data.zero_()
        seen.append(cell._convolved(convolution, place, torch.zeros(1, 20, UNITS, dtype=torch.float64), past, None)[0])
    assert not any(torch.equal(one, other) for n, one in enumerate(seen) for other in seen[:n])


def test_operations():
    """Two convolutions of 3 taps, three relus, the sum with the input, which has another width in the first level."""
    first = 2 * 3 * 2 + 2 * 3 * 4 + 15 + 1 + 2 * 2
    second = 2 * 3 * 4 + 2 * 3 * 4 + 15 + 1
    assert make(layers=2).count_ops(10) == 10 * 4 * (first + second)


def test_the_preset_sees_a_whole_image():
    recipe = PRESETS["smnist-tcn"]
    cell = TCN(1, recipe.units, recipe.layers, **recipe.options)
    assert cell.reach > 784
    assert sum(parameter.numel() for parameter in cell.parameters()) > 60_000


def test_wrong_options_are_named():
    with pytest.raises(ValueError, match="kernel_size is a whole number of at least 2, not 1"):
        TCN(1, 2, kernel_size=1)
    with pytest.raises(ValueError, match="30 are the most, not 31"):
        TCN(1, 2, 31)
