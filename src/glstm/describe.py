"""Modules and gates as JSON, and back: which class it is, and what it was made with. Values are not part of it.

The convention is that of many libraries: a module stores every argument of its constructor as an attribute of the same
name. `torch.nn`'s modules do so, and a cell of your own that does can be saved. Only modules and gates are ever made
from a description; a class of your own must be in a module that is imported already, or trusted (`glstm.registry`).
"""

import inspect
from importlib import import_module
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from glstm.errors import UserError
from glstm.gated import GatedLSTM
from glstm.gates import Gate
from glstm.registry import import_class, path_of
from glstm.times import Span
from glstm.weights import TIME_FRAME

DTYPES = {
    str(dtype).removeprefix("torch."): dtype for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
}
PUBLIC = ("glstm", "torch.nn")  # a public class of these is named by the package, not by the module that defines it
COMPUTING = ("glstm.cells.clockwork",)  # modules of ours whose classes keep tensors that no file holds
NOT_OPTIONS = ("self", "device", "dtype", "backend", "args", "kwargs")
# torch's own recurrent layers take *args; these are their options.
_RECURRENT: dict[str, Any] = {
    "input_size": inspect.Parameter.empty, "hidden_size": inspect.Parameter.empty, "num_layers": 1, "bias": True,
    "batch_first": False, "dropout": 0.0, "bidirectional": False,
}  # fmt: skip
TORCHS_RECURRENT: dict[type, dict[str, Any]] = {
    nn.LSTM: _RECURRENT | {"proj_size": 0},
    nn.GRU: _RECURRENT,
    nn.RNN: _RECURRENT | {"nonlinearity": "tanh"},
}
SIZES = ("input_size", "hidden_size", "in_features", "out_features", "size")
# What is built takes some memory and time even without values.
MOST = {"num_layers": 200, "hidden_size": 2**20}
MOST_OF_ANY = 2**31


def describe(model: nn.Module) -> dict[str, Any]:
    """The description from which `build` makes the same model, except for its values."""
    values = [value for name, value in model.state_dict().items() if name.split(".")[-1] != TIME_FRAME]
    dtypes = {tensor.dtype for tensor in values if tensor.is_floating_point()}
    if len(dtypes) != 1 or str(*dtypes).removeprefix("torch.") not in DTYPES:
        found = ", ".join(sorted(map(str, dtypes))) or "none"
        raise UserError(f"a model is saved if all its values have one floating type, but here they have {found}")
    description = {"dtype": str(*dtypes).removeprefix("torch."), **_module(model)}
    try:
        same = _forms(build(description, device_for(description))) == _forms(model)
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise UserError(f"a {type(model).__name__} cannot be saved: it cannot be made again, {error}") from None
    if not same:
        raise UserError(
            f"a {type(model).__name__} cannot be saved: made again from the attributes that its parts keep, it has "
            "other values or shapes"
        )
    return description


def _forms(model: nn.Module) -> dict[str, tuple]:
    return {name: (value.shape, value.dtype) for name, value in model.state_dict().items()}


def build(description: dict[str, Any], device: str = "cpu") -> nn.Module:
    """A model of that description, with new values; on the device 'meta' without values, whatever its size is."""
    described = dict(description)
    dtype = DTYPES[described.pop("dtype")]
    with torch.random.fork_rng(devices=[]), torch.device(device):
        return _made_module(described).to(dtype)


def device_for(description: Any) -> str:
    """Where to build a model that will get its values from a file: nowhere, if all its parts are known to allow that.

    A module of somebody else's may compute with numbers when it is made, or keep tensors that no file holds.
    """
    if isinstance(description, dict):
        path = description.get("class")
        module = path.partition(":")[0] if isinstance(path, str) else ""
        foreign = bool(module) and (not f"{module}.".startswith(("glstm.", "torch.nn.")) or module in COMPUTING)
        inside = [device_for(value) for name, value in description.items() if name != "gate"]
        return "cpu" if foreign or "cpu" in inside else "meta"
    if isinstance(description, list):
        return "cpu" if "cpu" in map(device_for, description) else "meta"
    return "meta"


def check_sizes(description: Any, most: int) -> None:
    """Of a model that is built with values: no part of it may be larger than the file that they are replaced from."""
    inside = description.items() if isinstance(description, dict) else enumerate(description)
    for name, value in inside:
        if name in SIZES and isinstance(value, int) and value > most:
            raise ValueError(f"{name} is {value}, and the file of its weights holds {most} numbers")
        if isinstance(value, dict | list):
            check_sizes(value, most)


def describe_gate(gate: Gate) -> dict[str, Any]:
    """Values that differ from unit to unit are not described: they are saved with the weights."""
    starts = {name: getattr(gate, name) for name in gate.names}
    plain = {name: value for name, value in starts.items() if not isinstance(value, Tensor)}
    return {"class": _name(type(gate)), **{name: _plain(name, value) for name, value in plain.items()}} | {
        name: _plain(name, value) for name, value in gate.options().items()
    }


def build_gate(description: dict[str, Any]) -> Gate:
    options = dict(description)
    kind = _class(options.pop("class"), Gate)
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in options.items()})


def _module(module: nn.Module) -> dict[str, Any]:
    if type(module) is nn.Sequential:
        return {"class": "torch.nn:Sequential", "parts": [_module(part) for part in module]}
    return {"class": _name(type(module)), **_options(module)}


def _options(module: nn.Module) -> dict[str, Any]:
    """The arguments it was made with. One that has a default and no attribute is left out."""
    found: dict[str, Any] = {}
    for name, default in _parameters(type(module)).items():
        if isinstance(module, GatedLSTM) and name in ("gate", *module.gate.names, *module.gate.options()):
            continue  # part of the gate's description
        if not hasattr(module, name):
            if default is inspect.Parameter.empty:
                raise UserError(
                    f"a {type(module).__name__} cannot be saved: it is made with {name!r}, and keeps no attribute of "
                    "that name"
                )
            continue
        value = getattr(module, name)
        if name == "bias" and (value is None or isinstance(value, Tensor)):
            value = value is not None
        found[name] = _plain(name, value)
    if isinstance(module, GatedLSTM):
        found["gate"] = describe_gate(module.gate)
        if module.seen is not None:  # a network in use is asked for other times than these only by mistake
            found["seen"] = list(module.seen)
    return found


def _parameters(kind: type) -> dict[str, Any]:
    """Names of what a class is made with, and their defaults."""
    if kind in TORCHS_RECURRENT:
        return TORCHS_RECURRENT[kind]
    own = inspect.signature(kind.__init__).parameters
    return {name: parameter.default for name, parameter in own.items() if name not in NOT_OPTIONS}


def _plain(name: str, value: Any) -> Any:
    """The value as JSON can hold it."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_plain(name, one) for one in value]
        case nn.Module():
            return _module(value)
        case Gate():
            return describe_gate(value)
        case _:
            raise UserError(f"{name} cannot be saved: it is a {type(value).__name__}, not a number, a text or a module")


def _made_module(description: dict[str, Any]) -> nn.Module:
    options = dict(description)
    kind = _class(options.pop("class"), nn.Module)
    if kind is nn.Sequential:
        return nn.Sequential(*(_made_module(part) for part in options.pop("parts")))
    known = _parameters(kind)
    gated, seen = {}, None
    if issubclass(kind, GatedLSTM):
        gated, seen = _gate_options(options.pop("gate"), known), options.pop("seen", None)
    if unknown := sorted(set(options) - set(known)):
        raise ValueError(f"a {kind.__name__} has no {unknown[0]}")
    made = kind(**{name: _made(name, value, known[name]) for name, value in options.items()}, **gated)
    if isinstance(made, GatedLSTM) and seen is not None:
        made.seen = _seen(seen)
    return made


def _seen(given: Any) -> Span:
    """The times that a layer has seen."""
    if not isinstance(given, list) or len(given) != 3 or not all(_of_kind(one, float) for one in given[:2]):
        raise ValueError(f"the times seen must be the first, the last and their number, not {given!r:.50}")
    first, last, steps = given
    if type(steps) is not int or not -inf < first <= last < inf or not 1 <= steps <= MOST_OF_ANY:
        raise ValueError(f"the times seen must be the first, the last and their number, not {given!r:.50}")
    return Span(float(first), float(last), steps)


def _gate_options(description: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """A layer takes a gate object, or, if its gate is always of one kind, the arguments of that gate."""
    gate = build_gate(description)
    if "gate" in known:
        return {"gate": gate}
    parts = {name: getattr(gate, name) for name in gate.names} | gate.options()
    return {name: value for name, value in parts.items() if name in known}


def _made(name: str, value: Any, default: Any) -> Any:
    if isinstance(value, dict):
        return _made_module(value)
    if isinstance(value, list):
        return tuple(_made(name, one, inspect.Parameter.empty) for one in value)
    if isinstance(default, bool | int | float | str) and not _of_kind(value, type(default)):
        raise TypeError(f"{name} must be of type {type(default).__name__}, not {value!r:.50}")
    if name in SIZES and (type(value) is not int or value < 0):
        raise TypeError(f"{name} must be a whole number, not {value!r:.50}")
    if isinstance(value, int) and value > MOST.get(name, MOST_OF_ANY):
        raise ValueError(f"{name} is {value}, and {MOST.get(name, MOST_OF_ANY)} is the most")
    return value


def _of_kind(value: Any, kind: type) -> bool:
    return type(value) is kind or (kind is float and type(value) is int)


def _name(kind: type) -> str:
    """Public classes are named by their package, others by the module they are defined in."""
    for package in PUBLIC:
        if getattr(import_module(package), kind.__name__, None) is kind:
            return f"{package}:{kind.__name__}"
    return path_of(kind)


def _class(path: Any, kind: type) -> Any:
    if not isinstance(path, str) or ":" not in path:
        raise ValueError(f"{path!r:.50} does not name a class as package.module:Class")
    return import_class(path, kind)
