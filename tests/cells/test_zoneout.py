"""Zoneout against its paper's equations in a plain loop, and what its random masks are."""

import copy
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from emulated import started
from glstm.cells.zoneout import Zoneout
from glstm.errors import UserError
from glstm.recipes import preset
from helpers import relative_error

STEPS, BATCH, INPUTS, UNITS = 9, 4, 3, 5
KEY = torch.tensor(12345)


def make(layers: int = 1, training: bool = True, **options) -> Zoneout:
    torch.manual_seed(1)
    cell = Zoneout(INPUTS, UNITS, layers, **options).double().train(training)
    for parameter in cell.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return cell


def sequences(steps: int = STEPS, batch: int = BATCH) -> Tensor:
    return torch.randn(steps, batch, INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def plain_loop(layer, x: Tensor, d_c: Tensor, d_h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The paper's equations: d_c and d_h (T, B, H) are the shares of the old c and of the old h that are kept."""
    h = c = x.new_zeros(x.shape[1], UNITS)
    outputs = []
    for n in range(len(x)):
        i, f, g, o = (x[n] @ layer.weight_ih.T + h @ layer.weight_hh.T + layer.bias).chunk(4, 1)
        new = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = d_h[n] * h + (1 - d_h[n]) * torch.sigmoid(o) * torch.tanh(new)
        c = d_c[n] * c + (1 - d_c[n]) * new
        outputs.append(h)
    return torch.stack(outputs), h, c


def layer_of(cell: Zoneout) -> Any:
    return cell.layers[0]


def masks_of(cell: Zoneout, x: Tensor) -> tuple[Tensor, Tensor]:
    """What the first layer keeps, of c and of h."""
    k, k_h = cell._tables(cell.layers[0], x, None)
    return 1 - k, 1 - (k if k_h is None else k_h)


def differentiated(made: tuple[Tensor, ...], cell: Zoneout) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    loss = sum(
        (part * torch.randn(part.shape, dtype=torch.float64, generator=generator).to(part)).sum() for part in made
    )
    assert isinstance(loss, Tensor)
    return list(torch.autograd.grad(loss, list(cell.parameters())))


@pytest.mark.parametrize(
    "options", [{}, {"shared": True}, {"z_c": 0.5, "z_h": 0.05}, {"z_c": 0.0}, {"z_h": 0.0}], ids=str
)
@pytest.mark.parametrize("training", [True, False])
def test_the_papers_equations(training, options):
    cell, x = make(training=training, **options), sequences()
    cell.key = KEY
    output, (h, c) = cell(x)
    shape = (STEPS, BATCH, UNITS)
    if training:
        kept = masks_of(cell, x)
    else:
        kept = (torch.full(shape, cell.z_c, dtype=x.dtype), torch.full(shape, cell.z_h, dtype=x.dtype))
    right = plain_loop(cell.layers[0], x, *kept)
    for found, expected in zip((output, h[0], c[0]), right, strict=True):
        assert relative_error(found, expected) < 1e-12
    for found, expected in zip(differentiated((output, h[0], c[0]), cell), differentiated(right, cell), strict=True):
        assert relative_error(found, expected) < 1e-10


def test_single_precision_on_any_engine():
    """One mask goes to the engine, two to the reference; both follow the loop."""
    for shared, training in product((True, False), (True, False)):
        cell, x = make(training=training, shared=shared), sequences(40)
        cell.key = KEY
        right = plain_loop(cell.layers[0], x, *(part.expand(40, BATCH, UNITS) for part in both_of(cell, x)))
        single = copy.deepcopy(cell).float()
        single.key = KEY
        output, (h, c) = single(x.float())
        for found, expected in zip((output, h[0], c[0]), right, strict=True):
            assert relative_error(found, expected) < 1e-5


def both_of(cell: Zoneout, x: Tensor) -> list[Tensor]:
    return [part if part.dim() == 3 else part.unsqueeze(1) for part in masks_of(cell, x)]


def test_how_often_a_state_is_kept():
    cell, x = Zoneout(INPUTS, 50, 2, z_c=0.5, z_h=0.05), sequences(60, 20)
    cell.key = KEY
    drawn = [[1 - k for k in cell._tables(layer, x, None) if k is not None] for layer in cell.layers]
    tables = [table for own in drawn for table in own]
    assert len(tables) == 4
    for table, z in zip(tables, (0.5, 0.05) * 2, strict=True):
        assert table.unique().tolist() == [0, 1]
        spread = (z * (1 - z) / table.numel()) ** 0.5
        assert abs(table.mean().item() - z) < 4 * spread
        for axis in range(3):  # of a step, a sample, a unit
            share = table.mean([other for other in range(3) if other != axis])
            assert (share - z).abs().max() < 5 * (z * (1 - z) * len(share) / table.numel()) ** 0.5
    centred = [(table - table.mean()).flatten() for table in tables]
    for one, other in ((0, 1), (0, 2), (1, 3), (0, 3), (1, 2)):  # no mask tells anything of another one
        correlation = (centred[one] @ centred[other]) / (centred[one].norm() * centred[other].norm())
        assert abs(correlation.item()) < 4 / centred[one].numel() ** 0.5
    for axis in range(2):  # nor a step or a sample of the next one
        first, second = (tables[0].narrow(axis, start, tables[0].shape[axis] - 1) - 0.5 for start in (0, 1))
        assert abs((first * second).mean().item()) < 4 * 0.25 / first.numel() ** 0.5


def test_one_mask_for_both():
    cell, x = make(shared=True, z_c=0.5, z_h=0.5), sequences()
    cell.key = KEY
    k, k_h = cell._tables(cell.layers[0], x, None)
    assert k_h is None
    assert k.unique().tolist() == [0, 1]


def test_the_key_decides():
    cell, x = make(2), sequences()
    outputs = []
    for key, seed in ((1, 5), (1, 6), (2, 5)):
        cell.key = torch.tensor(key)
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        outputs.append(cell(x)[0])
        assert torch.equal(torch.get_rng_state(), before)  # torch's generator has no part in it
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_without_a_key_torchs_generator_decides():
    cell, x, outputs = make(), sequences(), []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        outputs.append(cell(x)[0])
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_evaluation_draws_nothing_and_is_the_mean():
    cell, x = make(training=False, z_c=0.3, z_h=0.2), sequences(1)
    cell.key = KEY
    state = torch.rand(1, BATCH, UNITS, dtype=torch.float64), torch.rand(1, BATCH, UNITS, dtype=torch.float64)
    _, (h, c) = cell(x, state)
    cell.train()
    sums = [torch.zeros_like(h), torch.zeros_like(c)]
    for key in range(2000):
        cell.key = torch.tensor(key)
        with torch.no_grad():
            _, drawn = cell(x, state)
        sums = [total + part for total, part in zip(sums, drawn, strict=True)]
    for total, mean in zip(sums, (h, c), strict=True):
        assert (total / 2000 - mean).abs().max() < 0.05


def test_padding_keeps_the_state_in_training():
    cell, x, lengths = make(2), sequences(), [5, STEPS, 1, 3]
    for shared in (False, True):
        cell.shared, cell.key = shared, KEY
        packed = pack_sequence([x[:length, n] for n, length in enumerate(lengths)], enforce_sorted=False)
        output, (h, _) = cell(packed)
        padded, _ = pad_packed_sequence(output)
        for n, length in enumerate(lengths):
            assert torch.equal(h[-1, n], padded[length - 1, n])


def test_a_sequence_in_pieces_goes_on_from_the_state():
    """Masks are another draw for each call, so in training the equation of one step is what is left to check."""
    cell, x = make(), sequences()
    cell.key = KEY
    _, state = cell(x)
    kept = masks_of(cell, x[:1])
    _, (h, c) = cell(x[:1], state)
    for new, old, mask in ((h, state[0], kept[1]), (c, state[1], kept[0])):
        assert torch.equal(new[0][mask[0] == 1], old[0][mask[0] == 1])
        assert (new[0] != old[0])[mask[0] == 0].all()


def test_no_zoneout_is_the_lstm():
    cell, x = make(z_c=0.0, z_h=0.0), sequences()
    lstm, layer = torch.nn.LSTM(INPUTS, UNITS).double(), layer_of(cell)
    for name, value in (("weight_ih", layer.weight_ih), ("weight_hh", layer.weight_hh), ("bias_ih", layer.bias)):
        getattr(lstm, f"{name}_l0").data.copy_(value)
    torch.nn.init.zeros_(lstm.get_parameter("bias_hh_l0"))
    assert relative_error(cell(x)[0], lstm(x)[0]) < 1e-12


def test_its_start():
    torch.manual_seed(0)
    layer = layer_of(Zoneout(2, 8))
    assert torch.allclose(layer.weight_hh.T @ layer.weight_hh, torch.eye(8), atol=1e-6)
    assert torch.allclose(layer.weight_ih.T @ layer.weight_ih, torch.eye(2), atol=1e-6)
    assert layer.bias.view(4, 8).mean(1).tolist() == [0, 1, 0, 0]
    assert Zoneout(2, 8, bias=False).layers[0].bias is None


def test_operations():
    plain = 100 * 8 * (8 * 2 + 8 * 8 + 29)
    assert Zoneout(2, 8, z_c=0, z_h=0).count_ops(100) == plain
    assert Zoneout(2, 8).count_ops(100) == plain + 6 * 100 * 8
    assert Zoneout(2, 8, 2, z_h=0).count_ops(100) == plain + 100 * 8 * (16 * 8 + 29) + 2 * 3 * 100 * 8


def test_its_recipe():
    recipe = preset("smnist", "smnist-zoneout")
    assert (recipe.cell, recipe.units, recipe.decay, recipe.lr, recipe.clip) == ("zoneout", 100, 0.5, 1e-3, 1)
    assert (recipe.epochs, recipe.batch, recipe.init, recipe.forget_bias) == (150, 100, None, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"z_c": 1.0}, "z_c is a probability of at least 0 and below 1, not 1.0"),
        ({"z_h": -0.1}, "z_h is a probability"),
        ({"z_h": "0.1"}, "z_h is a probability"),
        ({"z_c": float("nan")}, "z_c is a probability"),
        ({"z_c": 0.5, "shared": True}, "one mask for c and h has one probability, but z_c is 0.5 and z_h is 0.15"),
    ],
)
def test_what_is_no_option(options, message):
    with pytest.raises(UserError, match=message):
        Zoneout(2, 3, **options)


@pytest.mark.parametrize("ranks", [1, 4])
def test_separate_masks_on_the_cuda_engine(ranks, emulated):
    """Emulated: outputs and gradients of training, against the paper's equations."""
    emulated(ranks)
    cell, x = make(z_c=0.5, z_h=0.2), sequences()
    cell.key = KEY
    single = copy.deepcopy(cell).float()
    single.key = KEY
    right = plain_loop(cell.layers[0], x, *masks_of(cell, x))
    output, (h, c) = single(x.float())
    assert "forward" in started
    found = output, h[0], c[0]
    for one, expected in zip(found, right, strict=True):
        assert relative_error(one, expected) < 1e-5
    for one, expected in zip(differentiated(found, single), differentiated(right, cell), strict=True):
        assert relative_error(one, expected) < 1e-4


@pytest.mark.parametrize("shared", [False, True])
def test_networks_that_train_together_have_their_own_masks(shared):
    """As the trainer runs them: torch.vmap over their values and keys, each as it would be alone."""
    cells, x, keys = [make(2, shared=shared) for _ in range(3)], sequences(), torch.tensor([5, 6, 5])
    for number, cell in enumerate(cells):
        for parameter in cell.parameters():
            parameter.data *= 1 + 0.1 * number
    values = {
        name: torch.stack([cell.get_parameter(name).detach() for cell in cells])
        for name, _ in cells[0].named_parameters()
    }

    def loss(values: dict[str, Tensor], key: Tensor) -> Tensor:
        cells[0].key = key
        return functional_call(cells[0], values, (x,))[0].square().sum()

    found = torch.vmap(torch.func.grad(loss))(values, keys)
    for number, cell in enumerate(cells):
        cell.key = keys[number]
        right = torch.autograd.grad(cell(x)[0].square().sum(), list(cell.parameters()))
        for (name, _), expected in zip(cell.named_parameters(), right, strict=True):
            assert relative_error(found[name][number], expected) < 1e-10
