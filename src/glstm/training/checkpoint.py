"""Everything a stopped run needs to go on as if it had not stopped, in one safetensors file. Never pickle."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from glstm.errors import UserError
from glstm.storage import write_atomically

FORMAT = "2"


def save_model(path: Path, model: nn.Module) -> None:
    write_atomically(path, save(_plain(model.state_dict()), {"format": "pt"}))


def load_model(path: Path, model: nn.Module) -> None:
    tensors, _ = _read(path)
    _fill(path, model, tensors)


def save_checkpoint(
    path: Path, model: nn.Module, optimizer: dict[str, Tensor], extra: dict[str, Tensor], progress: dict[str, Any]
) -> None:
    """`optimizer` is the optimiser's state, `extra` further tensors; `progress` is anything JSON can hold."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"optimizer.{name}": tensor for name, tensor in optimizer.items()}
    tensors |= {f"extra.{name}": tensor for name, tensor in extra.items()}
    write_atomically(path, save(_plain(tensors), {"glstm": FORMAT, "progress": json.dumps(progress)}))


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: dict[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Fills the model and the optimiser's state; returns `extra` and `progress`."""
    tensors, metadata = _read(path)
    if metadata.get("glstm") != FORMAT:
        raise UserError(f"{path} is not a checkpoint of this version: its format is {metadata.get('glstm')!r}")
    _fill(path, model, _below(tensors, "model"))
    kept = _below(tensors, "optimizer")
    if {name: tensor.shape for name, tensor in kept.items()} != {name: own.shape for name, own in optimizer.items()}:
        raise UserError(f"{path} does not fit the network and the optimiser that config.json beside it describes")
    for name, tensor in kept.items():
        optimizer[name].copy_(tensor)
    return _below(tensors, "extra"), json.loads(metadata["progress"])


def read_extra(path: Path) -> dict[str, Tensor]:
    """The loop's own tensors of a checkpoint, such as the gates before training."""
    return _below(_read(path)[0], "extra")


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    start = prefix + "."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def _plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, "pt") as file:
            names = list(file.keys())
            return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
    except FileNotFoundError:
        raise UserError(f"there is no {path.name} in {path.parent}") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read as safetensors: {error}") from None


def _fill(path: Path, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    try:
        model.load_state_dict(tensors)
    except RuntimeError:
        raise UserError(f"{path} does not fit the network that config.json beside it describes") from None
