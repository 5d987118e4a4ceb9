"""The Clockwork RNN against a plain loop written from its paper; its clocks in every type of number."""

from typing import Any

import pytest
import torch
from torch import Tensor

from glstm.cells import clockwork
from glstm.cells.clockwork import ClockworkRNN
from glstm.errors import UserError
from helpers import relative_error

STEPS, BATCH, INPUTS = 14, 2, 3
PERIODS, CLOCK_OF_UNIT = (1, 3, 4), [1, 1, 3, 3, 4]  # five units in three groups
UNITS = len(CLOCK_OF_UNIT)


def make(layers: int = 2, **options: Any) -> Any:
    torch.manual_seed(1)
    cell = ClockworkRNN(INPUTS, UNITS, layers, periods=PERIODS, **options).double()
    for parameter in cell.parameters():
        parameter.data = torch.randn_like(parameter)
    return cell


def sequences() -> Tensor:
    return torch.randn(STEPS, BATCH, INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def by_the_paper(cell: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """The top layer's h at all steps, and every layer's last."""
    last = []
    for layer in cell.layers:
        h, outputs = torch.zeros(BATCH, UNITS, dtype=torch.float64), []
        for n in range(1, len(x) + 1):
            new = h.clone()
            for unit, period in enumerate(CLOCK_OF_UNIT):
                if n % period:
                    continue
                heard = [other for other, slower in enumerate(CLOCK_OF_UNIT) if slower >= period]
                for sample in range(BATCH):
                    own = 0.0 if layer.bias is None else layer.bias[unit]
                    reads = sum(w * v for w, v in zip(layer.weight_ih[unit], x[n - 1, sample], strict=True))
                    hears = sum(layer.weight_hh[unit, other] * h[sample, other] for other in heard)
                    new[sample, unit] = torch.tanh(own + reads + hears)
            h = new
            outputs.append(h)
        x = torch.stack(outputs)
        last.append(h)
    return x, torch.stack(last)


@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_the_equations(bias):
    cell, x = make(bias=bias), sequences()
    expected, last = by_the_paper(cell, x)
    output, (h, steps) = cell(x)
    assert relative_error(output, expected) < 1e-13
    assert relative_error(h, last) < 1e-13
    assert (steps == STEPS).all()


@pytest.mark.parametrize("size", [1, 5])
@torch.no_grad()
def test_clocks_go_on_from_piece_to_piece(size):
    cell, x, state, found = make(), sequences(), None, []
    for piece in x.split(size):
        output, state = cell(piece, state)
        found.append(output)
    assert relative_error(torch.cat(found), by_the_paper(cell, x)[0]) < 1e-13


def test_weights_that_are_not_heard_do_not_matter():
    cell, x = make(1), sequences()
    cell(x)[0].sum().backward()
    heard = torch.tensor([[slower >= own for slower in CLOCK_OF_UNIT] for own in CLOCK_OF_UNIT])
    assert torch.equal(cell.layers[0].weight_hh.grad != 0, heard)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@torch.no_grad()
def test_clocks_are_exact_in_every_type(dtype):
    """A bfloat16 cannot count further than 256, nor hold a period of 259."""
    periods = (1, 3, 100, 259)
    cell: Any = ClockworkRNN(1, 4, bias=False, periods=periods)
    cell.layers[0].weight_ih.fill_(1)
    cell.layers[0].weight_hh.zero_()  # so that a unit holds tanh(x) of its last tick
    x = torch.randn(600, 1, 1).to(dtype)
    output, (_, steps) = cell.to(dtype)(x)
    for unit, period in enumerate(periods):
        ticks = [n - n % period for n in range(1, 601)]
        expected = torch.stack([torch.tanh(x[tick - 1, 0, 0]) if tick else x.new_zeros(()) for tick in ticks])
        assert torch.equal(output[:, 0, unit], expected)
    assert int(steps) == 600


@pytest.mark.parametrize("steps", [torch.full((1, BATCH, 1), 12 * 2**22 + 1), torch.ones(1, BATCH, 1)])
@torch.no_grad()
def test_clocks_are_exact_after_many_steps(steps):
    """Above 2^24 steps float32 would stand still. A count may be given as float numbers, too."""
    cell, x = make(1).float(), sequences().float()
    h = torch.zeros(1, BATCH, UNITS)
    expected, _ = cell(x, (h, torch.ones(1, BATCH, 1, dtype=torch.int64)))  # 12 is the clocks' common period
    output, (_, after) = cell(x, (h, steps))
    assert torch.equal(output, expected)
    assert torch.equal(after, steps.long() + STEPS)


def test_a_tick_can_be_compiled():
    """On CUDA it is."""
    given = [torch.randn(BATCH, UNITS, requires_grad=True) for _ in range(2)]
    steps, period = torch.tensor([[5], [11]]), torch.tensor(CLOCK_OF_UNIT)
    plain = clockwork._tick.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
    found = []
    for call in (plain, torch.compile(plain, fullgraph=True, dynamic=True, backend="aot_eager")):
        h, after = call(*given, steps, period)
        found.append([h, after, *torch.autograd.grad(h.square().sum(), given)])
    assert all(map(torch.equal, *found))


def test_operations():
    """Of five steps, units with a period of 1 compute 5 and hear all 4 units, those with 2 compute 2 and hear 2."""
    first = 2 * 5 * (2 * 3 + 2 * 4 + 5) + 2 * 2 * (2 * 3 + 2 * 2 + 5)
    second = 2 * 5 * (2 * 4 + 2 * 4 + 5) + 2 * 2 * (2 * 4 + 2 * 2 + 5)
    assert ClockworkRNN(3, 4, periods=(1, 2)).count_ops(5) == first
    assert ClockworkRNN(3, 4, 2, periods=(1, 2)).count_ops(5) == first + second


@pytest.mark.parametrize("periods", [2, "12", (), (0, 1), (2, 1), (1, 2.0), (1, True), (1, 2, 3, 4, 5), None])
def test_periods_that_make_no_sense(periods):
    with pytest.raises(UserError, match="periods are whole numbers of at least 1 in rising order, at most one"):
        ClockworkRNN(1, 4, periods=periods)
