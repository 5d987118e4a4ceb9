"""The optimisers are torch.optim's, on all values of all networks at once."""

import pytest
import torch

from glstm.training.optimizers import EPSILON, OPTIMIZERS, root
from glstm.training.settings import Settings

TORCH = {
    "sgd": lambda groups, _: torch.optim.SGD(groups),
    "rmsprop": lambda groups, own: torch.optim.RMSprop(groups, alpha=own.decay),
    "adam": lambda groups, _: torch.optim.Adam(groups),
}


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_each_row_moves_as_torchs_own_would_move_it(name, dtype, tolerance):
    settings = [
        Settings(optimizer=name, decay=decay, lr=lr, gate_lr=gate)
        for decay, lr, gate in ((0.5, 1e-2, 0.3), (0.9, 1e-3, 0.0), (0.99, 0.1, 0.1))
    ]
    values = torch.randn(3, 7, dtype=dtype)
    rates = torch.tensor([[own.lr] * 5 + [own.gate_lr] * 2 for own in settings], dtype=dtype)
    rows = [[row[:5].clone().requires_grad_(), row[5:].clone().requires_grad_()] for row in values]
    expected = [
        TORCH[name]([{"params": [a], "lr": own.lr}, {"params": [b], "lr": own.gate_lr}], own)
        for (a, b), own in zip(rows, settings, strict=True)
    ]
    mine = OPTIMIZERS[name](values, values.new_tensor([[own.decay] for own in settings]))
    for count in range(1, 30):
        gradient = torch.randn(3, 7, dtype=dtype)
        mine.step(values, gradient, rates, torch.tensor(count))
        for (a, b), row, optimizer in zip(rows, gradient, expected, strict=True):
            a.grad, b.grad = row[:5], row[5:]
            optimizer.step()
        theirs = torch.stack([torch.cat(row) for row in rows]).detach()
        assert (values - theirs).abs().max() < tolerance * theirs.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_root_of_what_has_faded_adds_the_same_to_epsilon(dtype):
    """Bit for bit: from 0 and the least subnormal number on."""
    smallest = torch.finfo(dtype).smallest_normal
    faded = torch.cat((torch.zeros(3, dtype=dtype), torch.logspace(-330, 30, 5000, dtype=torch.float64).to(dtype)))
    assert ((faded > 0) & (faded < smallest)).any()
    assert torch.equal(root(faded) + EPSILON, faded.sqrt() + EPSILON)
    assert root(torch.tensor([float("nan"), float("inf")], dtype=dtype)).isnan().tolist() == [True, False]


@pytest.mark.parametrize("name", ["rmsprop", "adam"])
def test_a_weight_whose_squares_have_faded_moves_as_torchs(name):
    """While they are subnormal numbers or 0, its gradients are so small that epsilon alone divides them."""
    own = Settings(optimizer=name, decay=0.5, lr=1e-3)
    gradient = torch.tensor([1e-25, 1e-22, 3e-20, 1e-12, 0.0, 1.0])
    value, theirs = torch.zeros(1, 6), torch.zeros(6, requires_grad=True)
    expected = TORCH[name]([{"params": [theirs], "lr": own.lr}], own)
    mine = OPTIMIZERS[name](value, value.new_tensor([[own.decay]]))
    for count in range(1, 4):
        mine.step(value, gradient[None], torch.full_like(value, own.lr), torch.tensor(count))
        theirs.grad = gradient
        expected.step()
    assert (mine.state["square"] < torch.finfo(torch.float32).tiny).sum() == 4
    right = theirs.detach()
    assert ((value[0] - right).abs() <= 2e-6 * right.abs()).all()
