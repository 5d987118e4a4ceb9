"""Appendix A: the right gradient, and that the printed one is not."""

import pytest
import torch

from glstm import GRNN
from glstm.rnn import recurrent_gradient

STEPS = 9


def final_state(x, k, w_x, w_h):
    h = torch.zeros_like(w_h)
    for x_n, k_n in zip(x, k, strict=True):
        h = k_n * torch.tanh(w_x * x_n + w_h * h) + (1 - k_n) * h
    return h


def printed_gradient(x, k, w_x, w_h):
    """The paper's equation with its extra term, prod_n (k_n W_h f'_n + 1 - k_n): that term, and the whole."""
    product, total, h = torch.ones_like(w_h), torch.zeros_like(w_h), torch.zeros_like(w_h)
    for x_n, k_n in zip(x, k, strict=True):
        new = torch.tanh(w_x * x_n + w_h * h)
        slope = 1 - new**2
        carry = k_n * w_h * slope + 1 - k_n
        product, total = product * carry, total * carry + k_n * slope * h
        h = k_n * new + (1 - k_n) * h
    return product, product + total


def case(open_steps):
    k = torch.zeros(STEPS, dtype=torch.float64)
    k[[n - 1 for n in open_steps]] = 1
    return k


CASES = {
    "1: open at step 5": case([5]),
    "2: open at steps 2 to 6": case([2, 3, 4, 5, 6]),
    "always open": torch.ones(STEPS, dtype=torch.float64),
    "Gaussian": torch.exp(-((torch.arange(1, STEPS + 1, dtype=torch.float64) - 4) ** 2) / 9),
}


@pytest.fixture
def unit():
    x = torch.randn(STEPS, dtype=torch.float64)
    return x, torch.tensor(0.4, dtype=torch.float64), torch.tensor(0.9, dtype=torch.float64)


@pytest.mark.parametrize("k", CASES.values(), ids=CASES.keys())
def test_the_corrected_gradient_is_the_derivative(unit, k):
    x, w_x, w_h = unit
    step = 1e-6
    by_differences = (final_state(x, k, w_x, w_h + step) - final_state(x, k, w_x, w_h - step)) / (2 * step)
    assert recurrent_gradient(x, k, w_x, w_h).item() == pytest.approx(by_differences.item(), abs=1e-9)
    leaf = w_h.clone().requires_grad_()
    final_state(x, k, w_x, leaf).backward()
    assert leaf.grad is not None
    assert recurrent_gradient(x, k, w_x, w_h).item() == pytest.approx(leaf.grad.item(), abs=1e-14)


@pytest.mark.parametrize("k", CASES.values(), ids=CASES.keys())
def test_the_printed_gradient_is_wrong(unit, k):
    """It is off by exactly its first product, which is far from zero."""
    x, w_x, w_h = unit
    leaf = w_h.clone().requires_grad_()
    final_state(x, k, w_x, leaf).backward()
    assert leaf.grad is not None
    product, printed = printed_gradient(x, k, w_x, w_h)
    excess = printed - leaf.grad
    assert excess.item() == pytest.approx(product.item(), abs=1e-14)
    assert abs(excess.item()) > 1e-3 * abs(leaf.grad.item())


def test_the_closed_forms_of_the_two_cases_are_wrong_too(unit):
    """Case 1 as printed: f'_5 W (1 + f'_5 h_4). With h_4 = 0 the derivative is 0, the printed value is not."""
    x, w_x, w_h = unit
    slope = 1 - torch.tanh(w_x * x[4]) ** 2
    assert recurrent_gradient(x, CASES["1: open at step 5"], w_x, w_h) == 0
    assert abs(slope * w_h) > 0.1


def test_the_layer_computes_the_equation_and_learns_its_gate():
    layer = GRNN(3, 4, mu=(1, 6), sigma=3.0, dtype=torch.float64)
    x = torch.randn(6, 2, 3, dtype=torch.float64)
    outputs, last = layer(x)
    assert torch.equal(outputs[-1], last)
    h = torch.zeros(2, 4, dtype=torch.float64)
    for n in range(6):
        k = torch.exp(-((n + 1 - layer.mu) ** 2) / layer.sigma**2)
        h = k * torch.tanh(x[n] @ layer.cell.weight_ih.T + h @ layer.cell.weight_hh.T) + (1 - k) * h
        assert torch.allclose(outputs[n], h, atol=1e-7)
    last.sum().backward()
    assert all(parameter.grad is not None and (parameter.grad != 0).any() for parameter in layer.parameters())
    empty, start = layer(x[:0])
    assert empty.shape == (0, 2, 4)
    assert (start == 0).all()
