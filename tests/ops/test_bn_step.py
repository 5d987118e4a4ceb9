"""The kernels of the batch-normalised LSTM in training, against the cell in float64: emulated, and on a device."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from emulated import started
from glstm.cells.bn_lstm import BNLSTM
from glstm.ops.gpu import bn_step
from glstm.ops.gpu.runtime import compile_kernels, compiler
from helpers import relative_error

on_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
INPUTS = 3
KERNELS = ["bn_forward", "bn_backward"]


def make(units: int, **options: Any) -> Any:
    torch.manual_seed(1)
    cell = BNLSTM(INPUTS, units, t_max=4, **options)
    for parameter in cell.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return cell


def given(cell: Any, steps: int, batch: int) -> list[Tensor]:
    """x, and the parts of a state."""
    draws = torch.Generator().manual_seed(2)
    shapes = (steps, batch, INPUTS), *(cell.shape_of(part, batch) for part in ("h", "c"))
    tensors = [torch.randn(shape, generator=draws) for shape in shapes]
    return [*tensors, torch.full(cell.shape_of("steps", batch), 1.0)]


def everything(cell: Any, tensors: list[Tensor], dtype: torch.dtype, device: str) -> dict[str, Tensor]:
    """Output, final state, running averages, and gradients of all of them by all that can be differentiated."""
    cell = cell.to(device, dtype)
    values = {name: value.detach().clone().requires_grad_() for name, value in cell.named_parameters()}
    buffers = {name: buffer.detach().clone() for name, buffer in cell.named_buffers()}
    x, h, c, steps = (tensor.to(device, dtype) for tensor in tensors)
    leaves = {"x": x.requires_grad_(), "h": h.requires_grad_(), "c": c.requires_grad_(), **values}
    output, (h_n, c_n, seen) = functional_call(cell, values | buffers, (x, (h, c, steps)))
    draws = torch.Generator().manual_seed(3)
    loss = sum(
        ((part * torch.randn(part.shape, generator=draws).to(part)).sum() for part in (output, h_n, c_n)),
        start=torch.zeros((), dtype=dtype, device=device),
    )
    slopes = torch.autograd.grad(loss, list(leaves.values()))
    found = {"output": output, "h_n": h_n, "c_n": c_n, "seen": seen, **buffers}
    found |= {f"d {name}": slope for name, slope in zip(leaves, slopes, strict=True)}
    return {name: value.detach().double().cpu() for name, value in found.items()}


def check_against_float64(units: int, steps: int, batch: int, device: str, **options: Any) -> None:
    cell = make(units, **options)
    tensors = given(cell, steps, batch)
    started.clear()
    found = everything(cell, tensors, torch.float32, device)
    if device == "cpu":
        assert started == [name for name in KERNELS for _ in range(steps * cell.num_layers)]
        started.clear()
    right = everything(cell, tensors, torch.float64, "cpu")
    assert not started
    for name, value in right.items():
        assert relative_error(found[name], value) < (1e-4 if name.startswith("d ") else 1e-5), name


@pytest.mark.parametrize("units", [5, 20])
@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("batch", [2, 3, 33])
def test_kernels_emulated_on_a_cpu(emulated, units, steps, batch):
    emulated(1)
    check_against_float64(units, steps, batch, "cpu")


@pytest.mark.parametrize("batch", [32, 64, 100, 250, 512])
def test_emulated_batches_of_every_width(emulated, batch):
    emulated(1)
    check_against_float64(3, 2, batch, "cpu", bias=False)


def test_emulated_layers(emulated):
    emulated(1)
    check_against_float64(4, 3, 6, "cpu", num_layers=2)


def test_a_number_that_is_none_reaches_all_samples(emulated):
    """Of its step and later ones, and of the units that hear it, as without the kernels."""
    emulated(1)
    cell = make(5)
    x, *state = given(cell, 4, 6)
    x[2, 3] = torch.nan
    output, _ = cell(x, state)
    assert started == ["bn_forward"] * 4
    right, _ = make(5).double()(x.double(), [part.double() for part in state])
    assert torch.equal(output.isnan(), right.isnan())
    assert output[:2].isfinite().all()
    assert output[2:].isnan().all()


def test_gradients_of_any_strides(emulated):
    emulated(1)
    cell = make(5)
    x, *state = given(cell, 4, 6)
    output, _ = cell(x, state)
    spread, values = torch.ones(()).expand(output.shape), list(cell.parameters())
    one, other = (
        torch.autograd.grad(output, values, weights, retain_graph=True) for weights in (spread, spread.clone())
    )
    assert all(map(torch.equal, one, other))


def test_what_the_kernels_leave_to_torch(emulated):
    """Padding, more samples than lanes can take, float64, and evaluation."""
    emulated(1)
    cell = make(3)
    x, *state = given(cell, 3, 6)
    cell(x, state, lengths=torch.tensor([3, 3, 1, 2, 3, 3]))
    many, *states = given(cell, 1, bn_step.LANES * bn_step.PER_LANE[-1] + 1)
    cell(many, states)
    cell.eval()(x, state)
    cell.double().train()(x.double(), [part.double() for part in state])
    assert not started
    cell.float()(x, state)
    assert started == ["bn_forward"] * 3


@pytest.mark.skipif(compiler() is None, reason="no NVRTC here")
@pytest.mark.parametrize(
    ("architecture", "per_lanes"),
    [("sm_80", bn_step.PER_LANE[-1:]), ("sm_90", bn_step.PER_LANE), ("sm_100", bn_step.PER_LANE[-1:])],
)  # of the others, whose instructions are the same, the largest
def test_the_kernels_compile(architecture, per_lanes):
    for per_lane in per_lanes:
        assert compile_kernels(bn_step.source(), architecture, bn_step.constants(per_lane)).startswith(b"\x7fELF")


@on_device
@pytest.mark.parametrize("size", [(5, 1, 2), (20, 5, 33), (110, 20, 100), (64, 3, 512)])
def test_kernels_on_a_device(size):
    units, steps, batch = size
    check_against_float64(units, steps, batch, "cuda")
