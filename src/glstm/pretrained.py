"""A model folder: `model.safetensors`, and in `config.json` what it takes to build the network. Never pickle.

A run folder of `glstm train` is one, too.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from glstm.errors import UserError
from glstm.gated import GatedLSTM
from glstm.gates import Clockwork, Gate, Gaussian, Open, Phased
from glstm.layers import GLSTM, LSTM, PLSTM
from glstm.models import DropConnect, SequenceModel
from glstm.storage import write_atomically, write_together

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
DTYPES = {
    str(dtype).removeprefix("torch."): dtype for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
}

_LAYERS: dict[type[Gate], type[GatedLSTM]] = {Gaussian: GLSTM, Phased: PLSTM, Open: LSTM}
_GATES: dict[str, type[Gate]] = {gate.__name__: gate for gate in (Gaussian, Phased, Open, Clockwork)}
# What describes a layer, and of which type each entry is.
_SHAPE = {
    "input_size": int, "hidden_size": int, "num_layers": int, "bias": bool, "batch_first": bool, "dropout": float,
    "bidirectional": bool, "candidate": str,
}  # fmt: skip
_MOST_LAYERS, _MOST_UNITS = 1000, 2**20  # what is built takes some memory and time even without values


def describe(model: SequenceModel) -> dict[str, Any]:
    """What `build` makes the same network from, its values aside."""
    layer = model.layer
    gate = type(layer.gate).__name__
    if _GATES.get(gate) is not type(layer.gate):
        raise UserError(f"a gate of the kind {gate} cannot be described: there are {', '.join(_GATES)}")
    own = {name: getattr(layer, name) for name in _SHAPE} | {"threshold": layer.threshold, "gate": gate}
    if isinstance(layer.gate, Phased):
        own["alpha"] = layer.gate.alpha
    return {
        "dtype": str(layer.weight_hh_l0.dtype).removeprefix("torch."),
        "layer": own,
        "head": _describe_head(model.head),
    }


def build(description: dict[str, Any], device: str = "cpu") -> SequenceModel:
    """A network of that description, with fresh values; on the device 'meta' with none, whatever its size is."""
    own = {name: _checked(description["layer"], name, kind) for name, kind in _SHAPE.items()}
    if unknown := set(description["layer"]) - {*_SHAPE, "gate", "threshold", "alpha"}:
        raise ValueError(f"a layer has no {min(unknown)}")
    if own["num_layers"] > _MOST_LAYERS or own["hidden_size"] > _MOST_UNITS:
        raise ValueError(f"{own['num_layers']} layers of {own['hidden_size']} units are too many")
    gate, dtype = _GATES[description["layer"]["gate"]], DTYPES[description["dtype"]]
    more = {"alpha": _checked(description["layer"], "alpha", float)} if gate is Phased else {}
    with torch.random.fork_rng(devices=[]), torch.device(device):
        layer = _LAYERS[gate](**own, **more) if gate in _LAYERS else GatedLSTM(**own, gate=gate())
        layer.threshold = _checked(description["layer"], "threshold", float)
        model = SequenceModel(layer, _make_head(**description["head"]))
    return model.to(dtype)


def _checked(entries: dict[str, Any], name: str, kind: type) -> Any:
    value = entries[name]
    value = float(value) if kind is float and type(value) is int else value
    if type(value) is not kind:
        raise TypeError(f"{name} must be of type {kind.__name__}, not {value!r:.50}")
    return value


def save_pretrained(model: SequenceModel, folder: Path | str) -> None:
    """Both files, or, where something is in the way of that, neither. A run's folder is not written over."""
    folder = Path(folder)
    config = {"format": FORMAT, "model": describe(model)}
    if (folder / CONFIG).exists() and "recipe" in read_config(folder / CONFIG):
        raise UserError(f"{folder} holds a run, and is a model folder already: choose another folder")
    content = {WEIGHTS: serialized(model), CONFIG: (json.dumps(config, indent=2) + "\n").encode()}
    write_together(folder, content)


def from_pretrained(folder: Path | str) -> SequenceModel:
    """The network in a model folder, in evaluation mode."""
    folder = Path(folder)
    config = read_config(folder / CONFIG)
    if config.get("format") != FORMAT or not isinstance(config.get("model"), dict):
        raise UserError(
            f"{folder / CONFIG} does not describe a model of this version: it should say format {FORMAT}, and the model"
        )
    try:
        model = build(config["model"], "meta")  # which costs nothing, however large it says it is
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError, UserError) as error:
        raise UserError(f"{folder / CONFIG} describes no network that can be built: {_short(error)}") from None
    load_values(folder / WEIGHTS, model)
    return model.eval()


def read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{path.parent} is not a model folder: there is no {path.name} in it") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {_short(error)}") from None
    if not isinstance(config, dict):
        raise UserError(f"{path} holds no description: it should be one JSON object")
    return config


def serialized(model: nn.Module) -> bytes:
    return save(plain(model.state_dict()), {"format": "pt"})


def save_values(path: Path, model: nn.Module) -> None:
    write_atomically(path, serialized(model))


def load_values(path: Path, model: nn.Module) -> None:
    fill(path, model, read_tensors(path)[0])


def plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """As a file holds them."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def fill(path: Path, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Give the model the values that were read from `path`: just its own, in their shapes and types."""
    own = model.state_dict()
    if _forms(tensors) != _forms(own):
        raise UserError(f"{path} does not fit the network that {CONFIG} beside it describes")
    without_values = any(value.is_meta for value in own.values())
    model.load_state_dict(tensors, assign=without_values)


def _forms(tensors: dict[str, Tensor]) -> dict[str, tuple]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Its tensors and its metadata."""
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except FileNotFoundError:
        raise UserError(f"there is no {path.name} in {path.parent}") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read as safetensors: {_short(error)}") from None


def _short(error: Exception) -> str:
    return f"{type(error).__name__} {str(error).splitlines()[0] if str(error) else ''}".strip()


def _describe_head(head: nn.Module) -> dict[str, Any]:
    sequential = isinstance(head, nn.Sequential)
    parts: list[Any] = list(head) if sequential else [head]
    found = []
    for part in parts:
        match part:
            case nn.Linear() if type(part) in (nn.Linear, DropConnect):
                kind = {"kind": "Linear", "inputs": part.in_features, "outputs": part.out_features}
                drop = {"drop_connect": part.p} if isinstance(part, DropConnect) else {}
                found.append(kind | {"bias": part.bias is not None} | drop)
            case nn.ReLU():
                found.append({"kind": "ReLU"})
            case nn.Dropout():
                found.append({"kind": "Dropout", "p": part.p})
            case _:
                name = type(part).__name__
                raise UserError(f"a head of Linear, ReLU and Dropout can be described, but this one has a {name}")
    return {"sequential": sequential, "parts": found}


def _make_head(sequential: bool, parts: list[dict[str, Any]]) -> nn.Module:
    if not parts:
        raise ValueError("a head has at least one part")
    modules = [_make_part(**part) for part in parts]
    return nn.Sequential(*modules) if sequential else modules[0]


def _make_part(kind: str, **own: Any) -> nn.Module:
    match kind:
        case "Linear" if "drop_connect" in own:
            return DropConnect(own["inputs"], own["outputs"], own["drop_connect"])
        case "Linear":
            return nn.Linear(own["inputs"], own["outputs"], own["bias"])
        case "ReLU":
            return nn.ReLU()
        case "Dropout":
            return nn.Dropout(own["p"])
        case _:
            raise ValueError(f"there is no part {kind!r} of a head")
