"""The Skip RNN against a plain loop written from its paper: values, straight-through gradients, counts, starts."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from glstm.cells.skip import SkipGRU, SkipLSTM, SkipRNN
from helpers import relative_error

STEPS, BATCH, INPUTS, UNITS = 12, 4, 3, 5
CELLS = (SkipLSTM, SkipGRU)


def make(kind: type[SkipRNN], layers: int = 1, offset: float = 0.0, training: bool = True, **options) -> SkipRNN:
    """With a gate that skips in another way for each sample: its bias starts at 1, where it seldom does."""
    torch.manual_seed(4)
    cell = kind(INPUTS, UNITS, layers, **options).double().train(training)
    nn.init.normal_(cell.gate.weight, std=1.5)
    for name, value in cell.layers.named_parameters():
        value.data *= 3 if name.endswith("weight_ih") else 1
    nn.init.constant_(cell.gate.bias, offset)
    return cell


def sequences(steps: int = STEPS) -> Tensor:
    return torch.randn(steps, BATCH, INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


class Round(torch.autograd.Function):
    """Whose gradient the paper takes to be 1."""

    @staticmethod
    def forward(ctx, value):
        return value.round()

    @staticmethod
    def backward(ctx, *gradients):
        return gradients[0]


def lstm_by_hand(layer, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    i, f, g, o = (x @ layer.weight_ih.T + h @ layer.weight_hh.T + layer.bias).chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru_by_hand(layer, x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    r_x, z_x, n_x = (x @ layer.weight_ih.T).chunk(3, 1)
    r_h, z_h, n_h = (h @ layer.weight_hh.T).chunk(3, 1)
    b_r, b_z, b_n, b_within = layer.bias.chunk(4)
    r, z = (r_x + r_h + b_r).sigmoid(), (z_x + z_h + b_z).sigmoid()
    n = (n_x + b_n + r * (n_h + b_within)).tanh()
    return ((1 - z) * n + z * h,)


def by_hand(cell: SkipRNN, x: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs (T, B, H) and u (T, B), by the equations of the paper; one gate for the stack, read from its top."""
    rule = lstm_by_hand if isinstance(cell, SkipLSTM) else gru_by_hand
    names = ["h_0", "c_0"] if isinstance(cell, SkipLSTM) else ["h_0"]
    states = [[getattr(layer, name).expand(x.shape[1], -1) for name in names] for layer in cell.layers]
    wish = torch.ones(x.shape[1], 1, dtype=x.dtype)
    outputs, gates = [], []
    for x_n in x:
        u = Round.apply(wish)
        below, candidates = x_n, []
        for layer, state in zip(cell.layers, states, strict=True):
            candidates.append(rule(layer, below, *state))
            below = candidates[-1][0]
        states = [
            [u * new + (1 - u) * old for new, old in zip(candidate, state, strict=True)]
            for candidate, state in zip(candidates, states, strict=True)
        ]
        step = (states[-1][-1] @ cell.gate.weight.T + cell.gate.bias).sigmoid()
        wish = u * step + (1 - u) * (wish + torch.minimum(step, 1 - wish))
        outputs.append(states[-1][0])
        gates.append(u)
    return torch.stack(outputs), torch.cat(gates, 1).T


def test_equations_and_straight_through_gradients():
    for kind in CELLS:
        for layers in (1, 2):
            cell, x = make(kind, layers), sequences()
            expected, gates = by_hand(cell, x)
            output, _ = cell(x)
            assert relative_error(output, expected) < 1e-12
            assert len(gates.T.unique(dim=0)) > 2, "samples should skip different steps"
            assert cell.share_of_updates is not None
            assert relative_error(cell.share_of_updates, gates.mean()) < 1e-12
            weights = torch.randn_like(expected)
            found = torch.autograd.grad((output * weights).sum() + 2 * cell.share_of_updates, list(cell.parameters()))
            wanted = torch.autograd.grad((expected * weights).sum() + 2 * gates.mean(), list(cell.parameters()))
            for one, other in zip(found, wanted, strict=True):
                assert other.abs().max() > 0
                assert relative_error(one, other) < 1e-10


def test_evaluation_computes_the_same_and_its_gate_has_no_gradient():
    for kind in CELLS:
        cell, x = make(kind, 2), sequences()
        expected, _ = cell(x)
        output, _ = cell.eval()(x)
        assert torch.equal(output, expected)
        slopes = torch.autograd.grad(output.sum(), cell.gate.weight, allow_unused=True)[0]
        assert slopes is None or slopes.abs().max() == 0


def test_a_skipped_step_copies_the_state_bit_for_bit():
    for kind in CELLS:
        cell, x = make(kind).float(), sequences().float()
        output, _ = cell(x)
        _, gates = by_hand(cell, x)
        same = (output[1:] == output[:-1]).all(-1)
        assert torch.equal(same, gates[1:] == 0)


def test_a_network_that_skips_nothing_is_torchs():
    x = sequences()
    torch.manual_seed(3)
    skip = SkipLSTM(INPUTS, UNITS).double()
    assert skip.gate.bias == 1
    nn.init.zeros_(skip.gate.weight)
    theirs = nn.LSTM(INPUTS, UNITS).double()
    layer: Any = skip.layers[0]
    values = {"weight_ih_l0": layer.weight_ih, "weight_hh_l0": layer.weight_hh, "bias_ih_l0": layer.bias}
    theirs.load_state_dict({**values, "bias_hh_l0": torch.zeros(4 * UNITS)})
    start = [layer.h_0.expand(1, BATCH, -1).contiguous(), layer.c_0.expand(1, BATCH, -1).contiguous()]
    assert relative_error(skip(x)[0], theirs(x, tuple(start))[0]) < 1e-12
    assert skip.share_of_updates == 1
    assert torch.equal(layer.bias[UNITS : 2 * UNITS], torch.ones(UNITS, dtype=torch.float64))

    skip = SkipGRU(INPUTS, UNITS).double()
    assert skip.gate.bias == 1
    nn.init.zeros_(skip.gate.weight)
    theirs = nn.GRU(INPUTS, UNITS).double()
    layer = skip.layers[0]
    bias = layer.bias.data + 0.1 * torch.randn_like(layer.bias)
    layer.bias.data.copy_(bias)
    within = torch.cat((torch.zeros(2 * UNITS), bias[3 * UNITS :]))
    values = {"weight_ih_l0": layer.weight_ih, "weight_hh_l0": layer.weight_hh, "bias_ih_l0": bias[: 3 * UNITS]}
    theirs.load_state_dict({**values, "bias_hh_l0": within})
    assert relative_error(skip(x)[0], theirs(x, layer.h_0.expand(1, BATCH, -1).contiguous())[0]) < 1e-12
    assert skip.share_of_updates == 1


def test_the_share_counts_no_padding():
    lengths = [5, STEPS, 1, 3]
    for kind in CELLS:
        cell, x = make(kind), sequences()
        _, gates = by_hand(cell, x)
        wanted = sum(gates[:length, n].sum() for n, length in enumerate(lengths)) / sum(lengths)
        cell(x, lengths=torch.tensor(lengths))
        assert relative_error(cell.share_of_updates, wanted) < 1e-12
        cell(pack_sequence([x[:length, n] for n, length in enumerate(lengths)], enforce_sorted=False))
        assert relative_error(cell.share_of_updates, wanted) < 1e-12


def test_operations_of_a_skipped_step_are_those_of_the_gate():
    lstm, gru = SkipLSTM(1, 110), SkipGRU(1, 110)
    assert lstm.count_ops(784, 0) == gru.count_ops(784, 0) == 784 * 4
    assert lstm.count_ops(784) == 784 * (110 * (8 + 880 + 29) + 225 + 4)
    assert gru.count_ops(784) == 784 * (110 * (6 + 660 + 21) + 225 + 4)
    assert SkipLSTM(1, 110, 2).count_ops(1, 0.5) == 0.5 * (110 * (8 + 880 + 29) + 110 * (1760 + 29) + 225) + 4


def test_the_papers_recipe():
    from glstm.recipes import preset

    for name in ("skip-lstm", "skip-gru"):
        recipe = preset("smnist", f"smnist-{name}")
        assert (recipe.cell, recipe.units, recipe.optimizer, recipe.lr) == (name, 110, "adam", 1e-4)
        assert (recipe.batch, recipe.epochs, recipe.clip) == (256, 600, 1.0)
        assert recipe.budget == 784 * 1e-4
        assert recipe.init is recipe.forget_bias is None
