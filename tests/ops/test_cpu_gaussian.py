"""The Gaussian's table of openness on the C engine, with gradients: beside torch's."""

import pytest
import torch
from torch import Tensor

from glstm import GLSTM
from glstm.gates import Gaussian, apply_threshold
from glstm.ops import cpu
from glstm.timed import table
from glstm.times import Frame
from helpers import relative_error

pytestmark = pytest.mark.skipif(cpu.engine() is None, reason="the C engine is not built here")
NODE = "_TableBackward"
PLAIN = Frame(0.0, 1.0)
Unit = dict[str, Tensor]


def values(units: int, dtype=torch.float32) -> Unit:
    torch.manual_seed(1)
    unit = {"mu": torch.rand(units) * 300, "sigma": torch.randn(units) * 20}
    return {name: value.to(dtype).requires_grad_() for name, value in unit.items()}


def by_layer(unit: Unit, times: Tensor, threshold: float = 0.0, frame: Frame = PLAIN) -> Tensor:
    dtype = unit["mu"].dtype
    return table(Gaussian(), unit, frame, times, threshold, True, len(unit["mu"]), dtype)


def by_engine(unit: Unit, times: Tensor, threshold: float = 0.0, frame: Frame = PLAIN) -> Tensor:
    """The same, and it is the engine that made it."""
    k = by_layer(unit, times, threshold, frame)
    assert k.grad_fn is not None
    assert k.grad_fn.name() == NODE
    return k


def by_torch(unit: Unit, times: Tensor, threshold: float = 0.0, frame: Frame = PLAIN) -> Tensor:
    relative = frame.relative(times, unit["mu"].dtype)
    return apply_threshold(Gaussian().openness(relative, unit, True), threshold).to(unit["mu"].dtype)


def gradients(k: Tensor, unit: Unit, incoming: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(k, list(unit.values()), incoming, retain_graph=True)


@pytest.mark.parametrize("units", [1, 7, 33])
@pytest.mark.parametrize("threshold", [0.0, 0.01, 0.9])
@pytest.mark.parametrize("frame", [PLAIN, Frame(3.0, 1.7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("falling", [False, True])
def test_it_is_torchs_table_to_the_bit_and_its_gradients_are_as_exact(units, threshold, frame, dtype, falling):
    unit, exact = values(units), values(units, torch.float64)
    times, incoming = torch.arange(1.0, 301, dtype=dtype), torch.randn(300, units)
    times = times.flip(0) if falling else times
    k, right = by_engine(unit, times, threshold, frame), by_torch(unit, times, threshold, frame)
    assert torch.equal(k.view(torch.int32), right.view(torch.int32))
    kept = (k > 0).double()  # what is closed in float32, where k lies at the threshold
    smooth = by_torch(exact, times.double(), 0.0, frame) * kept
    wanted = gradients(smooth, exact, incoming.double())
    # The gradient of a narrow gate follows every rounding of its times, so torch's own has an error, too.
    found, torchs = (gradients(one, unit, incoming) for one in (k, right))
    for one, other, true in zip(found, torchs, wanted, strict=True):
        assert relative_error(one.double(), true) < 1e-6 + 2 * relative_error(other.double(), true)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_short_sequences_have_a_table_too(steps):
    unit = {"mu": torch.tensor([1.0, 1.5, 2.5]), "sigma": torch.tensor([1.0, -0.7, 2.0])}
    unit = {name: value.requires_grad_() for name, value in unit.items()}
    times, incoming = torch.arange(1.0, steps + 1), torch.randn(steps, 3)
    k, right = by_engine(unit, times), by_torch(unit, times)
    assert torch.equal(k, right)
    assert bool((k > 0.1).any()) == bool(steps)
    for one, other in zip(gradients(k, unit, incoming), gradients(right, unit, incoming), strict=True):
        assert torch.allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize(
    "times", [torch.tensor([3.0, 1.0, 2.0]), torch.tensor([1.0, float("inf")]), torch.tensor([float("nan")])]
)
def test_times_that_are_in_no_order_are_left_to_torch(times):
    unit = values(5)
    k = by_layer(unit, times)
    assert k.grad_fn is not None
    assert k.grad_fn.name() != NODE
    torch.testing.assert_close(k, by_torch(unit, times), rtol=0, atol=0, equal_nan=True)


def test_values_and_times_may_lie_anywhere_in_memory():
    """Views with gaps, and torch's lazy negation."""
    unit, times = values(9), torch.arange(1.0, 301)
    right = gradients(by_engine(unit, times, 0.01), unit, torch.ones(300, 9))
    rows = torch.stack(list(unit.values()), 1).detach().requires_grad_()
    negated = torch.complex(torch.zeros(300), -times).conj().imag
    assert negated.is_neg()
    k = by_engine({"mu": rows[:, 0], "sigma": rows[:, 1]}, negated, 0.01)
    assert torch.equal(k, by_engine(unit, times, 0.01))
    (found,) = torch.autograd.grad(k.sum(), rows)
    assert torch.equal(found, torch.stack(right, 1))
    layer = GLSTM(2, 9, mu=(1.0, 300.0), sigma=9.0)
    x = torch.randn(300, 2, 2)
    assert torch.equal(layer(x, times=negated)[0], layer(x, times=times)[0])


def test_only_one_value_may_need_a_gradient():
    unit, times = values(9), torch.arange(1.0, 301)
    both = gradients(by_engine(unit, times, 0.01), unit, torch.ones(300, 9))
    for number, name in enumerate(unit):
        some = {other: value if other == name else value.detach() for other, value in unit.items()}
        k = by_engine(some, times, 0.01)
        assert torch.equal(torch.autograd.grad(k.sum(), some[name], retain_graph=True)[0], both[number])
        (again,) = torch.autograd.grad(k.sum(), some[name], create_graph=True)
        assert again.requires_grad
        assert relative_error(again.detach(), both[number]) < 1e-5
    with torch.no_grad():
        assert by_layer(unit, times, 0.01).grad_fn is None


def test_gradients_may_be_differentiated_and_are_of_the_times_as_they_were():
    small = {"mu": torch.tensor([4.0, 21.0]), "sigma": torch.tensor([6.0, -9.0])}
    found = []
    for dtype, make in ((torch.float32, by_engine), (torch.float64, by_torch)):
        unit, base = {name: value.to(dtype).requires_grad_() for name, value in small.items()}, torch.arange(1.0, 81)
        k = make(unit, base[::2].to(dtype))
        if dtype is torch.float32:
            base += 5  # the engine has its own copy
        first = torch.autograd.grad(k.pow(2).sum(), list(unit.values()), create_graph=True)
        found.append(torch.autograd.grad(torch.stack([part.pow(2).sum() for part in first]).sum(), list(unit.values())))
    assert all(relative_error(one.double(), other) < 1e-4 for one, other in zip(*found, strict=True))


def test_training_charges_for_a_table_of_the_engine():
    """What the trainer asks for while it records openness, and what it gets by torch."""
    torch.manual_seed(2)
    layer, x = GLSTM(1, 12, mu=(1.0, 50.0), sigma=5.0, threshold=0.01), torch.randn(50, 3, 1)
    with layer.recording_openness() as tables:
        output, _ = layer(x)
    (k,) = tables
    assert k.grad_fn is not None
    assert k.grad_fn.name() == NODE
    gates = [layer.mu_l0, layer.sigma_l0]
    found = torch.autograd.grad(k.mean() + output.pow(2).sum(), gates)
    unit = {"mu": layer.mu_l0, "sigma": layer.sigma_l0}
    charge = torch.autograd.grad(by_torch(unit, torch.arange(1.0, 51), 0.01).mean(), gates)
    alone = torch.autograd.grad(layer(x)[0].pow(2).sum(), gates)
    for one, *parts in zip(found, charge, alone, strict=True):
        assert relative_error(one, torch.stack(parts).sum(0)) < 1e-5


def test_one_value_for_all_units_has_a_column_for_each_with_and_without_gradients():
    one = {"mu": torch.tensor([3.0], requires_grad=True), "sigma": torch.tensor([2.0], requires_grad=True)}
    times = torch.arange(1.0, 6)
    k = table(Gaussian(), one, PLAIN, times, 0.0, True, 4, torch.float32)
    assert k.shape == (5, 4)
    with torch.no_grad():
        assert torch.equal(k, table(Gaussian(), one, PLAIN, times, 0.0, True, 4, torch.float32))


def test_a_table_has_the_type_of_the_weights():
    unit, times = values(5), torch.arange(1.0, 301)
    k = table(Gaussian(), unit, PLAIN, times, 0.0, True, 5, torch.bfloat16)
    assert k.dtype is torch.bfloat16
    assert torch.equal(k, by_torch(unit, times).bfloat16())


def test_torch_func_goes_another_way():
    unit, times = values(6), torch.arange(1.0, 301)
    mu, sigma = (value.detach() for value in unit.values())

    def total(mu, sigma):
        return by_layer({"mu": mu, "sigma": sigma}, times, 0.01).sum()

    found = torch.func.grad(total, (0, 1))(mu, sigma)
    right = torch.autograd.grad(by_torch(unit, times, 0.01).sum(), list(unit.values()))
    assert all(relative_error(one, other) < 1e-5 for one, other in zip(found, right, strict=True))
    many = torch.vmap(total, (0, None))(torch.stack((mu, mu + 1)), sigma)
    assert torch.allclose(many[1], total(mu + 1, sigma), rtol=1e-6)
