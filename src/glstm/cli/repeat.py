"""The command that repeats a run, from what its folder says."""

import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

from glstm.cli.options import DataOptions, FileOptions, GateOptions, NetworkOptions, OptimiserOptions
from glstm.cli.train import load_recipe, start, with_options
from glstm.errors import UserError
from glstm.recipes import Recipe

GROUPS = (NetworkOptions, GateOptions, OptimiserOptions, DataOptions, FileOptions)
OF_FILES = {"inputs": "input", "seed": "split_seed"}  # entries of a recipe's data, by the options for them
NAMED = {"gate": "gate_value", "options": "cell_option", "data": "task_option"}  # given as NAME=VALUE


def command(folder: Path) -> str | None:
    """None: its recipe, if it has one, is of another version, or not one that options can say."""
    from glstm.training.run import RunFolder

    try:
        recipe = load_recipe(RunFolder(folder))
        return _command(recipe)
    except (UserError, AttributeError, KeyError, TypeError):
        return None
