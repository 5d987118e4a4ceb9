"""Networks of every cell that torch.vmap calls as one: the same as each by itself."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from emulated import started
from glstm.cells import CELLS, fusing
from glstm.masks import Keyed
from glstm.ops.recorded import transforming

NETWORKS, STEPS, BATCH, INPUTS, UNITS = 3, 7, 5, 2, 4
OPTIONS: dict[str, dict[str, Any]] = {
    "clockwork": {"periods": (1, 2, 3)},
    "bn-lstm": {"t_max": 6, "noise": 0.1},
    "skip-lstm": {},
    "skip-gru": {},
    "lstm-jump": {"read": 2, "jumps": 2, "furthest": 3},
    "indrnn": {},
    "mingru": {},
    "tcn": {"kernel_size": 3},
    "zoneout": {},
    "r-lstm": {"reconstruct": 3, "truncate": 2},
}
LENGTHS = torch.tensor([7, 3, 0, 5, 1])


def make(name: str, layers: int, seed: int, dtype: torch.dtype = torch.float64) -> Any:
    torch.manual_seed(seed)
    cell: Any = CELLS[name](INPUTS, UNITS, layers, **OPTIONS[name])
    for value in cell.parameters():
        value.data += 0.3 * torch.randn_like(value)
    return cell.to(dtype)


def called(cell: nn.Module, x: Tensor, lengths: Tensor | None, values: dict[str, Tensor], key: Tensor) -> Tensor:
    """One number of the output, of the state, and of what the cell adds to a loss or charges a budget for."""
    for module in cell.modules():
        if isinstance(module, Keyed):
            module.key = key
    padding: dict[str, Any] = {} if lengths is None else {"lengths": lengths}
    output, state = functional_call(cell, values, (x,), padding)
    state = [state] if isinstance(state, Tensor) else state
    valid = 1 if lengths is None else (torch.arange(len(x))[:, None] < lengths).unsqueeze(-1)
    parts = [output * valid, *state]
    found = sum((part * torch.arange(part.numel()).sin().view(part.shape).to(x)).sum() for part in parts)
    share, extra = getattr(cell, "share_of_updates", None), getattr(cell, "extra_losses", None)
    if share is not None:
        found = found + share
    if extra is not None and cell.training:
        found = found + extra(torch.linspace(0, 1, BATCH).to(x), None).sum()
    for name in getattr(cell, "of_last_call", ()):
        setattr(cell, name, None)
    return torch.as_tensor(found)


def compare(name: str, layers: int, lengths: Tensor | None, training: bool, dtype: torch.dtype = torch.float64) -> None:
    """All networks by one call, against each by itself: the number, its gradients, and what a call changes."""
    cells = [make(name, layers, seed, dtype).train(training) for seed in range(NETWORKS)]
    x = torch.randn(STEPS, BATCH, INPUTS, dtype=dtype)
    keys = torch.arange(NETWORKS) * 12345
    own = [{part: value.detach().clone() for part, value in cell.state_dict(keep_vars=True).items()} for cell in cells]
    own = [values | {part: value.clone() for part, value in cell.named_buffers()} for values, cell in zip(own, cells)]
    trained = [part for part, _ in cells[0].named_parameters()]
    stacked = {part: torch.stack([values[part] for values in own]) for part in own[0]}
    for values in (stacked, *own):
        for part in trained:
            values[part].requires_grad_()
    found = torch.vmap(partial(called, cells[0], x, lengths))(stacked, keys)
    slopes = torch.autograd.grad(found.sum(), [stacked[part] for part in trained], materialize_grads=True)
    error = 1e-9 if dtype == torch.float64 else 1e-4
    for number, (cell, values) in enumerate(zip(cells, own, strict=True)):
        alone = called(cell, x, lengths, values, keys[number])
        torch.testing.assert_close(found[number], alone, rtol=error, atol=error)
        of_alone = torch.autograd.grad(alone, [values[part] for part in trained], materialize_grads=True)
        for part, slope, right in zip(trained, slopes, of_alone, strict=True):
            torch.testing.assert_close(slope[number], right, rtol=error, atol=error, msg=part)
        for part, value in values.items():
            torch.testing.assert_close(stacked[part][number], value, rtol=error, atol=error, msg=part)


@pytest.mark.parametrize("training", [True, False], ids=["train", "test"])
@pytest.mark.parametrize("name", OPTIONS)
def test_one_call_for_all_networks(name, training):
    compare(name, 1, None, training)
    compare(name, 2, LENGTHS, training)


@pytest.mark.parametrize("layers", [1, 2])
def test_normalised_networks_by_one_kernel_a_step(emulated, layers):
    """One launch a step for all networks, and not one more than for a single one."""
    emulated(1)
    compare("bn-lstm", layers, None, True, torch.float32)
    kernels = [name for name in ("bn_forward", "bn_backward") for _ in range(STEPS * layers)]
    assert started == kernels * (1 + NETWORKS)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # which torch's compiler looks at
@pytest.mark.parametrize("name", ["skip-lstm", "lstm-jump"])
def test_what_is_compiled_for_all(name, monkeypatch):
    """As on a GPU, where a step is compiled whole for all networks; without the kernels that torch would make of it."""
    compiled = []

    def compile_(function, **options):
        compiled.append(function.__code__.co_name)
        return torch_compile(function, backend="eager", **options)

    torch_compile = torch.compile
    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(fusing, "_compiles", lambda tensor: transforming() and not torch.compiler.is_compiling())
    for cache in (fusing._compiled, fusing._compiled_for_all):
        cache.cache_clear()
    compare(name, 1, None, True)
    assert compiled
    for cache in (fusing._compiled, fusing._compiled_for_all):
        cache.cache_clear()
