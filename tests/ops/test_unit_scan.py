"""The scan of independent units: against a loop over numbers, its gradients, torch.vmap, and its CUDA kernels."""

import math

import pytest
import torch
from torch import Tensor

from emulated import started
from glstm.ops.gpu import unit_scan as kernels
from glstm.ops.gpu.runtime import compile_kernels, compiler
from glstm.ops.unit_scan import ACTIVATIONS, scan_by_steps, unit_scan
from helpers import relative_error

on_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
every_activation = pytest.mark.parametrize("activation", ACTIVATIONS)
FUNCTIONS = {"linear": lambda v: v, "relu": lambda v: max(v, 0.0), "tanh": math.tanh}
# Shapes of a, as a function of (T, B, H).
SHAPES = {
    "unit": lambda t, b, h: (h,),
    "step": lambda t, b, h: (t, 1, h),
    "sample": lambda t, b, h: (b, h),
    "all": lambda t, b, h: (t, b, h),
    "one": lambda t, b, h: (),
    "step only": lambda t, b, h: (t, 1, 1),
}
every_shape = pytest.mark.parametrize("kind", SHAPES)


def operands(steps: int, batch: int, units: int, kind: str = "unit", dtype=torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = SHAPES[kind](steps, batch, units), (steps, batch, units), (batch, units)
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    tensors[0] = 0.9 * torch.tanh(tensors[0])
    return [tensor.requires_grad_() for tensor in tensors]


def by_numbers(a: Tensor, b: Tensor, h0: Tensor, activation: str) -> Tensor:
    a, h = a.expand(b.shape), torch.empty_like(b)
    for sample in range(b.shape[1]):
        for unit in range(b.shape[2]):
            state = float(h0[sample, unit])
            for step in range(len(b)):
                place = step, sample, unit
                state = FUNCTIONS[activation](float(a[place]) * state + float(b[place]))
                h[place] = state
    return h


@every_activation
@every_shape
@pytest.mark.parametrize("size", [(5, 3, 4), (1, 1, 1), (0, 2, 3), (7, 1, 5)])
def test_the_definition(activation, kind, size):
    a, b, h0 = (tensor.detach() for tensor in operands(*size, kind=kind))
    assert relative_error(unit_scan(a, b, h0, activation), by_numbers(a, b, h0, activation)) < 1e-14


@every_activation
@every_shape
def test_gradients_and_their_gradients(activation, kind):
    tensors = operands(4, 2, 3, kind)
    assert torch.autograd.gradcheck(lambda *parts: unit_scan(*parts, activation=activation), tensors)
    assert torch.autograd.gradgradcheck(lambda *parts: unit_scan(*parts, activation=activation), tensors)


def test_no_steps_have_gradients_of_zero():
    a, b, h0 = operands(0, 2, 3)
    for gradient in torch.autograd.grad(unit_scan(a, b, h0).sum(), (a, b, h0)):
        assert not gradient.any()


@pytest.mark.parametrize("batched", [(0, 0, 0), (0, None, None), (None, 0, None), (None, None, 0), (1, 1, 1)])
@pytest.mark.parametrize("kind", ["unit", "sample", "all"])
def test_networks_side_by_side(batched, kind):
    """torch.vmap: each network has what it has alone, gradients too."""
    each = [operands(4, 3, 2, kind) for _ in range(3)]
    for number, own in enumerate(each):
        for tensor in own:
            tensor.data += number
    parts = [
        one[0].detach() if dim is None else torch.stack(one, min(dim, one[0].dim())).detach()
        for one, dim in zip(zip(*each, strict=True), batched, strict=True)
    ]
    dims = tuple(None if dim is None else min(dim, each[0][n].dim()) for n, dim in enumerate(batched))
    leaves = [part.requires_grad_() for part in parts]
    together = torch.vmap(lambda a, b, h0: unit_scan(a, b, h0, "tanh"), in_dims=dims)(*leaves)
    rows = [
        [leaf if dim is None else leaf.select(dim, number) for leaf, dim in zip(leaves, dims, strict=True)]
        for number in range(3)
    ]
    alone = torch.stack([unit_scan(*row, activation="tanh") for row in rows])
    assert torch.equal(together, alone)
    found, right = (torch.autograd.grad(out.square().sum(), leaves) for out in (together, alone))
    for one, other in zip(found, right, strict=True):
        assert relative_error(one, other) < 1e-13


def test_torch_func_differentiates_it():
    a, b, h0 = (tensor.detach() for tensor in operands(4, 2, 3))

    def loss(a: Tensor, b: Tensor) -> Tensor:
        return unit_scan(a, b, h0, "tanh").square().sum()

    each = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(a, torch.stack((b, 2 * b)))
    assert relative_error(each[1], torch.func.grad(loss)(a, 2 * b)) < 1e-13


def test_wrong_operands_are_named():
    a, b, h0 = operands(4, 2, 3)
    with pytest.raises(ValueError, match="activation must be one of linear, relu, tanh, not 'gelu'"):
        unit_scan(a, b, h0, "gelu")
    with pytest.raises(ValueError, match=r"a must broadcast to b's shape \(4, 2, 3\), but has \(2,\)"):
        unit_scan(a[:2], b, h0)
    with pytest.raises(ValueError, match=r"h0 \(B, H\), but they have shapes \(4, 2, 3\) and \(3,\)"):
        unit_scan(a, b, h0[0])


def test_under_autocast_the_state_keeps_its_precision():
    a, b, h0 = (tensor.detach().float() for tensor in operands(4, 2, 3))
    assert unit_scan(a, b.bfloat16(), h0).dtype == torch.float32


@pytest.mark.skipif(compiler() is None, reason="no NVRTC here")
@pytest.mark.parametrize(
    ("architecture", "per_step", "activations"),
    [("sm_80", True, [2]), ("sm_90", False, [0, 1, 2]), ("sm_90", True, [0, 1, 2]), ("sm_100", True, [2])],
)  # of the others, whose instructions are the same, the largest
def test_the_kernels_compile(architecture, per_step, activations):
    for activation in activations:
        made = compile_kernels(kernels.source(), architecture, kernels.constants(activation, per_step))
        assert made.startswith(b"\x7fELF")


# Fewer steps than are read ahead, as many, one more, and many more; units that fill no block.
SIZES = [(1, 1, 1), (5, 3, 7), (kernels.AHEAD, 2, 3), (kernels.AHEAD + 1, 5, 13), (3 * kernels.AHEAD + 2, 3, 45)]


def check_against_float64(activation: str, kind: str, size: tuple[int, int, int], device: str, dtype: torch.dtype):
    tensors = [tensor.detach().to(device).requires_grad_() for tensor in operands(*size, kind, dtype)]
    wide = [tensor.detach().double().cpu().requires_grad_() for tensor in tensors]
    weights = torch.randn(size, generator=torch.Generator().manual_seed(2))
    h = unit_scan(*tensors, activation=activation)
    right = scan_by_steps(wide[0].expand(size), wide[1], wide[2], activation)
    limit = 1e-5 if dtype == torch.float32 else 2e-2
    assert h.dtype == dtype
    assert relative_error(h.double().cpu(), right) < limit
    found = torch.autograd.grad((h * weights.to(h)).sum(), tensors)
    expected = torch.autograd.grad((right * weights.to(right)).sum(), wide)
    for one, other in zip(found, expected, strict=True):
        assert relative_error(one.double().cpu(), other) < limit


@every_activation
@every_shape
@pytest.mark.parametrize("size", SIZES)
def test_kernels_emulated_on_a_cpu(emulated, activation, kind, size):
    emulated(1)
    check_against_float64(activation, kind, size, "cpu", torch.float32)
    assert started == ["unit_forward", "unit_backward"]


def test_emulated_kernels_take_gradients_of_any_strides(emulated):
    emulated(1)
    tensors = operands(6, 3, 5, "all", torch.float32)
    h = unit_scan(*tensors, activation="relu")
    spread = torch.ones(1, 1, 5).expand(6, 3, 5)
    one, other = (torch.autograd.grad(h, tensors, weights, retain_graph=True) for weights in (spread, spread.clone()))
    assert all(map(torch.equal, one, other))


@on_device
@every_activation
@every_shape
@pytest.mark.parametrize("size", [*SIZES, (784, 100, 110)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_on_a_device(activation, kind, size, dtype):
    check_against_float64(activation, kind, size, "cuda", dtype)
