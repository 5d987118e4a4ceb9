"""The same on a CUDA device, where there is one."""

import pytest
import torch

from glstm import GLSTM
from glstm.data import Adding
from glstm.training.fabric import make_fabric
from glstm.training.loop import Trainer
from glstm.training.recipe import Recipe
from glstm.training.run import RunFolder
from helpers import relative_error

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def test_a_layer_on_the_device_equals_one_on_the_cpu():
    layer = GLSTM(3, 5, 2, bidirectional=True, mu=(1, 9), sigma=3.0, threshold=0.05, dtype=torch.float64)
    x = torch.randn(9, 4, 3, dtype=torch.float64)
    results = []
    for device in ("cpu", "cuda"):
        there = GLSTM(3, 5, 2, bidirectional=True, threshold=0.05, dtype=torch.float64, device=device)
        there.load_state_dict(layer.state_dict())
        output, (h_n, c_n) = there(x.to(device))
        (output.sin().sum() + h_n.sum() + c_n.sum()).backward()
        results.append([output, h_n, c_n, *(parameter.grad for parameter in there.parameters())])
    for mine, expected in zip(results[1], results[0], strict=True):
        assert mine.is_cuda
        assert relative_error(mine.cpu(), expected) < 1e-11


def test_the_adding_task_is_made_where_it_is_trained_on(tmp_path):
    task = Adding(30, device="cuda")
    x, y = task.batch("train", 10, 0, 1, 0)
    assert x.is_cuda
    assert torch.allclose((x[..., 0] * x[..., 1]).sum(0), y)
    recipe = Recipe("adding", steps=30, units=8, train_size=50, test_size=20, batch=10, epochs=2)
    folder = RunFolder(tmp_path / "run")
    trainer = Trainer(recipe, folder, make_fabric("cuda"))
    trainer.begin(device="cuda")
    assert trainer.fit()
    assert next(trainer.model.parameters()).is_cuda
    assert not next(folder.load_model().parameters()).is_cuda
