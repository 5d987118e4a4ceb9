"""What the machine's settings come to."""

import pytest
import torch

from glstm.training.fabric import make_fabric, set_matmul


@pytest.fixture(autouse=True)
def restored_precision():
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("choice", ["high", "highest"])
def test_products_on_the_cpu_are_always_exact(choice):
    torch.set_float32_matmul_precision("medium")
    set_matmul(make_fabric("cpu"), choice)
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("choice", ["high", "highest"])
def test_products_on_cuda_are_as_exact_as_was_asked_for(choice):
    set_matmul(make_fabric("cuda"), choice)
    assert torch.get_float32_matmul_precision() == choice
