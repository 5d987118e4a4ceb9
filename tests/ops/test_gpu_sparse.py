"""The CUDA engine's path for many sequences with few open units, on an emulated device and on a real one."""

import pytest
import torch

from glstm.ops import gpu
from glstm.ops.gpu import choice, sparse
from glstm.ops.gpu.runtime import compile_kernels, compiler
from helpers import relative_error
from ops.test_gpu import EMULATED, LIMITS, both_precisions, errors, on_device, precision, results  # noqa: F401

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no NVRTC here")


def operands(steps, batch, inputs, hidden, models=(), device="cpu", table="once", carried=False, own_x=False):
    """table: units open 'once', at moments in order; 'often', at random; or 'never'."""
    generator = torch.Generator().manual_seed(3)

    def draw(*shape, scale=1.0):
        return (scale * torch.randn(*models, *shape, generator=generator)).to(device)

    scale = 1.2 / hidden**0.5
    moments = torch.rand(*models, 1, hidden, generator=generator).sort(-1).values * steps
    k = torch.exp(-(((torch.arange(steps).view(-1, 1) - moments) / (0.06 * steps)) ** 2))
    if table == "often":
        k = torch.rand(*models, steps, hidden, generator=generator)
        k = torch.where(k < 1 - 5 / hidden, 0, k)
    k = torch.where(k < (2 if table == "never" else 0.01), 0, k)
    k[..., : steps // 4, 0] = 1  # fully open, and then closed
    if table == "never":
        k.zero_()
    x = torch.randn(*(models if own_x else ()), steps, batch, inputs, generator=generator).to(device)
    return {
        "x": x,
        "w_ih": draw(4 * hidden, inputs, scale=scale),
        "w_hh": draw(4 * hidden, hidden, scale=scale),
        "b": draw(4 * hidden, scale=scale),
        "k": k.to(device),
        "h0": draw(batch, hidden, scale=0.3) if carried else torch.zeros(*models, batch, hidden, device=device),
        "c0": draw(batch, hidden, scale=0.3) if carried else torch.zeros(*models, batch, hidden, device=device),
    }


@pytest.fixture
def sparse_path(request):
    with choice.forcing("sparse"):
        yield


SMALL_CASES = [
    (12, 3, 1, 9, {}),
    (20, 9, 2, 33, {"models": (2,)}),
    (14, 11, 4, 20, {"table": "often", "carried": True}),
    (9, 5, 1, 70, {"table": "often", "models": (2,), "own_x": True}),
    (25, 3, 3, 40, {"carried": True}),
    (5, 2, 1, 6, {"table": "never", "carried": True}),
    (1, 1, 1, 1, {}),
]


@both_precisions
@pytest.mark.parametrize("candidate", ["tanh", "sigmoid"])
@pytest.mark.parametrize("case", SMALL_CASES, ids=str)
def test_emulated_against_float64(precision, case, candidate, emulated, sparse_path):  # noqa: F811
    emulated(1)
    *sizes, options = case
    found = errors(operands(*sizes, **options), sequence=False, candidate=candidate)
    for kind, values in zip(("outputs", "gradients"), found):
        assert all(value < EMULATED[precision][kind] for value in values.values()), values
