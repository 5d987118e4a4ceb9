"""From experiments to results: what is not trained yet is trained, together where shapes agree, and then measured."""

import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import torch

from glstm.data import Task
from glstm.experiments.experiment import Experiment
from glstm.experiments.probes import probe
from glstm.experiments.store import Store
from glstm.storage import write_json
from glstm.training.display import Display, EpochRow
from glstm.training.fabric import Fabric
from glstm.training.loop import Run, Trainer
from glstm.training.recipe import SHARED, Recipe

TILE = 8  # samples that a block of the CUDA engine takes
UNKNOWN = {"device": "an unknown machine", "commit": "unknown", "software": {}}
ON_A_CPU = 3  # networks run one after the other there: few at a time, so that some are finished soon


@dataclass
class Wanted:
    """A network that experiments ask for, and what they want to know of it."""

    recipe: Recipe
    probes: set[str] = field(default_factory=set)
    thresholds: set[float] = field(default_factory=set)

    def missing(self, summary: dict[str, Any] | None) -> bool:
        if summary is None or not self.probes <= set(summary["probes"]):
            return True
        tested = {row["threshold"] for row in summary["probes"].get("thresholds", ())}
        return not self.thresholds <= tested


def wanted(experiments: Iterable[Experiment]) -> list[Wanted]:
    """Every network once, however many experiments ask for it."""
    found: dict[Recipe, Wanted] = {}
    for experiment in experiments:
        for arm in experiment.arms:
            for recipe in arm.recipes():
                one = found.setdefault(recipe, Wanted(recipe))
                one.probes |= set(arm.probes)
                if "thresholds" in arm.probes:
                    one.thresholds |= set(experiment.thresholds)
    return list(found.values())


def populations(networks: Sequence[Wanted], room: Callable[[Recipe], int]) -> list[list[Wanted]]:
    """Networks that can train together, at most as many as there is room for; those with the fewest epochs first."""

    def shape(one: Wanted) -> tuple[str, ...]:
        return tuple(str(getattr(one.recipe, name)) for name in SHARED)

    found = []
    for _, alike in groupby(sorted(networks, key=shape), shape):
        own = sorted(alike, key=lambda one: one.recipe.cell)
        parts = math.ceil(len(own) / room(own[0].recipe))  # of about the same size
        found += [own[len(own) * n // parts : len(own) * (n + 1) // parts] for n in range(parts)]
    return sorted(found, key=lambda population: population[0].recipe.epochs)


def room_on(device: torch.device) -> Callable[[Recipe], int]:
    """How many networks a device trains at the price of one or two."""
    if device.type != "cuda":
        return lambda recipe: ON_A_CPU
    multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count
    return lambda recipe: max(1, multiprocessors // math.ceil(recipe.batch / TILE))


class Runner:
    """`sharing`: how many processes train on the device at once, so that each takes its share of the time."""

    def __init__(
        self,
        store: Store,
        fabric: Fabric,
        data: Path | str | None,
        where: dict[str, Any],
        machine: dict[str, Any],
        sharing: int = 1,
    ):
        self.store, self.fabric, self.data, self.where, self.machine = store, fabric, data, where, machine
        self.sharing = sharing

    def train(self, population: list[Wanted], display: Display, should_stop: Callable[[], bool]) -> bool:
        """Train and measure; False when stopped before the end."""
        recipes = [one.recipe for one in population]
        folders = [self.store.folder(recipe) for recipe in recipes]
        fresh = [number for number, folder in enumerate(folders) if not folder.config.exists()]
        if fresh:  # they begin, and then all go on
            own = [recipes[number] for number in fresh], [folders[number] for number in fresh]
            Trainer(own[0], own[1], self.fabric, self.data).begin(**self.where)
        trainer = Trainer(recipes, folders, self.fabric, self.data)
        trainer.resume()
        for run in trainer.runs:
            if len(run.history) < run.recipe.epochs:
                self.store.begin_session(run.recipe, len(run.history) + 1, self.machine, self.sharing)
        if not trainer.fit(display, should_stop):
            return False
        for one, run in zip(population, trainer.runs, strict=True):
            self._measure(one, run, trainer.task)
        return True

    def _measure(self, one: Wanted, run: Run, task: Task) -> None:
        thresholds = tuple(sorted(one.thresholds))
        found = {name: probe(name, one.recipe, run.model, task, thresholds) for name in sorted(one.probes)}
        known = self.store.summary(one.recipe)  # finished before, and only asked something new
        summary = {
            "recipe": one.recipe.as_dict(),
            "steps": task.steps,
            "metric": task.metric,
            "as_percent": task.as_percent,
            "curve": _columns(run.history),
            "probes": found,
            "trained": known["trained"] if known else trained(run.history, self.store.sessions(one.recipe)),
        }
        self.store.write_summary(one.recipe, summary)


def trained(history: list[EpochRow], sessions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Which machine trained how many epochs in how many seconds; an epoch is that of the machine that finished it."""
    if not sessions or sessions[0]["from_epoch"] > 1:
        sessions = [{"from_epoch": 1, "machine": UNKNOWN, "sharing": 1}, *sessions]
    found = []
    for session, following in pairwise([*sessions, {"from_epoch": len(history) + 1}]):
        rows = history[session["from_epoch"] - 1 : following["from_epoch"] - 1]
        seconds = sum((row.seconds + row.test_seconds) / row.together for row in rows) / session["sharing"]
        if rows:
            found.append({"machine": session["machine"], "epochs": len(rows), "seconds": seconds})
    return found


def _columns(history: list[EpochRow]) -> dict[str, list[float]]:
    rows = [asdict(row) for row in history]
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def write_result(experiment: Experiment, store: Store, folder: Path, small: bool) -> bool:
    """The experiment's JSON, of the arms whose networks are all finished; False if it is not written.

    It is not if there is no such arm, or if the JSON that is there has one that is not finished here.
    """
    arms, missing = [], []
    for arm in experiment.arms:
        runs = [store.summary(recipe) for recipe in arm.recipes()]
        if any(run is None for run in runs):
            missing.append(arm.name)
            continue
        figures = {"paper": arm.paper, "at_epoch": arm.at_epoch, "at_threshold": arm.at_threshold}
        own = [_own(run, arm.probes, experiment.thresholds) for run in runs if run is not None]
        arms.append({"name": arm.name, **figures, "seeds": arm.seeds, "runs": own})
    path = folder / f"{experiment.name}.json"
    if not arms or not set(missing).isdisjoint(_arms_in(path)):  # nothing new takes the place of what was there
        return False
    result = {
        "name": experiment.name,
        "title": experiment.title,
        "question": experiment.question,
        "small": small,
        "written": time.strftime("%Y-%m-%d", time.gmtime()),
        "missing": missing,
        "arms": arms,
    }
    write_json(path, _rounded(result), indent=None)  # long curves: a line is enough
    return True


def _arms_in(path: Path) -> list[str]:
    """Names of the arms in a result; of what is not there or no result, none."""
    try:
        return [arm["name"] for arm in json.loads(path.read_text())["arms"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _own(summary: dict[str, Any], probes: Iterable[str], thresholds: Iterable[float]) -> dict[str, Any]:
    """What this experiment asked for: a network may have been looked at for others, too."""
    found = {name: summary["probes"][name] for name in probes}
    if "thresholds" in found:
        found["thresholds"] = [row for row in found["thresholds"] if row["threshold"] in thresholds]
    return {**summary, "probes": found}


def _rounded(value: Any) -> Any:
    """With as many digits as anybody will look at."""
    match value:
        case float():
            return float(f"{value:.6g}")
        case dict():
            return {key: one if key == "recipe" else _rounded(one) for key, one in value.items()}
        case list() | tuple():
            return [_rounded(one) for one in value]
        case _:
            return value
