"""What tests of several engines need."""

import pytest
import torch


@pytest.fixture
def precision(request):
    """How exactly CUDA multiplies float32 matrices, as torch's own setting says it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield request.param
    torch.set_float32_matmul_precision(before)
