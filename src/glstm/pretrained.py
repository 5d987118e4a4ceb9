"""A model folder: `model.safetensors`, and in `config.json` what it takes to build the network. Never pickle.

A run folder of `glstm train` is one, too.
"""

import json
import math
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
from glstm.storage import write_atomically, write_json

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
MOST_VALUES = 2**31  # in a network: a file that asks for more is no model of anybody's

_LAYERS: dict[type[Gate], type[GatedLSTM]] = {Gaussian: GLSTM, Phased: PLSTM, Open: LSTM}
_GATES: dict[str, type[Gate]] = {gate.__name__: gate for gate in (Gaussian, Phased, Open, Clockwork)}
_SHAPE = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "candidate")


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


def build(description: dict[str, Any]) -> SequenceModel:
    """A network of that description, with fresh values."""
    own = dict(description["layer"])
    gate, threshold, alpha = _GATES[own.pop("gate")], own.pop("threshold"), own.pop("alpha", None)
    sizes = [own["input_size"], own["hidden_size"], own["num_layers"]]
    whole = all(isinstance(size, int) and size > 0 for size in sizes)
    if not whole or math.prod(sizes) * sizes[1] > MOST_VALUES:
        raise ValueError(f"a layer cannot have the sizes {sizes}")
    with torch.random.fork_rng(devices=[]):
        if gate in _LAYERS:
            more = {"alpha": alpha} if alpha is not None else {}
            layer = _LAYERS[gate](**own, **more)
        else:
            layer = GatedLSTM(**own, gate=gate())
        layer.threshold = threshold
        model = SequenceModel(layer, _make_head(**description["head"]))
    return model.to(getattr(torch, description["dtype"]))


def save_pretrained(model: SequenceModel, folder: Path | str) -> None:
    """Each file is whole or not there; config.json comes last, so that a folder that has one is complete."""
    folder = Path(folder)
    save_values(folder / WEIGHTS, model)
    write_json(folder / CONFIG, {"format": FORMAT, "model": describe(model)})


def from_pretrained(folder: Path | str) -> SequenceModel:
    """The network in a model folder, in evaluation mode."""
    folder = Path(folder)
    config = read_config(folder / CONFIG)
    if config.get("format") != FORMAT or not isinstance(config.get("model"), dict):
        raise UserError(
            f"{folder / CONFIG} does not describe a model of this version: it should say format {FORMAT}, and the model"
        )
    try:
        model = build(config["model"])
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, UserError) as error:
        raise UserError(f"{folder / CONFIG} describes no network that can be built: {_short(error)}") from None
    load_values(folder / WEIGHTS, model)
    return model.eval()


def read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{path.parent} is not a model folder: there is no {path.name} in it") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {_short(error)}") from None
    if not isinstance(config, dict):
        raise UserError(f"{path} holds no description: it should be one JSON object")
    return config


def save_values(path: Path, model: nn.Module) -> None:
    write_atomically(path, save(plain(model.state_dict()), {"format": "pt"}))


def load_values(path: Path, model: nn.Module) -> None:
    fill(path, model, read_tensors(path)[0])


def plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """As a file holds them."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def fill(path: Path, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Give the model the values that were read from `path`: just its own, in their shapes."""
    own = model.state_dict()
    if {name: value.shape for name, value in tensors.items()} != {name: value.shape for name, value in own.items()}:
        raise UserError(f"{path} does not fit the network that {CONFIG} beside it describes")
    model.load_state_dict(tensors)


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
            case nn.Linear():
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
