"""The Gaussian's table of openness on the C engine, with gradients: beside torch's, in float64 and to the bit."""

import pytest
import torch
from torch.autograd import gradcheck

from glstm import GLSTM
from glstm.gates import Gaussian, apply_threshold
from glstm.ops import cpu
from glstm.timed import table
from glstm.times import Frame
from helpers import relative_error

pytestmark = pytest.mark.skipif(cpu.engine() is None, reason="the C engine is not built here")
NODE = "_TableBackward"
PLAIN = Frame(0.0, 1.0)


def values(units: int, dtype=torch.float32) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    unit = {"mu": torch.rand(units) * 300, "sigma": torch.randn(units) * 20}
    return {name: value.to(dtype).requires_grad_() for name, value in unit.items()}


def openness(unit, times, threshold, frame=PLAIN) -> torch.Tensor:
    dtype = unit["mu"].dtype
    return table(Gaussian(), unit, frame, times.to(dtype), threshold, True, len(unit["mu"]), dtype)


def by_torch(unit, times, threshold, frame=PLAIN) -> torch.Tensor:
    relative = frame.relative(times, unit["mu"].dtype)
    return apply_threshold(Gaussian().openness(relative, unit, True), threshold)


@pytest.mark.parametrize("units", [1, 7, 33])
@pytest.mark.parametrize("threshold", [0.0, 0.01, 0.9])
@pytest.mark.parametrize("frame", [PLAIN, Frame(3.0, 1.7)])
def test_it_is_torchs_table_to_the_bit_and_its_gradients_are_as_exact(units, threshold, frame):
    unit, exact = values(units), values(units, torch.float64)
    times, incoming = torch.arange(1.0, 301), torch.randn(300, units)
    k, right = openness(unit, times, threshold, frame), by_torch(unit, times, threshold, frame)
    assert k.grad_fn is not None
    assert k.grad_fn.name() == NODE
    assert torch.equal(k.view(torch.int32), right.view(torch.int32))
    kept = (k > 0).double()  # what is closed in float32, where k lies at the threshold
    smooth = by_torch(exact, times, 0.0, frame) * kept
    wanted = torch.autograd.grad(smooth, list(exact.values()), incoming.double())
    # Narrow gates amplify the rounding of times: no float32 gradient of theirs is closer than torch's.
    for one, torchs, other in zip(*(torch.autograd.grad(t, list(unit.values()), incoming) for t in (k, right)), wanted):
        assert relative_error(one.double(), other) < 1e-6 + 1.5 * relative_error(torchs.double(), other)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_short_sequences_have_a_table_too(steps):
    unit, times = values(5), torch.arange(1.0, steps + 1)
    k = openness(unit, times, 0.0)
    assert torch.equal(k, by_torch(unit, times, 0.0))
    found, right = (torch.autograd.grad(one.sum(), list(unit.values())) for one in (k, by_torch(unit, times, 0.0)))
    assert all(torch.allclose(one, other, rtol=1e-5) for one, other in zip(found, right, strict=True))


def test_times_that_are_in_no_order_are_left_to_torch():
    unit, times = values(5), torch.tensor([3.0, 1.0, 2.0])
    k = openness(unit, times, 0.0)
    assert k.grad_fn is not None
    assert k.grad_fn.name() != NODE
    assert torch.equal(k, by_torch(unit, times, 0.0))
    assert openness(unit, times.sort().values.flip(0), 0.0).grad_fn.name() == NODE  # pyright: ignore


def test_who_wants_no_gradient_or_one_of_one_value_gets_it():
    unit, times = values(9), torch.arange(1.0, 301)
    both = torch.autograd.grad(openness(unit, times, 0.01).sum(), list(unit.values()))
    for number, name in enumerate(unit):
        some = {other: value if other == name else value.detach() for other, value in unit.items()}
        assert torch.equal(torch.autograd.grad(openness(some, times, 0.01).sum(), some[name])[0], both[number])
    assert openness({name: value.detach() for name, value in unit.items()}, times, 0.01).grad_fn is None


def test_gradients_may_be_differentiated():
    times = torch.arange(1.0, 41)
    small = {"mu": torch.tensor([4.0, 21.0]), "sigma": torch.tensor([6.0, -9.0])}
    found = []
    for dtype in (torch.float32, torch.float64):
        unit = {name: value.to(dtype).requires_grad_() for name, value in small.items()}
        k = openness(unit, times, 0.0)
        first = torch.autograd.grad(k.pow(2).sum(), list(unit.values()), create_graph=True)
        found.append(torch.autograd.grad(torch.stack([part.pow(2).sum() for part in first]).sum(), list(unit.values())))
    assert all(relative_error(one.double(), other) < 1e-4 for one, other in zip(*found, strict=True))
    exact = [value.double().requires_grad_() for value in small.values()]
    assert gradcheck(lambda mu, sigma: openness({"mu": mu, "sigma": sigma}, times, 0.0), exact)


def test_a_charge_for_openness_trains_gates_as_it_does_by_torch():
    """The way that training takes: the layer's own table is charged for."""
    torch.manual_seed(2)
    layer = GLSTM(1, 12, mu=(1.0, 50.0), sigma=5.0, threshold=0.01)
    k = layer.openness(50)[0]
    assert k.grad_fn is not None
    gates = [layer.mu_l0, layer.sigma_l0]
    found = torch.autograd.grad(k.mean(), gates)
    unit = dict(zip(("mu", "sigma"), gates, strict=True))
    right = torch.autograd.grad(by_torch(unit, torch.arange(1.0, 51), 0.01).mean(), gates)
    assert all(relative_error(one, other) < 1e-5 for one, other in zip(found, right, strict=True))


def test_torch_func_goes_another_way():
    unit, times = values(6), torch.arange(1.0, 301)
    mu, sigma = (value.detach() for value in unit.values())

    def total(mu, sigma):
        return openness({"mu": mu, "sigma": sigma}, times, 0.01).sum()

    found = torch.func.grad(total, (0, 1))(mu, sigma)
    right = torch.autograd.grad(by_torch(unit, times, 0.01).sum(), list(unit.values()))
    assert all(relative_error(one, other) < 1e-5 for one, other in zip(found, right, strict=True))
    many = torch.vmap(total, (0, None))(torch.stack((mu, mu + 1)), sigma)
    assert torch.allclose(many[1], total(mu + 1, sigma), rtol=1e-6)
