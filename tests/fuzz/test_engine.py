"""Drawn layers against the same in float64: options, gates, backends, paths, lengths, times, and odd tensors.

Each case has a number, and is drawn from it: a failure says which. GLSTM_FUZZ_CASES=2000 is what `make fuzz` draws.
"""

import copy
import os
import random
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import glstm
from glstm.errors import GateWarning
from glstm.ops import cpu, gated_lstm
from helpers import operator_inputs

CASES = int(os.environ.get("GLSTM_FUZZ_CASES", "200"))
AT_ONCE = 50  # cases in one test
FORWARD, BACKWARD = 1e-4, 1e-3  # errors allowed, relative to 1 or to the largest number; mistakes are far larger
PATHS = (None, None, "dense", "together", "one by one")


@dataclass(frozen=True)
class Case:
    layer: glstm.GatedLSTM
    x: Tensor
    hx: tuple[Tensor, Tensor] | None
    times: Tensor | None
    lengths: Tensor | None
    path: str | None
    threads: int
    gradients: bool
    sequence: bool


def drawn(number: int) -> Case:
    draw = random.Random(number)
    torch.manual_seed(number)
    steps = draw.choice((0, 1, 2, 3, 4, 5, 7, 8, 9, 17))
    batch, width = draw.choice((0, 1, 1, 2, 3, 5, 9, 17)), draw.choice((1, 2, 3, 8, 17))
    hidden = draw.choice((1, 2, 4, 7, 8, 9, 16, 17, 33))
    layer = layer_of(draw, width, hidden, steps)
    per_sample, first = draw.random() < 0.3, layer.batch_first
    gaps = torch.rand((steps, batch) if per_sample else (steps,)) + 0.05
    times = None if draw.random() < 0.4 else gaps.cumsum(0) * draw.choice((0.5, 1, 2)) + draw.choice((0.0, 0.0, 5.0))
    if times is not None and per_sample and first:
        times = times.T
    x = odd(values(draw, (batch, steps, width) if first else (steps, batch, width)), draw)
    rows = layer.num_layers * layer.num_directions
    h_0, c_0 = torch.randn(2, rows, batch, hidden)
    hx = None if draw.random() < 0.5 else (odd(h_0, draw), c_0)
    lengths = torch.randint(1, steps + 1, (batch,)) if steps and batch and draw.random() < 0.3 else None
    if draw.random() < 0.3:
        layer.eval()
    return Case(layer, x, hx, times, lengths, draw.choice(PATHS), draw.choice((1, 2, 3)), draw.random() < 0.7,
                lengths is not None or draw.random() < 0.8)  # fmt: skip


def layer_of(draw: random.Random, width: int, hidden: int, steps: int) -> glstm.GatedLSTM:
    last = float(max(steps, 2))
    gates: list[Any] = [
        glstm.Gaussian(mu=(0.0, last), sigma=draw.choice((0.3, 2.0, 50.0))),
        glstm.Gaussian(mu=(0.0, last), sigma=(0.5, last)),
        glstm.Periodic(mu=(0.0, 3.0), sigma=0.8, tau=(2.0, 9.0)),
        glstm.Phased(tau=(3.0, 9.0), s=(0.0, 3.0), r=draw.choice((0.1, 0.5, 0.9))),
        glstm.Clockwork(period=(1, 2, 4)[: min(3, hidden)]),
        glstm.Open(),
    ]
    gate = draw.choice(gates)
    origin, unit = draw.choice(((0.0, 1.0), (0.0, 1.0), (2.0, 0.5), (-1.0, 3.0)))
    layer = glstm.GatedLSTM(
        width, hidden, draw.choice((1, 1, 1, 2, 3)), bias=draw.random() < 0.7, batch_first=draw.random() < 0.3,
        bidirectional=draw.random() < 0.3, gate=gate, threshold=draw.choice((0.0, 0.0, 0.02, 0.3)),
        candidate=draw.choice(("tanh", "tanh", "sigmoid")), backend=draw.choice(("auto", "native", "reference")),
        origin=origin, unit=unit,
    )  # fmt: skip
    layer.segment = draw.choice((None, None, 1, 3, 1000))
    return layer


def values(draw: random.Random, shape: tuple[int, ...]) -> Tensor:
    x = torch.randn(shape)
    match draw.randrange(8):
        case 0:
            return x * 1e-41  # below the least normal number
        case 1:
            return x * 30  # far into saturation
        case 2:
            return torch.zeros(shape)
        case _:
            return x


def odd(x: Tensor, draw: random.Random) -> Tensor:
    """The same numbers, laid out in another way."""
    match draw.randrange(9):
        case 0:
            return torch.stack((x, x + 1), -1)[..., 0]  # every other number
        case 1:
            return x.transpose(0, -1).contiguous().transpose(0, -1)
        case 2:
            return torch.cat((torch.zeros(1), x.flatten()))[1:].view(x.shape)  # four bytes off any vector
        case 3:
            return torch.complex(torch.zeros_like(x), -x).conj().imag  # torch's lazy minus sign
        case 4:
            return x.flip(0).flip(0)
        case _:
            return x


def outcome(case: Case, layer: glstm.GatedLSTM, dtype: torch.dtype) -> list[Tensor]:
    """The outputs, and all gradients of a number that depends on each of them."""
    x = case.x.detach().to(dtype).requires_grad_() if dtype is torch.float64 else case.x.detach().requires_grad_()
    hx = None if case.hx is None else tuple(part.to(dtype) for part in case.hx)
    given: Any = x
    times: Any = case.times
    if case.lengths is not None:

        def packed(values: Tensor) -> PackedSequence:
            return pack_padded_sequence(values, case.lengths, layer.batch_first, enforce_sorted=False)

        given = packed(x)
        times = times if times is None or times.dim() == 1 else packed(times)
        times = times[: int(case.lengths.max())] if isinstance(times, Tensor) else times
    with torch.set_grad_enabled(case.gradients):
        output, state = layer(given, hx, times, sequence=case.sequence)
    output = output.data if isinstance(output, PackedSequence) else output
    found = [part for part in (output, *state) if part is not None]
    if not case.gradients:
        return found
    draws = torch.Generator().manual_seed(0)
    weights = [torch.randn(part.shape, generator=draws).to(dtype) for part in found]
    total = torch.stack([(part * weight).sum() for part, weight in zip(found, weights, strict=True)]).sum()
    wanted = [x, *layer.parameters()]
    gradients = torch.autograd.grad(total, wanted, allow_unused=True)
    known = [torch.zeros_like(one) if part is None else part for part, one in zip(gradients, wanted, strict=True)]
    return found + known


def check(number: int) -> None:
    case = drawn(number)
    exact = copy.deepcopy(case.layer).double()
    exact.backend = "reference"
    torch.set_num_threads(case.threads)
    with warnings.catch_warnings(), cpu.forcing(case.path) if case.path else nullcontext():
        warnings.simplefilter("ignore", GateWarning)
        expected = outcome(case, exact, torch.float64)
        found = outcome(case, case.layer, torch.float32)
        if not case.gradients and not case.layer.training:  # from tables that it keeps now
            assert all(torch.equal(*pair) for pair in zip(found, outcome(case, case.layer, torch.float32), strict=True))
    states = 3 if case.sequence else 2
    for place, (ours, right) in enumerate(zip(found, expected, strict=True)):
        allowed = FORWARD if place < states else BACKWARD
        where = f"case {number}, part {place}: {case.layer}, x {tuple(case.x.shape)}, {case.path}"
        assert ours.shape == right.shape, where
        if right.numel():
            largest, wrong = float(right.detach().abs().max()), float((ours.detach() - right.detach()).abs().max())
            assert wrong <= allowed * max(1.0, largest), where


@pytest.mark.parametrize("first", range(0, CASES, AT_ONCE))
def test_drawn_layers_are_those_of_float64(first):
    for number in range(first, min(first + AT_ONCE, CASES)):
        check(number)


ODD_K = {"above 1": 2.0, "below 0": -1.0, "nan": float("nan"), "subnormal": 1e-42}


@pytest.mark.parametrize("path", ["dense", "together", "one by one"])
@pytest.mark.parametrize("k", ODD_K.values(), ids=ODD_K)
def test_k_outside_0_to_1_is_what_the_equations_say(k, path):
    """Not refused: the same extrapolation, or the same NaN, on every path."""
    inputs = [part.detach().float() for part in operator_inputs(9, 3, 4, 5)]
    inputs[4][torch.rand(9, 5) < 0.4] = 0
    inputs[4][2, 1] = inputs[4][5, 3] = k
    found = []
    for backend in ("native", "reference"):
        with cpu.forcing(path):
            found.append(gated_lstm(*inputs, backend=backend, cells=path == "dense"))
    for ours, right in zip(*found, strict=True):
        if ours is not None:
            torch.testing.assert_close(ours, right, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_nan_in_one_sample_stays_in_it():
    layer, x = glstm.GLSTM(2, 9, mu=(1, 8), sigma=2.0), torch.randn(8, 5, 2)
    clean = layer(x)[0]
    x[3, 2, 0] = torch.nan
    for path in ("dense", "together", "one by one"):
        with cpu.forcing(path), torch.no_grad():
            output = layer(x)[0]
        assert output[3:, 2].isnan().any()
        others = [sample for sample in range(5) if sample != 2]
        torch.testing.assert_close(output[:, others], clean[:, others], rtol=1e-5, atol=1e-6)


def test_sizes_that_no_memory_holds_are_refused():
    x = torch.zeros(1, 1, 1).expand(2**28, 2**7, 1)
    with pytest.raises((RuntimeError, MemoryError)):
        gated_lstm(x, torch.zeros(4, 1), torch.zeros(4, 1), None, torch.zeros(1, 1).expand(2**28, 1),
                   torch.zeros(2**7, 1), torch.zeros(2**7, 1), backend="native")  # fmt: skip
