"""Training in segments: the same outputs and gradients as in one go, at a fraction of the memory."""

import subprocess
import sys

import pytest
import torch

from glstm import GLSTM, LSTM
from glstm.ops import cpu, gated_lstm
from glstm.ops.segments import Segmented
from helpers import relative_error

BACKENDS = ["reference", *(["native"] if cpu.engine() else [])]


def operands(steps, batch, inputs, hidden, per_sample, dtype):
    generator = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(shape, generator=generator, dtype=dtype)

    k = torch.rand(((steps, batch, hidden) if per_sample else (steps, hidden)), generator=generator, dtype=dtype)
    k = torch.where(k < 0.4, 0, k)
    state = draw(batch, hidden), draw(batch, hidden)
    weights = draw(4 * hidden, inputs) / 3, draw(4 * hidden, hidden) / 3, draw(4 * hidden)
    return [tensor.requires_grad_() for tensor in (draw(steps, batch, inputs), *weights, k, *state)]


def results(tensors, **options):
    output = gated_lstm(*tensors, **options)
    found = [part for part in output if part is not None]
    generator = torch.Generator().manual_seed(4)
    loss = sum((part * torch.randn(part.shape, generator=generator, dtype=part.dtype)).sum() for part in found)
    return [*found, *torch.autograd.grad(torch.as_tensor(loss), tensors)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("wanted", [{}, {"sequence": False}, {"cells": True}])
@pytest.mark.parametrize("segment", [1, 4, 12])
def test_segments_change_nothing(backend, per_sample, wanted, segment):
    dtype = torch.float64 if backend == "reference" else torch.float32
    tensors = operands(13, 3, 2, 7, per_sample, dtype)
    whole = results(tensors, backend=backend, **wanted)
    parts = results(tensors, backend=backend, segment=segment, **wanted)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    assert all(relative_error(one, other) < tolerance for one, other in zip(parts, whole))


def test_two_tables_in_segments():
    tensors = operands(9, 2, 2, 4, False, torch.float64)
    k_h = torch.rand(9, 4, dtype=torch.float64, requires_grad=True)
    gradients = []
    for segment in (None, 4):
        output = gated_lstm(*tensors, k_h=k_h, segment=segment)
        gradients.append(torch.autograd.grad(output.h.sum(), [*tensors, k_h]))
    assert all(relative_error(one, other) < 1e-12 for one, other in zip(*gradients))


def test_a_layer_in_segments():
    layer = GLSTM(2, 6, num_layers=2, bidirectional=True, mu=(1, 30), sigma=4.0)
    x = torch.randn(30, 3, 2)
    gradients = []
    for layer.segment in (None, 7):
        layer.zero_grad()
        layer(x)[0].square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in layer.parameters()])
    assert all(relative_error(one, other) < 1e-5 for one, other in zip(*gradients))


def test_without_gradients_segments_are_ignored(monkeypatch):
    layer = LSTM(2, 5)
    layer.segment = 3
    monkeypatch.setattr(Segmented, "_segments", None)
    with torch.no_grad():
        layer(torch.randn(10, 2, 2))
    with pytest.raises(TypeError):
        layer(torch.randn(10, 2, 2))


@pytest.mark.parametrize("segment", [0, -1, 2.5])
def test_a_segment_is_a_number_of_steps(segment):
    with pytest.raises(ValueError, match="segment must be a number of steps"):
        LSTM(2, 5).segment = segment
    tensors = operands(5, 2, 2, 3, False, torch.float32)
    with pytest.raises(ValueError, match="segment must be a number of steps"):
        gated_lstm(*tensors, segment=segment)


def test_second_derivatives_go_through_segments():
    layer, x = LSTM(2, 5, dtype=torch.float64), torch.randn(10, 2, 2, dtype=torch.float64, requires_grad=True)
    found = []
    for layer.segment in (None, 3):
        (first,) = torch.autograd.grad(layer(x)[0].sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), [x, *layer.parameters()]))
    assert all(relative_error(one, other) < 1e-12 for one, other in zip(*found, strict=True))


def test_several_models_in_segments():
    inputs = [
        torch.stack(parts).detach().requires_grad_()
        for parts in zip(*(operands(9, 2, 2, 4, False, torch.float64) for _ in range(3)))
    ]
    whole, cut = (results(inputs, segment=segment) for segment in (None, 4))
    assert all(relative_error(one, other) < 1e-12 for one, other in zip(cut, whole, strict=True))


@pytest.mark.skipif(cpu.engine() is None, reason="the C engine was not built")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of memory as Linux tells it")
def test_segments_save_memory():
    """In a process of its own: 20,000 steps keep 430 MB of tape, or 4."""
    program = """
import re, sys, torch
from pathlib import Path
from glstm import LSTM

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024

torch.set_num_threads(1)
layer = LSTM(1, 110)
layer.segment = int(sys.argv[1]) or None
before = peak()
layer(torch.randn(20_000, 8, 1), sequence=False)[1][0].sum().backward()
print(peak() - before)
"""
    used = [
        int(subprocess.run([sys.executable, "-c", program, segment], capture_output=True, text=True, check=True).stdout)
        for segment in ("0", "200")
    ]
    assert used[0] > 400
    assert used[1] < 100
