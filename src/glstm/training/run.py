"""A run folder: what was asked, what came out, and enough to go on.

config.json             the recipe, and where it ran
metrics.csv, losses.csv a row an epoch, and about ten an epoch
model.safetensors       the network; with config.json it is a model folder
checkpoint.safetensors  the state of training
learning_curve.png, gates.png
"""

import csv
import io
import json
import platform
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

import glstm
from glstm import plots
from glstm.data import Task
from glstm.errors import UserError
from glstm.gated import GatedLSTM
from glstm.models import SequenceModel
from glstm.pretrained import describe, load_values
from glstm.storage import write_atomically, write_json
from glstm.training.build import build_model
from glstm.training.display import EpochRow, LossRow
from glstm.training.evaluate import openness_in_use
from glstm.training.recipe import Recipe

FORMAT = 1


class RunFolder:
    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.checkpoint = self.path / "checkpoint.safetensors"
        self.model = self.path / "model.safetensors"

    def create(self, recipe: Recipe, task: Task, model: SequenceModel, where: dict[str, object]) -> None:
        """Start a new run here; a folder that holds one already is left alone."""
        self.require_unused()
        for name, value in task.artifacts().items():
            write_json(self.path / name, value)
        software = {"glstm": glstm.__version__, "torch": torch.__version__, "python": platform.python_version()}
        shape = {"steps": task.steps, "inputs": task.inputs, "outputs": task.outputs}
        config = {"format": FORMAT, "recipe": recipe.as_dict(), "shape": shape, "where": where, "software": software}
        write_json(self.config, {**config, "model": describe(model)})

    def require_unused(self) -> None:
        """Nothing may be here, nor in a folder below or above: a folder holds one run, or the folders of several."""
        above = RunFolder(self.path.parent)
        holder = self if self.config.exists() or _inside(self.path) else above if above.config.exists() else None
        if holder:
            raise UserError(
                f"{holder.path} already holds a run: go on with it by --resume {holder.path}, or choose another --out"
            )

    def update_recipe(self, recipe: Recipe) -> None:
        write_json(self.config, {**self._read_config(), "recipe": recipe.as_dict()})

    def recipe(self) -> Recipe:
        return Recipe.from_dict(self._read_config()["recipe"])

    def steps(self) -> int:
        """How long its sequences are."""
        return self._read_config()["shape"]["steps"]

    def where(self) -> dict[str, Any]:
        """Device, devices, nodes, precision, matmul and data folder of the run."""
        return self._read_config()["where"]

    def data(self) -> Path | None:
        """The data folder the run used, if it is still there."""
        folder = self.where().get("data")
        return Path(folder) if folder and Path(folder).is_dir() else None

    def check_artifacts(self, task: Task) -> None:
        """A permutation, say, must still be the one this run was trained on."""
        for name, value in task.artifacts().items():
            if _read_json(self.path / name) != value:
                raise UserError(f"{self.path / name} differs from what this version of glstm would use")

    def load_model(self) -> SequenceModel:
        """The trained network, in evaluation mode."""
        config = self._read_config()
        model = build_model(self.recipe(), config["shape"]["inputs"], config["shape"]["outputs"])
        if self.where().get("precision") == "64-true":
            model = model.double()
        load_values(self.model, model)
        return model.eval()

    def write_metrics(self, history: list[EpochRow], losses: list[LossRow]) -> None:
        for name, kind, rows in (("metrics.csv", EpochRow, history), ("losses.csv", LossRow, losses)):
            text = io.StringIO()
            writer = csv.DictWriter(text, [field.name for field in fields(kind)], lineterminator="\n")
            writer.writeheader()
            writer.writerows(map(vars, rows))
            write_atomically(self.path / name, text.getvalue().encode())

    def draw(self, task: Task, layer: GatedLSTM, gates_before: np.ndarray, history: list[EpochRow]) -> None:
        """The run's two pictures."""
        if history:
            name = {"glstm": "g-LSTM", "plstm": "PLSTM", "lstm": "LSTM"}[self.recipe().cell]
            curve = plots.Curve(name, [row.epoch for row in history], [row.test_error for row in history])
            picture = plots.learning_curve(curve, metric=task.metric, percent=task.as_percent)
            plots.save(picture, self.path / "learning_curve.png")
        if layer.gate.names:
            after = openness_in_use(layer, task.steps)[0].float().numpy()
            plots.save(plots.gates(gates_before, after), self.path / "gates.png")

    def _read_config(self) -> dict:
        config = _read_json(self.config)
        if not isinstance(config, dict) or config.get("format") != FORMAT:
            raise UserError(f"{self.config} is not the config.json of a run of this version (format {FORMAT})")
        if "recipe" not in config and "model" in config:
            raise UserError(
                f"{self.path} is a model folder without a task: this needs a run's, as glstm train makes it"
            )
        for name in ("recipe", "shape", "where"):
            if not isinstance(config.get(name), dict):
                raise UserError(f"{self.config} is not whole: it has no {name}")
        return config


def runs_in(path: Path) -> list[RunFolder]:
    """The run in this folder, or the runs in its folders, by their seeds."""
    if not path.is_dir():
        raise UserError(
            f"{path} is {'a file' if path.exists() else 'not there'}; a run is a folder that glstm train made"
        )
    if not (path / "config.json").exists() and (inside := _inside(path)):
        return sorted(inside, key=lambda folder: folder.recipe().seed)
    return [RunFolder(path)]


def _inside(path: Path) -> list[RunFolder]:
    folders = sorted(path.iterdir()) if path.is_dir() else []
    return [RunFolder(folder) for folder in folders if (folder / "config.json").exists()]


def _read_json(path: Path):
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        if not path.parent.is_dir():
            what = "a file" if path.parent.exists() else "not there"
            raise UserError(f"{path.parent} is {what}; a run is a folder that glstm train made") from None
        if inside := _inside(path.parent):
            names = ", ".join(folder.path.name for folder in inside)
            raise UserError(f"{path.parent} holds the folders of several runs: say which, {names}") from None
        raise UserError(f"{path.parent} is not a run folder: there is no {path.name} in it") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
