"""The IndRNN: the paper's equation, number by number; statistics of batches; the bound; its start."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import batch_norm
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from glstm import SequenceModel
from glstm.cells.indrnn import NORMS, BatchNorm, IndRNN
from glstm.recipes import PRESETS
from helpers import relative_error

STEPS, BATCH, INPUTS, UNITS = 7, 4, 3, 5
LENGTHS = [5, STEPS, 1, 3]


def make(layers: int = 2, **options) -> IndRNN:
    torch.manual_seed(1)
    cell = IndRNN(INPUTS, UNITS, layers, **options).double()
    for parameter in cell.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return cell


def layers_of(cell: IndRNN) -> list[Any]:
    return list(cell.layers)


def sequences() -> Tensor:
    return torch.randn(STEPS, BATCH, INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def normalised(x: Tensor, norm: BatchNorm, training: bool) -> Tensor:
    """By torch's own, of all steps and samples."""
    averages = norm.running_mean.clone(), norm.running_var.clone()
    return batch_norm(x.flatten(0, 1), *averages, norm.weight, norm.bias, training).view_as(x)


def by_the_paper(cell: IndRNN, x: Tensor) -> Tensor:
    for layer in layers_of(cell):
        sums = torch.stack([torch.stack([layer.weight_ih @ sample for sample in step]) for step in x]) + layer.bias
        sums = normalised(sums, layer.norm, cell.training) if cell.norm == "before" else sums
        u = layer.weight_hh.clamp(-cell.bound, cell.bound) if cell.bound else layer.weight_hh
        h = torch.zeros_like(sums)
        for n in range(len(x)):
            for sample in range(x.shape[1]):
                for unit in range(cell.hidden_size):
                    before = h[n - 1, sample, unit] if n else 0.0
                    h[n, sample, unit] = max(float(sums[n, sample, unit] + u[unit] * before), 0.0)
        x = normalised(h, layer.norm, cell.training) if cell.norm == "after" else h
    return x


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("bound", [0.0, 0.8])
def test_the_equations(norm, training, bound):
    cell, x = make(norm=norm, bound=bound).train(training), sequences()
    with torch.no_grad():
        expected = by_the_paper(cell, x)  # first: a call in training moves the averages
        output, state = cell(x)
    assert relative_error(output, expected) < 1e-12
    assert torch.equal(state[0][-1], output[-1])


def test_running_averages_are_torchs():
    norm, theirs = BatchNorm(UNITS).double(), torch.nn.BatchNorm1d(UNITS).double()
    for n in range(3):
        x = (n + 1) * torch.randn(STEPS, BATCH, UNITS, dtype=torch.float64)
        assert relative_error(norm(x, None), theirs(x.flatten(0, 1)).view_as(x)) < 1e-12
    assert relative_error(norm.running_mean, theirs.running_mean) < 1e-12
    assert relative_error(norm.running_var, theirs.running_var) < 1e-12


@pytest.mark.parametrize("norm", ["after", "before"])
def test_padding_is_in_no_statistics(norm):
    """In training, padding may be anything: outputs, gradients and averages are those of the numbers that are there."""
    x, found = sequences(), []
    for filler in (0.0, 1e6):
        padded = x.clone()
        for sample, length in enumerate(LENGTHS):
            padded[length:, sample] = filler
        model = SequenceModel(make(norm=norm), torch.nn.Linear(UNITS, 2).double(), reads="mean").train()
        torch.nn.init.ones_(model.head.weight)
        torch.nn.init.zeros_(model.head.bias)
        y = model(padded, lengths=torch.tensor(LENGTHS))
        gradients = torch.autograd.grad(y.square().sum(), list(model.layer.parameters()))
        found.append([y.detach(), *gradients, *model.layer.buffers()])
    assert all(map(torch.equal, *found))


def test_packed_statistics_are_those_of_all_real_steps():
    cell, x = make(layers=1).train(), sequences()
    packed = pack_sequence([x[:length, n] for n, length in enumerate(LENGTHS)], enforce_sorted=False)
    plain, (_, memory) = make(layers=1, norm="none")(packed)  # the same h without the normalisation
    norm = layers_of(cell)[0].norm
    expected = batch_norm(plain.data, None, None, norm.weight, norm.bias, True)
    output, state = cell(packed)
    assert relative_error(output.data, expected) < 1e-12
    assert relative_error(state[1], memory) < 1e-12
    padded, _ = pad_packed_sequence(output)
    for sample, length in enumerate(LENGTHS):
        assert torch.equal(state[0][0, sample], padded[length - 1, sample])


def test_gradients_in_training():
    """Of the statistics, too; with and without padding."""
    norm, x = BatchNorm(2).double(), torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    valid = torch.arange(3)[:, None] < torch.tensor([3, 1, 2, 3])
    for ends in (None, valid):
        assert torch.autograd.gradcheck(lambda x, ends=ends: norm(x, ends), (x,))


def test_one_step_of_one_sample_has_no_variance():
    one = sequences()[:1, :1]
    with pytest.raises(ValueError, match="more than one step of one sample"):
        make().train()(one)
    for cell in (make().eval(), make(norm="none").train()):
        assert cell(one)[0].isfinite().all()


def test_a_weight_at_the_bound_may_only_come_back():
    cell = make(layers=1, norm="none", bound=0.5)
    u = layers_of(cell)[0].weight_hh
    u.data = torch.tensor([0.7, -0.7, 0.5, 0.2, -0.2], dtype=torch.float64)
    x = sequences().abs()
    layers_of(cell)[0].weight_ih.data.abs_()  # so that h is above 0
    for sign in (1, -1):  # a step against the gradient makes h, and with it u, smaller; or larger
        (gradient,) = torch.autograd.grad(sign * cell(x)[0].sum(), u)
        assert (gradient == 0).tolist() == ([False, True, False] if sign == 1 else [True, False, True]) + [False, False]


def test_the_start():
    torch.manual_seed(1)
    recipe = PRESETS["smnist-indrnn"]
    cell = IndRNN(1, recipe.units, recipe.layers, **recipe.options)
    bound = 2 ** (1 / 784)
    assert cell.bound == pytest.approx(bound)
    *others, last = (layer.weight_hh for layer in layers_of(cell))
    assert all(0 <= u.min() < 0.1 and 0.9 < u.max() <= bound for u in others)
    assert 1 / bound - 1e-7 <= last.min() < last.max() <= bound + 1e-7
    assert layers_of(cell)[1].weight_ih.abs().max() <= (6 / (65 * 128)) ** 0.5


def test_dropout_has_one_mask_for_all_steps():
    cell = make(dropout=0.5).train()
    cell.key = torch.tensor(5)
    x = torch.ones(STEPS, BATCH, UNITS, dtype=torch.float64)
    dropped = cell.drop(x, 0)
    assert torch.equal(dropped, dropped[0].expand_as(x))
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(cell.drop(x, 0), dropped)
    assert not torch.equal(cell.drop(x, 1), dropped)
    assert torch.equal(cell.eval().drop(x, 0), x)


def test_operations():
    assert IndRNN(3, 5).count_ops(10) == 10 * 5 * (2 * 3 + 2 + 5 + 2)
    assert IndRNN(3, 5, 2, norm="none").count_ops(10) == 10 * 5 * (2 * 3 + 7 + 2 * 5 + 7)


def test_wrong_options_are_named():
    with pytest.raises(ValueError, match="norm must be one of after, before, none, not 'layer'"):
        IndRNN(1, 2, norm="layer")
    with pytest.raises(ValueError, match="bound is the largest"):
        IndRNN(1, 2, bound=-1.0)
