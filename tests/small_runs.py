"""Small recipes of every kind, and runs of them that start, stop and go on."""

import csv
from pathlib import Path

import torch

from glstm.training.fabric import make_fabric
from glstm.training.loop import Trainer
from glstm.training.recipe import Recipe
from glstm.training.run import RunFolder

SMALL = Recipe("adding", steps=12, units=6, mu=(1.0, 12.0), sigma=4.0, optimizer="adam", lr=5e-3, gate_lr=0.1,
               train_size=70, test_size=30, batch=16, epochs=3)  # fmt: skip
RECIPES = {
    "thrifty g-LSTM": SMALL.changed(budget=0.5, threshold=0.05),
    "RMSProp, Drop-Connect": SMALL.changed(optimizer="rmsprop", decay=0.5, head="deep"),
    "curriculum": SMALL.changed(curriculum=True, open_epochs=1, sigma=2.0),
    "PLSTM": SMALL.changed(cell="plstm", tau=12.0, s=(0.0, 6.0), r=0.5),
    "LSTM": SMALL.changed(cell="lstm", optimizer="sgd", lr=0.1, init="xavier"),
}


def start(recipes: Recipe | list[Recipe], paths: Path | list[Path]) -> Trainer:
    trainer = _trainer(recipes, paths)
    trainer.begin(device="cpu")
    return trainer


def go_on(recipes: Recipe | list[Recipe], paths: Path | list[Path]) -> Trainer:
    torch.manual_seed(99)  # whatever the process did before must not matter
    trainer = _trainer(recipes, paths)
    trainer.resume()
    return trainer


def _trainer(recipes, paths) -> Trainer:
    folders = RunFolder(paths) if isinstance(paths, Path) else [RunFolder(path) for path in paths]
    return Trainer(recipes, folders, make_fabric("cpu"))


class StopAfter:
    """Asks to stop after so many batches."""

    def __init__(self, batches: int):
        self.left = batches

    def __call__(self) -> bool:
        self.left -= 1
        return self.left <= 0


def results(path: Path):
    """Everything a run leaves that must not depend on when it was stopped."""
    with (path / "metrics.csv").open() as file:
        rows = [
            {name: value for name, value in row.items() if "seconds" not in name and name != "together"}
            for row in csv.DictReader(file)
        ]
    return (path / "model.safetensors").read_bytes(), rows, (path / "losses.csv").read_text()
