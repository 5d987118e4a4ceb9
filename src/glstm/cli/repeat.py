"""The command that repeats a run, from what its folder says."""

import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

from glstm.cli.options import DataOptions, FileOptions, GateOptions, NetworkOptions, OptimiserOptions
from glstm.cli.train import WHERE, load_recipe, start, with_options
from glstm.errors import UserError
from glstm.recipes import Recipe

OF_FILES = {"inputs": "input", "seed": "split_seed"}  # entries of a recipe's data whose options have other names
FLAGS = {
    "curriculum": ("--curriculum", "--no-curriculum"),
    "from_start": ("--from-start", "--as-they-are"),
    "standardize": ("--standardize", "--no-standardize"),
}
ENTRIES = {"gate": "gate_value", "options": "cell_option", "data": "task_option"}  # said as NAME=VALUE

Said = dict[str, Any]  # values of options, by their names in the groups


def command(folder: Path) -> str | None:
    """None: the run has no recipe, or one that options cannot say."""
    from glstm.training.run import RunFolder

    run = RunFolder(folder)
    try:
        recipe = load_recipe(run)
        task, files = _task(recipe)
        said = _said(recipe, start(task, None, _group(FileOptions, files)))
        if _meant(task, files, said) != recipe:
            return None
    except UserError:
        return None
    machine = {name: run.where().get(name) for name in ("precision", "matmul")}
    said |= {name: value for name, value in machine.items() if value not in (None, WHERE[name])}
    words = [word for name, value in {**files, **said}.items() for word in _words(name, value)]
    return shlex.join(["glstm", "train", task, *words])


def _task(recipe: Recipe) -> tuple[str, Said]:
    """The argument, and the options that say how its files are read."""
    if recipe.task != "file":
        return recipe.task, {}
    data = dict(recipe.data)
    path = str(data.pop("path"))
    files = {OF_FILES.get(name, name): value for name, value in data.items()}
    for name in ("test", "validation"):
        if name in files:
            files[name] = str(files[name])
    return path, {name: list(value) if isinstance(value, tuple) else value for name, value in files.items()}


def _said(recipe: Recipe, usual: Recipe) -> Said:
    """The options that change the usual recipe into this one."""
    said: Said = {}
    if recipe.cell != usual.cell:
        said["cell"] = recipe.cell
        usual = usual.changed(cell=recipe.cell)
    if (kind := recipe.gate.get("kind")) is not None:
        said["gate"] = kind
        usual = usual.changed(gate={"kind": kind})
    steps = recipe.data.get("steps")
    if recipe.task != "file" and steps is not None and steps != usual.data.get("steps"):
        said["steps"] = steps
        usual = usual.at_length(steps)
    for name, option in ENTRIES.items():
        before = getattr(usual, name)
        entries = {key: value for key, value in getattr(recipe, name).items() if value != before.get(key)}
        if entries:
            said[option] = [f"{key}={_text(value)}" for key, value in entries.items()]
    for field in fields(Recipe):
        value = getattr(recipe, field.name)
        if field.name not in ("task", "cell", *ENTRIES) and value != getattr(usual, field.name):
            said[field.name] = "own" if field.name == "init" and value is None else value
    return said


def _meant(task: str, files: Said, said: Said) -> Recipe:
    """The recipe of a command with these options: what cannot be said in options is not in it."""
    groups = [_group(kind, said) for kind in (NetworkOptions, GateOptions, OptimiserOptions, DataOptions)]
    return with_options(start(task, None, _group(FileOptions, files)), *groups)


def _group(kind: type, values: Said) -> Any:
    names = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in names})


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(_text, value)) if isinstance(value, tuple) else str(value)


def _words(name: str, value: Any) -> list[str]:
    if name in FLAGS:
        return [FLAGS[name][not value]]
    option = f"--{name.replace('_', '-')}"
    values = value if isinstance(value, list) else [value]
    return [word for one in values for word in (option, _text(one))]
