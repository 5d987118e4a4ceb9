"""A model folder: `model.safetensors`, and in `config.json` what it takes to build the network. Never pickle.

A run folder of `glstm train` is also a model folder: its config.json holds more, and is read here as well. Of a run
that is being trained, both files are of the same save.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from glstm.describe import build, check_sizes, describe, device_for
from glstm.errors import UserError
from glstm.forms import in_short, parse, read_text
from glstm.models import SequenceModel
from glstm.saves import current, read_current
from glstm.storage import write_together

FORMAT = 2  # of config.json, in model folders and run folders alike
CONFIG, WEIGHTS = "config.json", "model.safetensors"


def save_pretrained(model: SequenceModel, folder: Path | str) -> None:
    """Write both files, or neither if one cannot be written. A run's folder is not overwritten."""
    folder = Path(folder)
    config = {"format": FORMAT, "model": describe(model)}
    if (current(folder) / CONFIG).exists() and "settings" in read_json(current(folder) / CONFIG):
        raise UserError(f"{folder} holds a run, and is a model folder already: choose another folder")
    content = {WEIGHTS: serialized(model.state_dict()), CONFIG: (json.dumps(config, indent=2) + "\n").encode()}
    write_together(folder, content)


def from_pretrained(folder: Path | str) -> SequenceModel:
    """The network in a model folder, in evaluation mode."""
    model = load_model(folder)
    if not isinstance(model, SequenceModel):
        raise UserError(f"{folder} holds a {type(model).__name__}, not a SequenceModel: a layer and its head")
    return model


def load_model(folder: Path | str, weights: str = WEIGHTS) -> nn.Module:
    """The network in a model folder or a run folder, in evaluation mode. `weights`: the file of its values, if it is
    there."""
    return read_current(Path(folder), lambda save: _load_model(save, weights))


def _load_model(folder: Path, weights: str) -> nn.Module:
    model = described_model(folder, _config_in(folder))
    path = folder / weights
    load_values(path if path.exists() else folder / WEIGHTS, model)
    return model.eval()


def described_model(folder: Path, config: dict[str, Any]) -> nn.Module:
    """As the config describes it; of known parts without values, which costs nothing, however large it says it is."""
    if not isinstance(config.get("model"), dict):
        why = config.get("model_cannot_be_described")
        raise UserError(f"{folder / CONFIG} does not describe a model{f': {why}' if isinstance(why, str) else ''}")
    try:
        if (device := device_for(config["model"])) == "cpu":
            check_sizes(config["model"], _numbers_in(folder / WEIGHTS))
        return build(config["model"], device)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, MemoryError) as error:
        if isinstance(error, UserError) and str(folder) in str(error):
            raise
        raise UserError(f"{folder / CONFIG} describes no network that can be built: {_short(error)}") from None


def _numbers_in(path: Path) -> int:
    """As the head of a file of tensors says."""
    with _opened(path) as file:
        return sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a model folder or a run folder, if it is of this version."""
    return read_current(folder, _config_in)


def _config_in(folder: Path) -> dict[str, Any]:
    config = read_json(folder / CONFIG)
    if config.get("format") != FORMAT:
        raise UserError(
            f"{folder / CONFIG} is not of this version of glstm: it should say format {FORMAT}, and says "
            f"{config.get('format')!r:.20}"
        )
    return config


def read_json(path: Path) -> dict[str, Any]:
    """One JSON object."""
    try:
        found = parse(read_text(path))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path.parent} is not a model folder: there is no {path.name} in it") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {in_short(error)}") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} holds no description: it should be one JSON object")
    return found


def serialized(values: dict[str, Tensor]) -> bytes:
    """A model's state_dict."""
    return save(plain(values), {"format": "pt"})


def load_values(path: Path, model: nn.Module) -> None:
    fill(path, model, read_tensors(path)[0])


def plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """As a file holds them: each by itself, also those that share their memory, as tied parameters do."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        found[name] = tensor.clone() if tensor.data_ptr() in seen else tensor
        seen.add(tensor.data_ptr())
    return found


def fill(path: Path, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Give the model the values that were read from `path`. Names, shapes and types must match exactly."""
    own = model.state_dict()
    if forms(tensors) != forms(own):
        raise UserError(f"{path} does not fit the network that {CONFIG} beside it describes")
    without_values = any(value.is_meta for value in own.values())
    model.load_state_dict(tensors, assign=without_values)


def forms(tensors: dict[str, Tensor]) -> dict[str, tuple]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Its tensors and its metadata."""
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, "pt") as file:
            yield file
    except FileNotFoundError:
        raise UserError(f"there is no {path.name} in {path.parent}") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read as safetensors: {_short(error)}") from None


def _short(error: Exception) -> str:
    return f"{type(error).__name__} {str(error).splitlines()[0] if str(error) else ''}".strip()
