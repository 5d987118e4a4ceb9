"""Everything that a stopped run needs to continue as if it had not stopped, in one safetensors file. Never pickle."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor, nn

from glstm.errors import UserError
from glstm.pretrained import fill, forms, plain, read_tensors
from glstm.training.checked import check_progress

FORMAT = "3"


def checkpoint(
    model: nn.Module, optimizer: dict[str, Tensor], extra: dict[str, Tensor], progress: dict[str, Any]
) -> bytes:
    """`optimizer` is the optimiser's state, `extra` further tensors; `progress` is anything JSON can hold."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"optimizer.{name}": tensor for name, tensor in optimizer.items()}
    tensors |= {f"extra.{name}": tensor for name, tensor in extra.items()}
    return save(plain(tensors), {"glstm": FORMAT, "progress": json.dumps(progress)})


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: dict[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Fills the model and the optimiser's state; returns `extra` and `progress`."""
    tensors, metadata = read_tensors(path)
    if metadata.get("glstm") != FORMAT:
        raise UserError(f"{path} is not a checkpoint of this version: its format is {metadata.get('glstm')!r}")
    fill(path, model, _below(tensors, "model"))
    kept = _below(tensors, "optimizer")
    if forms(kept) != forms(optimizer):
        raise UserError(f"{path} does not fit the network and the optimiser that config.json beside it describes")
    for name, tensor in kept.items():
        optimizer[name].copy_(tensor)
    return _below(tensors, "extra"), check_progress(path, metadata.get("progress"))


def read_extra(path: Path) -> dict[str, Tensor]:
    """The loop's own tensors of a checkpoint, such as the gates before training."""
    return _below(read_tensors(path)[0], "extra")


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    start = prefix + "."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
