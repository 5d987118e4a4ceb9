"""What every published cell shares with torch.nn.LSTM: layouts, pieces of sequences, unequal lengths, gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from glstm import SequenceModel
from glstm.cells import CELLS
from glstm.cells.recurrent import Recurrent
from helpers import copies, relative_error

STEPS, BATCH, INPUTS, UNITS = 9, 4, 3, 5
# Options with which a small cell does all that a large one does.
OPTIONS: dict[str, dict[str, Any]] = {
    "clockwork": {"periods": (1, 2, 4)},
    "zoneout": {"z_c": 0.3, "z_h": 0.1},
    "bn-lstm": {"t_max": 6, "noise": 0.1},
    "r-lstm": {"anchors": 2, "reconstruct": 4, "truncate": 3},
    "indrnn": {"bound": 0.0},  # at the bound, the gradient is not that of the numbers nearby
    "tcn": {"kernel_size": 3},
    "lstm-jump": {"read": 1, "jumps": 2, "furthest": 2},
}
ONCE = {"clockwork", "bn-lstm", "skip-lstm", "skip-gru", "lstm-jump"}  # these refuse second derivatives
NAMES = [name for name, cell in CELLS.items() if isinstance(cell, type) and issubclass(cell, Recurrent)]

every_cell = pytest.mark.parametrize("name", NAMES)


def make(name: str, layers: int = 2, training: bool = False, **options: Any) -> Recurrent:
    torch.manual_seed(1)
    made = CELLS[name](INPUTS, UNITS, layers, **OPTIONS.get(name, {}), **options)
    assert isinstance(made, Recurrent)
    for parameter in made.parameters():  # a published start may have zeros, which would hide a mistake
        parameter.data += 0.1 * torch.randn_like(parameter)
    return made.double().train(training)


def sequences(steps: int = STEPS) -> Tensor:
    return torch.randn(steps, BATCH, INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def parts_of(state: Any) -> list[Tensor]:
    """As float64: some count steps in whole numbers."""
    return [part.double() for part in ([state] if isinstance(state, Tensor) else state)]


@every_cell
def test_layouts(name):
    cell, x = make(name), sequences()
    output, state = cell(x)
    assert output.shape == (STEPS, BATCH, UNITS)
    assert [part.shape for part in parts_of(state)] == [cell.shape_of(part, BATCH) for part in cell.state]
    first = make(name, batch_first=True)
    assert relative_error(first(x.transpose(0, 1))[0], output.transpose(0, 1)) < 1e-12
    alone, state_alone = cell(x[:, 1])
    assert relative_error(alone, output[:, 1]) < 1e-12
    for one, part in zip(parts_of(state_alone), parts_of(state), strict=True):
        assert relative_error(one, part[:, 1]) < 1e-12


@every_cell
@pytest.mark.parametrize("cut", [1, 4])
def test_a_sequence_in_pieces(name, cut):
    cell, x = make(name), sequences()
    output, state = cell(x)
    first, between = cell(x[:cut])
    second, end = cell(x[cut:], between)
    assert relative_error(torch.cat((first, second)), output) < 1e-12
    for one, part in zip(parts_of(end), parts_of(state), strict=True):
        assert relative_error(one, part) < 1e-12


@every_cell
def test_no_steps_keep_the_state(name):
    cell = make(name)
    _, state = cell(sequences())
    output, same = cell(sequences(0), state)
    assert output.shape == (0, BATCH, UNITS)
    for one, part in zip(parts_of(same), parts_of(state), strict=True):
        assert torch.equal(one, part)


@every_cell
def test_unequal_lengths(name):
    cell, x, lengths = make(name), sequences(), [5, STEPS, 1, 3]
    packed = pack_sequence([x[:length, n] for n, length in enumerate(lengths)], enforce_sorted=False)
    output, state = cell(packed)
    padded, found = pad_packed_sequence(output)
    assert found.tolist() == lengths
    for n, length in enumerate(lengths):
        alone, state_alone = cell(x[:length, n])
        assert relative_error(padded[:length, n], alone) < 1e-12
        for one, part in zip(parts_of(state_alone), parts_of(state), strict=True):
            assert relative_error(part[:, n], one) < 1e-12


@every_cell
@pytest.mark.parametrize("training", [False, True])
def test_padding_may_be_anything(name, training):
    """Also NaN, of which 0 times it is NaN: gradients are those of a padding with zeros."""
    lengths, found = [5, STEPS, 1, 3], []
    for filler in (0.0, torch.nan):
        cell, x = make(name, training=training), sequences()
        for n, length in enumerate(lengths):
            x[length:, n] = filler
        torch.manual_seed(3)
        output, state = cell(x, lengths=torch.tensor(lengths))
        real = torch.stack([output[:length, n].sum() for n, length in enumerate(lengths)])
        slopes = torch.autograd.grad(real.sum() + parts_of(state)[0].sum(), list(cell.parameters()), allow_unused=True)
        found.append([real.detach(), *(slope for slope in slopes if slope is not None)])
    for one, other in zip(*found, strict=True):
        assert one.isfinite().all()
        assert torch.equal(one, other)


@every_cell
def test_gradients(name):
    cell, x = make(name), sequences(4).requires_grad_()
    names, values = zip(*((one, value.detach().clone().requires_grad_()) for one, value in cell.named_parameters()))

    def run(x: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        output, state = functional_call(cell, dict(zip(names, values, strict=True)), (x,))
        return output, parts_of(state)[0]

    assert torch.autograd.gradcheck(run, (x, *values))


@every_cell
def test_second_derivatives_are_right_or_refused(name):
    """Along one direction of all weights, against a difference of first derivatives."""
    cell, x = make(name), sequences(4)
    weights = list(cell.parameters())
    along = [torch.randn_like(weight) for weight in weights]

    def first() -> tuple[Tensor, ...]:
        return torch.autograd.grad(cell(x)[0].square().sum(), weights, create_graph=True, materialize_grads=True)

    slope = torch.stack([(one * way).sum() for one, way in zip(first(), along, strict=True)]).sum()
    if name in ONCE:
        with pytest.raises(RuntimeError, match="has first derivatives only"):
            torch.autograd.grad(slope, weights, materialize_grads=True)
        return
    second = torch.autograd.grad(slope, weights, materialize_grads=True)
    ends = []
    for shift in (1e-5, -2e-5):
        for weight, way in zip(weights, along, strict=True):
            weight.data += shift * way
        ends.append(first())
    for found, high, low in zip(second, *ends, strict=True):
        assert torch.allclose(found, (high - low) / 2e-5, rtol=1e-4, atol=1e-6)


@every_cell
def test_a_folder_keeps_it(name, tmp_path):
    cell = make(name).float()
    model = SequenceModel(cell, torch.nn.Linear(UNITS, 2)).eval()
    model.save_pretrained(tmp_path / "model")
    x = sequences().float()
    assert torch.equal(SequenceModel.from_pretrained(tmp_path / "model")(x), model(x))


@every_cell
def test_copies_after_a_call_in_training(name):
    """What a call leaves behind, such as a loss with its graph, is no part of a copy."""
    cell, x = make(name, training=True), sequences()
    cell(x)
    copied = copies(cell)
    expected = cell.eval()(x)[0]
    for one in copied:
        assert one.training
        assert torch.equal(one.eval()(x)[0], expected)


class WithoutCount(Recurrent):
    def make_layer(self, inputs: int) -> torch.nn.Module:
        return torch.nn.Linear(inputs, self.hidden_size)


class WithoutRule(WithoutCount):
    def count_ops(self, steps: int, updates: float = 1.0) -> float:
        return steps


def test_a_cell_must_say_how_it_runs():
    with pytest.raises(TypeError, match="count_ops"):
        WithoutCount(INPUTS, UNITS)  # pyright: ignore[reportAbstractUsage]
    with pytest.raises(NotImplementedError, match="WithoutRule must have its own run_layer, or its own run_stack"):
        WithoutRule(INPUTS, UNITS)(sequences().float())


@every_cell
def test_operations_grow_with_steps(name):
    cell = make(name)
    assert 0 < cell.count_ops(100) < cell.count_ops(200)


@pytest.mark.parametrize(
    ("lengths", "says"),
    [
        ([9, 9], r"not torch.int64 of shape \(2,\)"),
        (torch.tensor([9, 90, 1, 1]), "and one is 90"),
        ([9, -1, 1, 1], "and one is -1"),
        ([9.5, 1, 1, 1], "not torch.float64"),
        (9, "not 9"),
    ],
)
def test_wrong_lengths_are_one_sentence(lengths, says):
    right = f"lengths must be a whole number from 0 to {STEPS} for each of the {BATCH} sequences, "
    with pytest.raises(ValueError, match=right + says):
        make("mingru")(sequences(), lengths=lengths)


def test_lengths_may_be_a_list():
    cell, lengths = make("mingru"), [5, 0, 1, STEPS]
    output, state = cell(sequences(), lengths=lengths)
    assert torch.equal(state, cell(sequences(), lengths=torch.tensor(lengths))[1])
    assert torch.equal(state[-1, 0], output[4, 0])
    assert (state[:, 1] == 0).all()


def test_packed_sequences_know_their_lengths():
    with pytest.raises(ValueError, match="knows its own lengths"):
        make("mingru")(pack_sequence([sequences()[:, 0]]), lengths=torch.tensor([STEPS]))


@every_cell
def test_one_sentence_about_what_does_not_fit(name):
    cell = make(name)
    with pytest.raises(ValueError, match=f"with D = {INPUTS}"):
        cell(torch.zeros(3, 2, INPUTS + 1, dtype=torch.float64))
    with pytest.raises(ValueError, match="must have shape"):
        cell(sequences(), tuple(torch.zeros(1, 1, 1) for _ in cell.state))
    for wrong in (3, "h", (3,), ()):
        with pytest.raises(TypeError, match="the state must be a tensor, or a tuple of its parts"):
            cell(sequences(), wrong)
    with pytest.raises(ValueError, match="dropout is a probability of at least 0 and below 1, not 'a'"):
        CELLS[name](INPUTS, UNITS, dropout="a")


def test_the_number_of_parts_in_words():
    part = torch.zeros(2, BATCH, UNITS, dtype=torch.float64)
    with pytest.raises(ValueError, match="the state has 1 part, h, and 2 are given"):
        make("mingru")(sequences(), (part, part))
    with pytest.raises(ValueError, match="the state has 2 parts, h, c, and 1 is given"):
        make("zoneout")(sequences(), part)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("mingru", {"positive": "no"}, "positive must be True or False, not 'no'"),
        ("tcn", {"small_start": "no"}, "small_start must be True or False"),
        ("zoneout", {"shared": "no"}, "shared must be True or False"),
        ("indrnn", {"bound": True}, "bound is the largest"),
        ("r-lstm", {"weight": True}, "weight, of the reconstruction"),
        ("chrono-lstm", {"t_max": "abc"}, "t_max must be a number of steps above 2, not 'abc'"),
    ],
)
def test_options_of_a_wrong_type(name, options, says):
    with pytest.raises(ValueError, match=says):
        CELLS[name](INPUTS, UNITS, **options)
