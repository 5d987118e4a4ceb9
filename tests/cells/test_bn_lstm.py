"""The batch-normalised LSTM against a plain loop written from its paper; statistics in training and evaluation."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from glstm import SequenceModel
from glstm.cells import bn_lstm
from glstm.cells.bn_lstm import BNLSTM
from glstm.data import Adding
from glstm.errors import UserError
from glstm.training import Population, Settings
from helpers import relative_error

STEPS, BATCH, INPUTS, UNITS = 7, 5, 2, 3


def make(training: bool, **options) -> Any:
    torch.manual_seed(1)
    cell = BNLSTM(INPUTS, UNITS, **options)
    for parameter in cell.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return cell.double().train(training)


def sequences(steps: int = STEPS, batch: int = BATCH, seed: int = 2) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(steps, batch, INPUTS, dtype=torch.float64, generator=draws)


def by_hand(cell: Any, x: Tensor, known: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All h, the last c, and the mean and variance (T, 9H) of each step; `known`: normalised by the averages."""
    layer = cell.layers[0]
    h = c = x.new_zeros(x.shape[1], UNITS)
    outputs, means, variances = [], [], []

    def normalised(values: Tensor, gamma: Tensor, columns: slice, row: int) -> Tensor:
        mean, variance = values.mean(0), values.var(0, unbiased=False)
        means[-1].append(mean)
        variances[-1].append(variance)
        if known:
            mean, variance = layer.mean[row, columns], layer.variance[row, columns]
        return gamma * (values - mean) / (variance + 1e-5).sqrt()

    for n, x_n in enumerate(x):
        row = min(n, cell.t_max - 1)
        means.append([])
        variances.append([])
        sums = normalised(x_n @ layer.weight_ih.T, layer.gamma_ih, slice(0, 4 * UNITS), row)
        sums = sums + normalised(h @ layer.weight_hh.T, layer.gamma_hh, slice(4 * UNITS, 8 * UNITS), row) + layer.bias
        i, f, g, o = sums.chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * (normalised(c, layer.gamma_c, slice(8 * UNITS, None), row) + layer.beta_c).tanh()
        outputs.append(h)
    mean, variance = (torch.stack([torch.cat(parts) for parts in each]) for each in (means, variances))
    return torch.stack(outputs), c, mean.detach(), variance.detach()


def test_training_is_the_papers_equations():
    cell, x = make(True), sequences()
    expected, c, mean, variance = by_hand(cell, x)
    output, (h_n, c_n, steps) = cell(x)
    assert relative_error(output, expected) < 1e-12
    assert relative_error(h_n[0], expected[-1]) < 1e-12
    assert relative_error(c_n[0], c) < 1e-12
    assert (steps == STEPS).all()
    weights = torch.randn_like(output)
    found = torch.autograd.grad((output * weights).sum(), list(cell.parameters()))
    wanted = torch.autograd.grad((expected * weights).sum(), list(cell.parameters()))
    for one, other in zip(found, wanted, strict=True):
        assert relative_error(one, other) < 1e-9
    layer = cell.layers[0]
    assert relative_error(layer.mean[:STEPS], mean) < 1e-12
    assert relative_error(layer.variance[:STEPS], variance) < 1e-12
    assert (layer.mean[STEPS:] == 0).all()
    assert (layer.variance[STEPS:] == 1).all()


def test_evaluation_uses_the_averages_of_training():
    cell = make(True, t_max=STEPS)
    for seed in (3, 4, 5):
        cell(sequences(seed=seed))
    before = {name: buffer.clone() for name, buffer in cell.named_buffers()}
    cell.eval()
    x = sequences()
    assert relative_error(cell(x)[0], by_hand(cell, x, known=True)[0]) < 1e-12
    assert all(torch.equal(buffer, before[name]) for name, buffer in cell.named_buffers())


def test_averages_are_plain_at_first_and_running_later():
    cell, seen = make(True, momentum=0.4), []
    for seed in range(4):
        seen.append(by_hand(cell, sequences(seed=seed))[2])
        cell(sequences(seed=seed))
    first = (seen[0] + seen[1]) / 2  # the third has a share of 0.4 and not of 1/3
    expected = 0.6 * (0.6 * first + 0.4 * seen[2]) + 0.4 * seen[3]
    assert relative_error(cell.layers[0].mean[:STEPS], expected) < 1e-12


def test_gradients_in_training():
    cell, x = make(True), sequences(4).requires_grad_()
    names, values = zip(*((one, value.detach().clone().requires_grad_()) for one, value in cell.named_parameters()))

    def run(x: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
        output, (_, c, _) = functional_call(cell, dict(zip(names, values, strict=True)), (x,))
        return output, c

    assert torch.autograd.gradcheck(run, (x, *values))


def test_steps_from_t_max_on_share_a_row():
    cell, x = make(True, t_max=4), sequences()
    mean = by_hand(cell, x)[2]
    cell(x)
    assert relative_error(cell.layers[0].mean, torch.cat((mean[:3], mean[3:].mean(0, keepdim=True)))) < 1e-12
    cell.eval()
    assert relative_error(cell(x)[0], by_hand(cell, x, known=True)[0]) < 1e-12


def test_steps_that_training_never_reached_use_its_last_ones():
    long, short = make(True, t_max=20), make(True, t_max=4)
    for cell in (long, short):
        cell(sequences(4))
        cell.eval()
    x = sequences(9)
    assert relative_error(long(x)[0], short(x)[0]) < 1e-12


def test_a_piece_goes_on_where_the_one_before_ended():
    """In training, too: the statistics of the second piece belong to its own steps."""
    whole, pieces, x = make(True), make(True), sequences()
    output, _ = whole(x)
    first, state = pieces(x[:3])
    second, _ = pieces(x[3:], state)
    assert relative_error(torch.cat((first, second)), output) < 1e-12
    for name, buffer in whole.named_buffers():
        assert relative_error(pieces.get_buffer(name), buffer) < 1e-12
    whole.eval()
    output, _ = whole(x)
    first, state = whole(x[:3])
    second, _ = whole(x[3:], tuple(part.clone() for part in state))
    assert relative_error(torch.cat((first, second)), output) < 1e-12


def test_padding_is_not_in_the_statistics():
    lengths = [7, 4, 7, 2, 4]
    x = sequences()
    packed_cell, padded_cell = make(True), make(True)
    packed = pack_sequence([x[:length, n] for n, length in enumerate(lengths)], enforce_sorted=False)
    output, _ = pad_packed_sequence(packed_cell(packed)[0])
    wild = x.clone()
    for n, length in enumerate(lengths):
        wild[length:, n] = 1e3
    padded = padded_cell(wild, lengths=torch.tensor(lengths))[0]
    for n, length in enumerate(lengths):
        assert relative_error(padded[:length, n], output[:length, n]) < 1e-12
    for name, buffer in packed_cell.named_buffers():
        assert relative_error(padded_cell.get_buffer(name), buffer) < 1e-12
    # Steps 5 to 7 are those of the first and the third sample alone.
    layer = packed_cell.layers[0]
    expected = (x[6, [0, 2]] @ layer.weight_ih.T).mean(0)
    assert relative_error(layer.mean[6, : 4 * UNITS], expected) < 1e-12
    assert layer.batches[:7].tolist() == pytest.approx([1, 1, 0.8, 0.8, 0.4, 0.4, 0.4])


def test_a_model_tells_the_cell_where_sequences_end():
    cell = make(True)
    model = SequenceModel(cell, torch.nn.Linear(UNITS, 1)).double().train()
    x, lengths = sequences(), torch.tensor([7, 4, 7, 2, 4])
    x[4:, 1], x[2:, 3] = 1e6, torch.nan
    assert model(x, lengths=lengths).isfinite().all()
    assert cell.layers[0].mean.abs().max() < 100


def test_a_single_sample_has_no_variance():
    cell = make(True)
    with pytest.raises(UserError, match="at least 2 samples"):
        cell(sequences(batch=1))
    assert cell.eval()(sequences(batch=1))[0].isfinite().all()


def test_steps_with_one_sample_left_leave_the_averages_alone():
    cell, last = make(True), torch.tensor([3, STEPS])
    cell(sequences(batch=2))
    before = {name: buffer[3:].clone() for name, buffer in cell.named_buffers()}
    assert cell(sequences(batch=2, seed=3), lengths=last)[0].isfinite().all()
    assert all(torch.equal(buffer[3:], before[name]) for name, buffer in cell.named_buffers())


def test_steps_are_counted_exactly_in_every_type():
    """A bfloat16 cannot count further than 256."""
    cell, x = make(False, t_max=300).bfloat16(), sequences(257).bfloat16()
    _, state = cell(x)
    assert (state[2] == 257).all()
    assert (cell(x[:1], state)[1][2] == 258).all()


def test_noise_follows_from_the_key_and_is_for_training_only():
    cell, same = make(True, noise=0.1), torch.zeros(6, 400, INPUTS, dtype=torch.float64)
    cell.key = torch.tensor(5)
    first = cell(same)[0]
    assert torch.equal(cell(same)[0], first)
    cell.key = torch.tensor(6)
    assert not torch.equal(cell(same)[0], first)
    drawn = cell.first_state("h", 4000, same)
    assert abs(float(drawn.std()) - 0.1) < 0.005
    assert abs(float(drawn.mean())) < 0.005
    cell.key = None
    assert not torch.equal(cell(same)[0], cell(same)[0])
    cell.eval()
    assert (cell.first_state("h", 2, same) == 0).all()


def test_the_published_start():
    cell = BNLSTM(INPUTS, UNITS)
    layer: Any = cell.layers[0]
    assert torch.equal(layer.weight_hh.chunk(4)[2], torch.eye(UNITS))
    i, f, _, o = layer.weight_hh.chunk(4)
    rest = torch.cat((i, f, o)).T
    assert torch.allclose(rest @ rest.T, torch.eye(UNITS), atol=1e-6)
    assert torch.allclose(layer.weight_ih.T @ layer.weight_ih, torch.eye(INPUTS), atol=1e-6)
    assert layer.bias.view(4, UNITS).mean(1).tolist() == [0, 1, 0, 0]
    assert all((gamma == 0.1).all() for gamma in (layer.gamma_ih, layer.gamma_hh, layer.gamma_c))


@pytest.mark.parametrize(
    ("options", "says"), [({"t_max": 0}, "t_max"), ({"momentum": 0}, "momentum"), ({"noise": -1.0}, "noise")]
)
def test_options_that_make_no_sense(options, says):
    with pytest.raises(UserError, match=says):
        BNLSTM(1, 2, **options)


def test_without_a_bias():
    cell, plain = make(True, bias=False), make(True)
    plain.load_state_dict(cell.state_dict(), strict=False)
    plain.layers[0].bias.data.zero_()
    assert relative_error(cell(sequences())[0], plain(sequences())[0]) < 1e-12


def test_networks_that_train_together_keep_their_own_averages():
    def trained(settings: list[Settings]) -> Population:
        task = Adding(6, train_size=40, test_size=5)
        made = lambda: SequenceModel(BNLSTM(2, UNITS, t_max=4, noise=0.1), torch.nn.Linear(UNITS, 1))  # noqa: E731
        population = Population(task, made, settings, together=True)
        population.train(1)
        return population

    settings = [Settings(batch=20, epochs=1, seed=seed) for seed in (0, 1)]
    both = trained(settings)
    for row, setting in enumerate(settings):
        alone = trained([setting])
        torch.testing.assert_close(both.stack.flat[row], alone.stack.flat[0], rtol=1e-5, atol=1e-6)
        for name, buffer in alone.models[0].named_buffers():
            torch.testing.assert_close(both.models[row].get_buffer(name), buffer, rtol=1e-5, atol=1e-6)
            assert buffer.abs().sum() > 0


def test_a_step_can_be_compiled():
    """On CUDA it is. What it keeps is no part of what is differentiated."""
    torch.manual_seed(0)
    state = torch.randn(UNITS, BATCH).T
    given = (torch.randn(4 * UNITS, BATCH).T, state, torch.randn(4 * UNITS, BATCH), torch.full((BATCH,), 1 / BATCH))
    given = [*(part.requires_grad_() for part in given[:3]), given[3], torch.randn(6, UNITS, requires_grad=True)]
    wanted = [part for part in given if part.requires_grad]
    found = []
    plain = bn_lstm._step.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
    for call in (plain, torch.compile(plain, fullgraph=True, dynamic=True, backend="aot_eager")):
        h, c, statistics = call(*given)
        assert not statistics.requires_grad
        assert h.stride() == c.stride() == (1, BATCH)
        found.append([h, c, statistics, *torch.autograd.grad((h * c).sum(), wanted)])
    for one, other in zip(*found, strict=True):
        assert relative_error(one, other) < 1e-5
