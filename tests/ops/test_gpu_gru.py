"""The GRU's rule in the CUDA kernels: emulated, compiled, and where there is a device, on it."""

import pytest
import torch

from glstm.ops import gpu
from glstm.ops.contract import Inputs
from glstm.ops.gpu import scan
from glstm.ops.gpu.runtime import compile_kernels, compiler
from glstm.ops.gru import as_four_sums
from gru_cases import check, gated_gru, loop, operands, results
from helpers import relative_error

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no NVRTC here")
on_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

EMULATED = {"high": {"outputs": 5e-4, "gradients": 3e-3}, "highest": {"outputs": 1e-5, "gradients": 1e-4}}

# Every layout: blocks that share a tile's units; samples of a thread; steps that are read ahead; T, B, D, H.
LAYOUTS = [
    (1, 1, 3, (5, 6, 1, 20), {}),
    (1, 2, 2, (3, 9, 6, 33), {"table": "own"}),
    (4, 2, 1, (4, 9, 1, 40), {"table": "shared", "bias": False}),
    (4, 1, 2, (3, 3, 6, 70), {"table": "own"}),
    (8, 1, 4, (3, 3, 2, 70), {}),
]


@pytest.mark.parametrize("precision", EMULATED, indirect=True)
@pytest.mark.parametrize(("ranks", "samples", "ahead", "size", "options"), LAYOUTS, ids=str)
def test_kernels_emulated_on_a_cpu(precision, ranks, samples, ahead, size, options, emulated, monkeypatch):
    emulated(ranks, samples=samples)
    monkeypatch.setattr(scan, "AHEAD", {"forward": ahead, "backward": ahead})
    check(operands(*size, **options), sequence=ranks != 4, backend="cuda", **EMULATED[precision])


@pytest.mark.parametrize("precision", EMULATED, indirect=True)
@pytest.mark.parametrize("large", [4.0, 400.0])
def test_emulated_slopes_are_bounded_where_h_and_its_sums_are_large(precision, large, emulated):
    """Slopes are shared in 16 bits, scaled by a bound on them: no number may become infinite."""
    emulated(1)
    tensors = operands(4, 5, 1, 20, large=large)
    outputs, gradients = results(gated_gru, tensors, backend="cuda")
    assert all(part.isfinite().all() for part in (*outputs.values(), *gradients.values()))
    if large < 10:
        limits = {"highest": (1e-5, 3e-4), "high": (4e-3, 3e-2)}[precision]
        check(tensors, True, *limits, backend="cuda")


@pytest.mark.parametrize("precision", ["high"], indirect=True)
def test_emulated_sums_beyond_16_bits_have_finite_slopes(precision, emulated):
    emulated(1)
    tensors = operands(2, 3, 1, 20, large=1.0)
    tensors["b_hh"][40:] = 1e6  # of the candidate's sum over h, which r multiplies
    tensors["b_ih"][:20] = -30.0
    outputs, gradients = results(gated_gru, tensors, backend="cuda")
    assert all(part.isfinite().all() for part in (*outputs.values(), *gradients.values()))


@pytest.mark.parametrize("precision", ["high"], indirect=True)
def test_emulated_models_side_by_side(precision, emulated):
    emulated(4)
    tensors = operands(4, 5, 2, 20, models=(2,))
    x, _, *own = tensors.pop("x"), tensors.pop("k"), *tensors.values()
    together, _ = torch.vmap(lambda *own: gated_gru(x, *own, backend="cuda"))(*own)
    for model in range(2):
        right, _ = loop(x, *(part[model] for part in own))
        assert relative_error(together[model], right) < EMULATED[precision]["outputs"]


def test_emulated_no_other_kernel_takes_it(emulated):
    emulated(0)
    given = [part for part in operands(4, 3, 2, 20).values() if part is not None]
    inputs = Inputs(given[0], *as_four_sums(*given[1:5]), torch.ones(4, 20), None, given[5], given[5])
    with pytest.raises(ValueError, match="no kernel computes a GRU of 20 units"):
        gpu.forward(inputs, "gru", True, False, False)


@needs_compiler
@pytest.mark.parametrize("part", ["forward", "backward"])
@pytest.mark.parametrize(
    ("hidden", "ranks", "exact"), [(16, 1, False), (110, 4, False), (128, 1, True), (384, 8, True)]
)
def test_kernels_compile(part, hidden, ranks, exact):
    shape = scan.Shape(1, 9, 5, hidden, exact, ranks, 2, 232_448)
    constants = shape.constants(part, 1, "gru", False, 1, True)
    assert compile_kernels(scan.source(part, ranks), "sm_90", constants).startswith(b"\x7fELF")


@on_device
@pytest.mark.parametrize("precision", EMULATED, indirect=True)
@pytest.mark.parametrize("size", [(40, 37, 1, 16), (60, 9, 3, 110), (20, 5, 9, 300), (5, 3, 2, 384)])
def test_on_a_device(precision, size):
    tensors = {name: part if part is None else part.cuda() for name, part in operands(*size, table="shared").items()}
    check(tensors, **EMULATED[precision])
