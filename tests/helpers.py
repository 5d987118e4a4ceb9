"""Small things several tests need."""

import copy
import io
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from commands import glstm_process
from glstm import LSTM


def relative_error(value: Tensor, expected: Tensor) -> float:
    """Largest difference, relative to the largest expected magnitude."""
    assert value.shape == expected.shape, f"{tuple(value.shape)} against {tuple(expected.shape)}"
    value, expected = value.detach(), expected.detach()
    if expected.numel() == 0:
        return 0.0
    scale = expected.abs().max().clamp(min=torch.finfo(expected.dtype).tiny)
    return float((value - expected).abs().max() / scale)


def operator_inputs(steps, batch, inputs, hidden, *, per_sample=False, dtype=torch.float64, bias=True) -> list:
    """x, w_ih, w_hh, b, k, h0, c0, all needing gradients; k lies in (0.05, 0.95)."""
    table = (steps, batch, hidden) if per_sample else (steps, hidden)
    tensors = [
        torch.randn(steps, batch, inputs, dtype=dtype),
        torch.randn(4 * hidden, inputs, dtype=dtype) * 0.4,
        torch.randn(4 * hidden, hidden, dtype=dtype) * 0.4,
        torch.randn(4 * hidden, dtype=dtype) if bias else None,
        torch.rand(table, dtype=dtype) * 0.9 + 0.05,
        torch.randn(batch, hidden, dtype=dtype),
        torch.randn(batch, hidden, dtype=dtype),
    ]
    return [None if tensor is None else tensor.requires_grad_() for tensor in tensors]


def copies(model: torch.nn.Module) -> list[Any]:
    """By copying, and through two kinds of files."""
    written = io.BytesIO()
    torch.save(model, written)
    written.seek(0)
    return [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(written, weights_only=False)]


def glstm_command(*arguments, cwd: Path) -> subprocess.CompletedProcess:
    """The command line in a folder, as its user would call it: modules there are found, nothing else is changed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return glstm_process(*arguments, cwd=cwd, env=environment, safe_path=True)  # as the console script, elsewhere


def twins(dtype=torch.float64, **options):
    """torch's LSTM and ours with the same weights."""
    torch.manual_seed(1)
    theirs = torch.nn.LSTM(3, 5, dtype=dtype, **options)
    torch.manual_seed(1)
    return theirs, LSTM(3, 5, dtype=dtype, **options)
