"""An experiment: networks with a question, and what the paper answers."""

from dataclasses import dataclass, field
from typing import Literal

from glstm.training.recipe import Recipe

SEEDS = (0, 1, 2)

# What is looked at in a trained network, besides its curve.
Probe = Literal["gates", "thresholds", "gradient flow", "as an LSTM"]


@dataclass(frozen=True)
class Arm:
    """One recipe, trained from several seeds.

    `paper` is the figure printed there for it, or for what it tries to improve on, in the task's metric.
    """

    name: str
    recipe: Recipe
    paper: float | None = None
    seeds: tuple[int, ...] = SEEDS
    probes: tuple[Probe, ...] = ()
    at_epoch: int | None = None  # the figure is that of this epoch, not of the last
    at_threshold: float | None = None  # the figure is that with units at k <= v_T closed

    def recipes(self) -> list[Recipe]:
        return [self.recipe.changed(seed=seed) for seed in self.seeds]


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    question: str
    arms: tuple[Arm, ...]
    thresholds: tuple[float, ...] = field(default=())  # v_T to test at, for the probe of that name

    def at(self, scale: "Scale | None") -> "Experiment":
        """The same on a smaller scale, or as it is."""
        if scale is None:
            return self
        arms = tuple(scale.arm(arm) for arm in self.arms)
        return Experiment(self.name, self.title, self.question, arms, self.thresholds)


@dataclass(frozen=True)
class Scale:
    """How small. Sequences of the adding task get shorter, gates' times with them; images keep their pixels."""

    adding_steps: int
    adding_epochs: int
    units: int
    train_size: int
    test_size: int
    epochs: int
    seeds: int

    def arm(self, arm: Arm) -> Arm:
        recipe = self.recipe(arm.recipe)
        at_epoch = None if arm.at_epoch is None else min(arm.at_epoch, recipe.epochs)
        return Arm(arm.name, recipe, arm.paper, arm.seeds[: self.seeds], arm.probes, at_epoch, arm.at_threshold)

    def recipe(self, recipe: Recipe) -> Recipe:
        epochs = min(recipe.epochs, self.epochs)
        if recipe.task == "adding":
            epochs = min(recipe.epochs, self.adding_epochs)
            recipe = recipe.at_length(self.adding_steps).changed(lr=5 * recipe.lr)  # few epochs, so larger steps
            if isinstance(recipe.sigma, float):
                recipe = recipe.changed(sigma=max(1.0, recipe.sigma))  # a gate opens for a step at least
        share = epochs / recipe.epochs
        shorter = {name: round(share * getattr(recipe, name)) for name in ("budget_epochs", "open_epochs")}
        return recipe.changed(
            units=max(2, round(recipe.units * self.units / 110)),
            batch=min(recipe.batch, self.train_size // 2),
            train_size=self.train_size,
            test_size=self.test_size,
            epochs=epochs,
            **shorter,
        )


SMALL = Scale(adding_steps=100, adding_epochs=60, units=32, train_size=3000, test_size=500, epochs=10, seeds=2)
TINY = Scale(adding_steps=20, adding_epochs=2, units=6, train_size=12, test_size=8, epochs=2, seeds=1)
