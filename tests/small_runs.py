"""Small recipes of every kind, and runs of them that start, stop and go on."""

import csv
from pathlib import Path

import torch

from glstm.recipes import Recipe, make_task, model_maker
from glstm.training import Population
from glstm.training.loop import Trainer

SMALL = Recipe("adding", data={"steps": 12, "train_size": 70, "test_size": 30}, units=6,
               gate={"mu": (1.0, 12.0), "sigma": 4.0}, init="orthogonal", forget_bias=1.0,
               optimizer="adam", lr=5e-3, gate_lr=0.1, batch=16, epochs=3)  # fmt: skip
PHASES = {"tau": 12.0, "s": (0.0, 6.0), "r": 0.5}
RECIPES = {
    "thrifty g-LSTM": SMALL.changed(budget=0.5, options={"threshold": 0.05}),
    "RMSProp, Drop-Connect": SMALL.changed(optimizer="rmsprop", decay=0.5, head="deep"),
    "curriculum": SMALL.changed(curriculum=True, open_epochs=1, gate={"sigma": 2.0}),
    "PLSTM": SMALL.changed(cell="plstm", gate=PHASES),
    "periodic": SMALL.changed(cell="gated", gate={"kind": "periodic", "tau": (3.0, 5.0)}, budget=0.3, gate_lr=None),
    "clocks": SMALL.changed(cell="gated", gate={"kind": "clockwork", "period": (1, 2, 4)}),
    "LSTM": SMALL.changed(cell="lstm", optimizer="sgd", lr=0.1, init="xavier"),
    "GRU": SMALL.changed(cell="gru"),
    "weight drop": SMALL.changed(weight_drop=0.4, options={"threshold": 0.05}),
    "pruned": SMALL.changed(cell="lstm", sparsity=0.8, prune_from=0.0, prune_until=0.7),
}


def population(recipes: list[Recipe], device: str = "cpu", **more) -> Population:
    task = make_task(recipes[0], device=device)
    return Population(task, [model_maker(recipe, task) for recipe in recipes], recipes, **more)


def start(recipes: Recipe | list[Recipe], paths: Path | list[Path]) -> Trainer:
    trainer = _trainer(recipes, paths)
    names = [one.names_as_dict() for one in ([recipes] if isinstance(recipes, Recipe) else recipes)]
    trainer.begin(names, device="cpu")
    return trainer


def go_on(recipes: Recipe | list[Recipe], paths: Path | list[Path]) -> Trainer:
    torch.manual_seed(99)  # whatever the process did before must not matter
    trainer = _trainer(recipes, paths)
    trainer.resume()
    return trainer


def _trainer(recipes, paths) -> Trainer:
    recipes = [recipes] if isinstance(recipes, Recipe) else recipes
    task = make_task(recipes[0])
    return Trainer(task, [model_maker(recipe, task) for recipe in recipes], recipes, paths)


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
