"""The C engine against float64: outputs to 1e-6, gradients to 1e-5, dense and sparse, on every kind of vector."""

import math
import multiprocessing
import threading
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glstm import GLSTM, LSTM
from glstm.ops import cpu, gated_lstm
from helpers import relative_error

if cpu.engine() is None:
    pytest.skip("the engine was not built: no C compiler here", allow_module_level=True)
ENGINE = cpu.engine()
assert ENGINE is not None


@pytest.fixture(params=[16, 8, 4], ids="{} lanes".format, scope="module", autouse=True)
def lanes(request):
    if ENGINE.glstm_lanes(request.param) != request.param:
        pytest.skip("this machine has no vectors of that width")
    yield request.param
    ENGINE.glstm_lanes(0)


@pytest.fixture(params=["as chosen", "dense", "together", "one by one"], scope="module")
def path(request):
    """Every path on every table that it can take, however it would be chosen."""
    with nullcontext() if request.param == "as chosen" else cpu.forcing(request.param):
        yield request.param


def table(steps, batch, hidden, kind, per_sample):
    """Openness of many kinds: everything, nothing, spells that come back, single Gaussian ones."""
    shape = (steps, batch, hidden) if per_sample else (steps, hidden)
    k = torch.rand(shape)
    if kind == "spells":
        k *= (torch.rand(shape) < 0.2).float().cumsum(0) % 2
    if kind == "scattered":
        k[torch.rand(shape) < 0.7] = 0
    if kind == "closed":
        k *= 0
    if kind == "ones":
        k = torch.ones(shape)
    if kind == "gaussian" and not per_sample:
        k = GLSTM(1, hidden, mu=(1, steps + 1), sigma=(0.5, 4.0), threshold=0.05).openness(steps)[0].detach()
    return k


@settings(max_examples=30)
@given(
    steps=st.integers(0, 40),
    batch=st.sampled_from([0, 1, 2, 7, 8, 9, 16, 37]),
    inputs=st.integers(1, 5),
    hidden=st.sampled_from([1, 3, 4, 8, 15, 16, 17, 33, 50]),
    kind=st.sampled_from(["gaussian", "spells", "scattered", "closed", "ones", "any"]),
    per_sample=st.booleans(),
    state=st.booleans(),
    bias=st.booleans(),
    candidate=st.sampled_from(["tanh", "sigmoid"]),
    sequence=st.booleans(),
    cells=st.booleans(),
    threads=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 99),
)
def test_outputs_and_gradients_against_float64(
    path, steps, batch, inputs, hidden, kind, per_sample, state, bias, candidate, sequence, cells, threads, seed
):
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    tensors = [
        torch.randn(steps, batch, inputs),
        torch.randn(4 * hidden, inputs) / math.sqrt(inputs),
        torch.randn(4 * hidden, hidden) / math.sqrt(hidden),
        torch.randn(4 * hidden),
        table(steps, batch, hidden, kind, per_sample),
        torch.randn(batch, hidden) * state,
        torch.randn(batch, hidden) * state,
    ]
    single = [tensor.clone().requires_grad_() for tensor in tensors]
    double = [tensor.double().requires_grad_() for tensor in tensors]
    if not state:  # the usual case: a start at zero that needs no gradient
        single[5], double[5] = single[5].detach(), double[5].detach()
    options = {"candidate": candidate, "sequence": sequence, "cells": cells}
    results = []
    for inputs_, backend in ((single, "native"), (double, "reference")):
        arguments = [*inputs_[:3], inputs_[3] if bias else None, *inputs_[4:]]
        results.append(gated_lstm(*arguments, backend=backend, **options))
    with torch.no_grad():
        arguments = [*single[:3], single[3] if bias else None, *single[4:]]
        inference = gated_lstm(*arguments, backend="native", **options)
    total = [torch.zeros(()), torch.zeros(())]
    for mine, quick, exact in zip(results[0], inference, results[1], strict=True):
        assert (mine is None) == (exact is None)
        if mine is not None and exact is not None:
            assert relative_error(mine.double(), exact) < 1e-6
            assert relative_error(quick.double(), exact) < 1e-6
            weight = torch.randn_like(mine)
            total = [total[0] + (mine * weight).sum(), total[1] + (exact * weight.double()).sum()]
    total[0].backward()
    total[1].backward()
    for mine, exact in zip(single, double, strict=True):
        if mine.requires_grad and exact.grad is not None:
            assert relative_error(mine.grad.double(), exact.grad) < 1e-5


@pytest.mark.parametrize("size", [(9, 64, 16, 128), (7, 5, 40, 70), (3, 13, 130, 33), (4, 1, 3, 110)], ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_ordinary_sizes_against_torch_in_float64(size, threads):
    """Weights of several vectors in both directions, tiles of every height, inputs beside units in one vector."""
    steps, batch, inputs, hidden = size
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    mine, exact = LSTM(inputs, hidden), torch.nn.LSTM(inputs, hidden, dtype=torch.float64)
    exact.load_state_dict(mine.state_dict())
    x = torch.randn(steps, batch, inputs, requires_grad=True)
    y = x.detach().double().requires_grad_()
    weight = torch.randn(steps, batch, hidden)
    with cpu.forcing("dense"):
        output, final = mine(x)
        (output * weight).sum().backward()
        with torch.no_grad():
            again, _ = mine(x)
    expected, expected_final = exact(y)
    (expected * weight.double()).sum().backward()
    for found, right in zip((output, again, *final), (expected, expected, *expected_final), strict=True):
        assert relative_error(found.double(), right) < 1e-6
    assert relative_error(x.grad.double(), y.grad) < 1e-5
    for (name, parameter), right in zip(mine.named_parameters(), exact.parameters(), strict=True):
        assert relative_error(parameter.grad.double(), right.grad) < 1e-5, name


@pytest.mark.parametrize("batch", [1, 40])
def test_a_zero_in_k_copies_bit_for_bit(path, batch):
    k = table(30, batch, 20, "spells", False)
    h0, c0 = torch.randn(2, batch, 20)
    h0[0, 0] = -0.0
    weights = torch.randn(80, 3), torch.randn(80, 20), torch.randn(80)
    out = gated_lstm(torch.randn(30, batch, 3) * 1e30, *weights, k, h0, c0, backend="native")
    before = torch.cat((h0[None], out.h[:-1]))
    closed = (k == 0)[:, None].expand_as(out.h)
    assert torch.equal(out.h[closed].view(torch.int32), before[closed].view(torch.int32))


def test_the_same_bits_from_run_to_run(path):
    torch.set_num_threads(2)
    layer = GLSTM(2, 40, mu=(1, 60), sigma=6.0, threshold=0.05)
    x = torch.randn(60, 50, 2)
    runs = []
    for _ in range(5):
        layer.zero_grad()
        output, (h_n, _) = layer(x)
        output.sum().backward()
        runs.append([output, h_n, *(parameter.grad.clone() for parameter in layer.parameters())])
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))


def test_an_input_is_not_read_where_every_unit_is_closed(path):
    layer = GLSTM(2, 4, mu=(1, 5), sigma=1.0, threshold=0.1)
    clean = torch.randn(12, 20, 2)
    dirty = clean.clone()
    dirty[9] = float("nan")
    gradients = []
    for x in (clean, dirty):
        layer.zero_grad()
        layer(x)[0].sum().backward()
        gradients.append([parameter.grad.clone() for parameter in layer.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


BY_EXPONENTIALS = (lambda x: x.sigmoid(), lambda x: x.tanh())
BY_POWERS = (lambda x: 1 / (1 + torch.exp2(x)), lambda x: torch.tanh(x / 2))


@pytest.mark.parametrize(
    ("name", "exactly"),
    [("glstm_nonlinearities", BY_EXPONENTIALS), ("glstm_nonlinearities_by_powers", BY_POWERS)],
    ids=["by exponentials", "by powers"],
)
def test_nonlinear_functions_are_accurate_over_the_whole_range(lanes, name, exactly):
    """Within 2.5 units in the last place of every normal result: an exponential, a sum and a quotient, each rounded."""
    bits = torch.arange(0, 2**31, 2**31 // 2_000_000, dtype=torch.int64).to(torch.int32)
    x = bits.view(torch.float32)
    x = torch.cat((x[x.isfinite()], -x[x.isfinite()]))
    x = x[: len(x) // 16 * 16].contiguous()
    found = [torch.empty_like(x), torch.empty_like(x)]
    getattr(ENGINE, name)(*(cpu.c_void_p(t.data_ptr()) for t in (x, *found)), len(x))
    for mine, function in zip(found, exactly, strict=True):
        exact = function(x.double())
        normal = exact.abs() > 1e-37
        unit = torch.from_numpy(np.spacing(exact.abs().float().numpy())).double()
        worst = ((mine.double() - exact).abs() / unit)[normal].max()
        assert worst < 2.5
        assert (mine[~normal].abs() < 1e-36).all()


def test_long_sequences_do_not_drift(path):
    """A unit that opens again and again: kept contributions must not gather rounding."""
    steps, hidden = 5_000, 8
    k = torch.rand(steps, hidden) * ((torch.arange(steps)[:, None] // torch.tensor([3, 5, 7, 11, 13, 17, 19, 23])) % 2)
    x = torch.randn(steps, 1, 1)
    weights = torch.randn(32, 1), torch.randn(32, 8) * 0.3, torch.randn(32)
    zero = torch.zeros(1, 8)
    x64, w_ih, w_hh, b, k64, zero64 = (tensor.double() for tensor in (x, *weights, k, zero))
    exact = gated_lstm(x64, w_ih, w_hh, b, k64, zero64, zero64, sequence=False)
    for copies in (1, 20):
        start = zero.expand(copies, 8).contiguous()
        found = gated_lstm(x.expand(-1, copies, -1), *weights, k, start, start, sequence=False, backend="native")
        assert relative_error(found.h_n[:1].double(), exact.h_n) < 1e-6


def test_calls_from_several_threads_at_once_are_safe(path):
    layer = GLSTM(2, 30, mu=(1, 40), sigma=5.0, threshold=0.05).eval()
    inputs = [torch.randn(40, 20, 2) for _ in range(8)]
    with torch.no_grad():
        expected = [layer(x)[0] for x in inputs]
    wrong = []

    def work(index):
        for _ in range(20):
            with torch.no_grad():
                if not torch.equal(layer(inputs[index])[0], expected[index]):
                    wrong.append(index)

    workers = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def _in_child(layer, x, output, queue):
    torch.set_num_threads(1)  # as torch's own data loader does: torch's threads do not survive a fork either
    torch.get_num_threads = lambda: 2  # but the engine is asked for two, and must see for itself that it is alone
    queue.put(layer(x)[1][0].detach().numpy())
    h = torch.ones_like(output)
    (gradient,) = torch.autograd.grad(output, layer.weight_hh_l0, h)  # the tape is the parent's
    queue.put(gradient.numpy())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_can_use_it_too(path):
    torch.set_num_threads(2)
    layer, x = GLSTM(2, 30, mu=(1, 40), sigma=5.0, threshold=0.05), torch.randn(40, 64, 2)
    output = layer(x)[1][0]  # the parent has its threads by now
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    child = fork.Process(target=_in_child, args=(layer, x, output, queue))
    child.start()
    found, gradient = queue.get(timeout=60), queue.get(timeout=60)
    child.join()
    assert relative_error(torch.from_numpy(found), output.detach()) < 1e-6
    output.sum().backward()
    assert relative_error(torch.from_numpy(gradient), layer.weight_hh_l0.grad) < 1e-6


def test_backward_follows_the_tape_whatever_would_be_chosen_now():
    layer, x = GLSTM(2, 30, mu=(1, 40), sigma=5.0, threshold=0.05), torch.randn(40, 64, 2)
    layer(x)[1][0].sum().backward()
    expected = layer.weight_hh_l0.grad.clone()
    for one, other in (("dense", "sparse"), ("sparse", "dense")):
        layer.zero_grad()
        torch.set_num_threads(2)
        with cpu.forcing(one):
            output = layer(x)[1][0]
        torch.set_num_threads(1)
        with cpu.forcing(other):
            output.sum().backward()
        assert relative_error(layer.weight_hh_l0.grad, expected) < 1e-5


def test_what_it_cannot_do_is_said():
    layer = GLSTM(2, 3, dtype=torch.float64, backend="native")
    with pytest.raises(ValueError, match=r"computes float32 on the CPU .*, not torch.float64 on cpu"):
        layer(torch.zeros(4, 1, 2, dtype=torch.float64))


def test_what_is_not_a_number_stays_that(lanes, path):
    x = torch.randn(6, 2, 1)
    x[2, 1] = float("nan")
    k = torch.full((6, 5), 0.5)
    weights = torch.randn(20, 1), torch.randn(20, 5), torch.randn(20)
    h = gated_lstm(x, *weights, k, torch.zeros(2, 5), torch.zeros(2, 5), backend="native").h
    assert h[:, 0].isfinite().all()
    assert h[:2, 1].isfinite().all()
    assert h[2:, 1].isnan().all()
    alone = gated_lstm(x[:, 1:], *weights, k, torch.zeros(1, 5), torch.zeros(1, 5), backend="native").h_n
    assert alone.isnan().all()


@pytest.mark.parametrize(
    ("forget", "take", "start"), [(17.0, -30.0, 0.5), (12.0, -30.0, 0.5), (10.0, -12.0, 0.2), (17.0, -15.0, 0.0)]
)
def test_a_single_sequence_keeps_its_memory_for_long(forget, take, start):
    """Gates that are all but shut, for 20,000 steps: what is wrong at each of them adds up."""
    steps, hidden = 20_000, 2
    b = torch.tensor([take, forget, 3.0, 3.0]).repeat_interleave(hidden)
    x, k = torch.zeros(steps, 1, 1), torch.ones(steps, hidden)
    w_ih, w_hh = torch.zeros(4 * hidden, 1), torch.zeros(4 * hidden, hidden)
    h0, c0 = torch.zeros(1, hidden), torch.full((1, hidden), start)
    with cpu.forcing("sparse"):
        found = gated_lstm(x, w_ih, w_hh, b, k, h0, c0).c_n
    f, i = (1 / (1 + math.exp(-value)) for value in (forget, take))
    exact = start * f**steps + i * math.tanh(3.0) * (1 - f**steps) / (1 - f)
    assert found[0, 0].item() == pytest.approx(exact, rel=2e-3, abs=1e-4)
