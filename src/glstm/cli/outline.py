"""The command line as plain data: verbs, options, and the names that can follow them. From a file with this the shell's
completion answers without importing torch."""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer

from glstm.cells import CELLS
from glstm.data import DATASETS, TASKS
from glstm.experiments import EXPERIMENTS
from glstm.gates import GATES
from glstm.models import HEADS
from glstm.recipes import PRESETS
from glstm.storage import write_atomically

# What can be given for a parameter of this name: of whichever verb, or of the verb before it.
NAMES: dict[str, Iterable[str]] = {
    "task": TASKS,
    "preset": PRESETS,
    "cell": CELLS,
    "gate": GATES,
    "head": HEADS,
    "reproduce names": (*EXPERIMENTS, "all"),
    "fetch names": DATASETS,
    "verify names": DATASETS,
}


def write_outline(path: Path) -> None:
    from glstm.cli.main import app

    write_atomically(path, json.dumps(outline(typer.main.get_command(app))).encode())


def outline(command: Any) -> dict[str, Any]:
    """A verb, or a group of verbs, with everything that is inside."""
    inside = getattr(command, "commands", {})
    choices: dict[str, Iterable[str]] = {**(_choices(command.callback) if command.callback else {}), **NAMES}
    return {
        "help": (command.help or "").split("\n")[0],
        "parameters": [
            _parameter(one, choices.get(f"{command.name} {one.name}", choices.get(one.name, ())))
            for one in command.params
        ],
        "verbs": {name: outline(one) for name, one in inside.items() if not one.hidden},
    }


def _choices(function: Callable) -> dict[str, list[str]]:
    """The values of every parameter that is one of a few literals."""
    own = inspect.unwrap(function, stop=lambda one: hasattr(one, "__signature__"))
    return {name: list(_literals(hint)) for name, hint in get_type_hints(own).items()}


def _literals(hint: Any) -> Iterator[str]:
    for part in get_args(hint):
        if get_origin(hint) is Literal:
            yield str(part)
        else:
            yield from _literals(part)


def _parameter(parameter: Any, values: Iterable[str]) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "options": [*parameter.opts, *parameter.secondary_opts] if parameter.opts[0].startswith("-") else [],
        "help": getattr(parameter, "help", None) or "",
        "flag": bool(getattr(parameter, "is_flag", False)),
        "several": bool(parameter.multiple or parameter.nargs != 1),
        "values": list(values),
    }
