"""An experiment: networks with a question, and what the paper answers."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from glstm.recipes import Recipe

SEEDS = (0, 1, 2)
TEN_SEEDS = tuple(range(10))  # for figures that carry a claim
SEARCH_SEEDS = (100,)  # of networks that decide between recipes: none of them is ever tested
HELD_OUT = 5000  # training images, or fresh sequences of the adding task, that decide
KEY = re.compile(r"[a-z0-9][a-z0-9._-]*")

# What is measured in a trained network, besides its curve and its operations.
Probe = Literal["gates", "thresholds", "gradient flow", "as an LSTM", "one sequence", "pruned"]

# By whose rules a network is trained. "paper": as the paper says, and where it says nothing, by validation. "best": any
# recipe, by the same search for both networks of a task. "given": fixed beforehand, or chosen by another experiment.
Track = Literal["paper", "best", "given"]


@dataclass(frozen=True)
class Arm:
    """One recipe, trained from several seeds.

    `key` identifies the arm in results and claims, and stays; `name` is shown in tables, and may change. `twin` is
    the key of the plain LSTM in the same experiment that this network is compared with. `paper` is the figure printed
    there for it, or for what it tries to improve on, in the task's metric.

    `tries` are changes of the recipe. Each is trained without a part of the training data, which then decides. The
    recipe with that change is trained on all training data, and tested.
    """

    key: str
    name: str
    recipe: Recipe
    track: Track = "given"
    paper: float | None = None
    seeds: tuple[int, ...] = SEEDS
    probes: tuple[Probe, ...] = ()
    at_epoch: int | None = None  # the figure is that of this epoch, not of the last
    at_threshold: float | None = None  # the figure is that with units at k <= v_T closed
    twin: str | None = None
    tries: tuple[dict[str, Any], ...] = ()
    search: Recipe | None = None  # what the tries change in the search, if it is not `recipe`
    search_tries: tuple[dict[str, Any], ...] = ()  # their form in the search, if it is another
    most_operations: float | None = None  # of a sequence: tries that take more are not chosen
    held_out: int = HELD_OUT

    def recipes(self, change: dict[str, Any] | None = None) -> list[Recipe]:
        """What is tested; `change` is the chosen one of the tries."""
        return [self.recipe.changed(**(change or {})).changed(seed=seed) for seed in self.seeds]

    def searched(self) -> list[list[Recipe]]:
        """The networks that decide, some for each of the tries."""
        base = (self.search or self.recipe).changed(data={"validation": self.held_out})
        tries = self.search_tries or self.tries
        return [[base.changed(**change).changed(seed=seed) for seed in SEARCH_SEEDS] for change in tries]


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    question: str
    arms: tuple[Arm, ...]
    thresholds: tuple[float, ...] = field(default=())  # v_T to test at, for the probe of that name

    def __post_init__(self) -> None:
        keys = [arm.key for arm in self.arms]
        for arm in self.arms:
            if not KEY.fullmatch(arm.key):
                raise ValueError(f"{self.name}: an arm's key is of a-z, 0-9, '.', '_' and '-', but one is {arm.key!r}")
            if keys.count(arm.key) > 1:
                raise ValueError(f"{self.name}: two arms have the key {arm.key!r}")
            if (arm.track == "given") == bool(arm.tries):
                raise ValueError(f"{self.name}: {arm.key!r} has {len(arm.tries)} tries on the track {arm.track!r}")
            if arm.search_tries and len(arm.search_tries) != len(arm.tries):
                raise ValueError(f"{self.name}: {arm.key!r} has another number of tries in its search")
            if arm.twin is not None and (arm.twin == arm.key or arm.twin not in keys):
                raise ValueError(f"{self.name}: the twin of {arm.key!r} must be another arm's key, but is {arm.twin!r}")

    def only(self, track: Track | None = None, keys: Collection[str] = ()) -> "Experiment":
        """The arms of this track, with these keys; without either, all. What they are compared with may be missing."""
        arms = (arm for arm in self.arms if track in (None, arm.track) and (not keys or arm.key in keys))
        return replace(self, arms=tuple(replace(arm, twin=None) for arm in arms)) if track or keys else self

    def at(self, scale: "Scale | None") -> "Experiment":
        """The same on a smaller scale, or as it is."""
        if scale is None:
            return self
        return replace(self, arms=tuple(scale.arm(arm) for arm in self.arms))


@dataclass(frozen=True)
class Scale:
    """How small. Sequences of the adding task get shorter, and gates' times are scaled; images keep their size."""

    adding_steps: int
    adding_epochs: int
    units: int
    train_size: int
    test_size: int
    epochs: int
    seeds: int
    tries: int

    def arm(self, arm: Arm) -> Arm:
        recipe = self.recipe(arm.recipe)
        at_epoch = None if arm.at_epoch is None else min(arm.at_epoch, recipe.epochs)
        search = None if arm.search is None else self.recipe(arm.search)
        own = {"epochs": recipe.epochs}
        tries = tuple(change | own if "epochs" in change else change for change in arm.tries[: self.tries])
        return replace(
            arm, recipe=recipe, seeds=arm.seeds[: self.seeds], at_epoch=at_epoch,
            search=search, tries=tries, search_tries=arm.search_tries[: self.tries],
            most_operations=None, held_out=self.test_size,
        )  # fmt: skip

    def recipe(self, recipe: Recipe) -> Recipe:
        epochs = min(recipe.epochs, self.epochs)
        if recipe.task == "adding":
            epochs = min(recipe.epochs, self.adding_epochs)
            recipe = recipe.at_length(self.adding_steps).changed(lr=5 * recipe.lr)  # few epochs, so larger steps
            if isinstance(recipe.gate.get("sigma"), float):
                recipe = recipe.changed(gate={"sigma": max(1.0, recipe.gate["sigma"])})  # open for a step at least
        share = epochs / recipe.epochs
        shorter = {name: round(share * getattr(recipe, name)) for name in ("budget_epochs", "open_epochs")}
        return recipe.changed(
            units=max(2, round(recipe.units * self.units / 110)),
            batch=min(recipe.batch, self.train_size // 2),
            data={"train_size": self.train_size, "test_size": self.test_size},
            epochs=epochs,
            **shorter,
        )


SMALL = Scale(adding_steps=100, adding_epochs=60, units=32, train_size=3000, test_size=500, epochs=10, seeds=2, tries=2)
TINY = Scale(adding_steps=20, adding_epochs=2, units=6, train_size=12, test_size=8, epochs=2, seeds=1, tries=2)
