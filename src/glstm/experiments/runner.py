"""From experiments to results: trains the networks that are not trained yet, together if shapes agree, and measures."""

import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import torch

from glstm.cells import CELLS, GRU
from glstm.data import TASKS
from glstm.data.task import Task
from glstm.errors import UserError
from glstm.experiments.experiment import Experiment
from glstm.experiments.probes import joined, operations, probe
from glstm.experiments.search import chosen_recipes, outcome
from glstm.experiments.store import Store
from glstm.gated import GatedLSTM
from glstm.ops.gpu import sparse
from glstm.ops.gpu.scan import blocks_together, tiles_of
from glstm.recipes import Recipe, make_task, model_maker
from glstm.storage import write_json
from glstm.training.display import Display, EpochRow
from glstm.training.fabric import Processes, make_fabric, set_matmul
from glstm.training.loop import Run, Trainer

UNKNOWN = {"device": "an unknown machine", "commit": "unknown", "software": {}}
MOST_OPEN = 8 * (sparse.MOST_BLOCKS - 1)  # units at once, on average: a block of 8 to spare where moments lie close
CLOSED_TOGETHER = 6  # networks whose units are closed take the sparse path, which is fast for many samples at once
ON_A_CPU = 3  # there networks run one after the other: a few at a time, so that some are finished soon


@dataclass
class Wanted:
    """A network that experiments need, and what they measure in it."""

    recipe: Recipe
    probes: set[str] = field(default_factory=set)
    thresholds: set[float] = field(default_factory=set)

    def missing(self, summary: dict[str, Any] | None) -> bool:
        if summary is None:
            return True
        if summary["diverged"]:  # there is nothing to measure
            return False
        if not self.probes <= set(summary["probes"]):
            return True
        tested = {row["threshold"] for row in summary["probes"].get("thresholds", ())}
        return not self.thresholds <= tested


def wanted(experiments: Iterable[Experiment], store: Store) -> list[Wanted]:
    """Every network once, even if several experiments need it: all that decide, and those that were chosen so far.

    One that results know (`known.py`) is among them only for what results do not say of it.
    """
    found: dict[Recipe, Wanted] = {}
    for experiment in experiments:
        for arm in experiment.arms:
            for recipe in (recipe for some in arm.searched() for recipe in some):
                if store.verdict(recipe) is None:  # else it was trained elsewhere, and has decided
                    found.setdefault(recipe, Wanted(recipe))
            for recipe in chosen_recipes(arm, store) or ():
                one = found.setdefault(recipe, Wanted(recipe))
                one.probes |= set(arm.probes)
                if "thresholds" in arm.probes:
                    one.thresholds |= set(experiment.thresholds)
    return list(found.values())


def populations(networks: Sequence[Wanted], room: Callable[[Recipe], int]) -> list[list[Wanted]]:
    """Networks to train together, at most as many as the device has room for; those with the fewest epochs first.

    They have one shape, and if possible one kind of cell: then they run in parallel on CUDA.
    """
    found = []
    for _, alike in groupby(sorted(networks, key=_shape), _shape):
        own = sorted(alike, key=lambda one: (one.recipe.cell, str(one.recipe.options)))
        parts = math.ceil(len(own) / room(own[0].recipe))  # of about the same size
        found += [own[len(own) * n // parts : len(own) * (n + 1) // parts] for n in range(parts)]
    return sorted(found, key=lambda population: (not decides(population[0].recipe), population[0].recipe.epochs))


ALIKE = ("task", "data", "units", "layers", "head", "segment", "optimizer", "batch", "epochs")


def decides(recipe: Recipe) -> bool:
    """Whether other networks wait for this one."""
    return "validation" in recipe.data


def _shape(one: Wanted) -> tuple[str, ...]:
    return (*(str(getattr(one.recipe, name)) for name in ALIKE), str(_closes(one.recipe)), str(_crowding(one.recipe)))


def _closes(recipe: Recipe) -> bool:
    """Whether its units are closed in training, so that it takes the engine's sparse path."""
    return recipe.options.get("threshold", 0.0) > 0


def _crowding(recipe: Recipe) -> int:
    """0: when training begins, the sparse path can take it. Each step more: twice as many units are open at once.

    Such a network keeps all that train with it on the dense path until its gates have closed.
    """
    mu, sigma, threshold = recipe.gate.get("mu"), recipe.gate.get("sigma"), recipe.options.get("threshold", 0.0)
    if not isinstance(mu, tuple) or not isinstance(sigma, int | float) or not 0 < threshold < 1:
        return 0
    if mu[1] <= mu[0] or sigma == 0:
        return 0
    steps = 2 * abs(sigma) * math.sqrt(-math.log(threshold))  # for which a unit is open
    return max(0, math.ceil(math.log2(recipe.units * steps / (mu[1] - mu[0]) / MOST_OPEN)))


def room_on(device: torch.device, together: int | None = None) -> Callable[[Recipe], int]:
    """How many networks a device trains in the time of one or two; `together`: so many at most."""
    if together is not None:
        usual = room_on(device)
        return lambda recipe: min(together, usual(recipe))
    if device.type != "cuda":
        return lambda recipe: ON_A_CPU
    multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count
    return lambda recipe: room_among(multiprocessors, recipe)


def room_among(multiprocessors: int, recipe: Recipe) -> int:
    """Small networks of the engine's own cells share a multiprocessor: so many blocks as have room in its registers run
    on it at once."""
    return max(1, multiprocessors // tiles_of(recipe.batch)) * _share(recipe)


def _share(recipe: Recipe) -> int:
    """How many networks for each multiprocessor that a tile could have to itself."""
    if _closes(recipe):
        return CLOSED_TOGETHER
    return blocks_together(recipe.units) if _scans(recipe) else 1


def _scans(recipe: Recipe) -> bool:
    """Whether its cell runs in the kernel of a whole sequence, which blocks are counted for."""
    cell = CELLS.get(recipe.cell)
    return isinstance(cell, type) and issubclass(cell, GatedLSTM | GRU)


class Runner:
    """`sharing`: how many processes train on the device at once, so that each takes its share of the time."""

    def __init__(
        self,
        store: Store,
        fabric: Processes,
        data: Path | str | None,
        where: dict[str, Any],
        machine: dict[str, Any],
        sharing: int = 1,
    ):
        self.store, self.fabric, self.data, self.where, self.machine = store, fabric, data, where, machine
        self.sharing = sharing

    def plan(self) -> dict[str, Any]:
        """What another process needs to make the same runner; the folders are then those that it sees."""
        data = None if self.data is None else Path(self.data).resolve()
        matmul = torch.get_float32_matmul_precision()
        return {
            "store": self.store.path.resolve(), "device": self.fabric.device.type, "matmul": matmul, "data": data,
            "where": self.where, "sharing": self.sharing,
        }  # fmt: skip

    @classmethod
    def from_plan(cls, plan: dict[str, Any], machine_of: Callable[[torch.device], dict[str, Any]]) -> "Runner":
        """The machine that is recorded is the one on which this is called."""
        fabric = make_fabric(plan["device"])
        set_matmul(fabric, plan["matmul"])
        store, machine = Store(plan["store"]), machine_of(fabric.device)
        return cls(store, fabric, plan["data"], plan["where"], machine, plan["sharing"])

    def train(self, population: list[Wanted], display: Display, should_stop: Callable[[], bool]) -> bool:
        """Train and measure; False when stopped before the end."""
        recipes = [one.recipe for one in population]
        task = make_task(recipes[0], self.data, self.fabric.device)
        fresh = [number for number, recipe in enumerate(recipes) if not self.store.has_begun(recipe)]
        if fresh:  # new ones begin, then all are resumed
            for number in fresh:
                self.store.forget(recipes[number])
            begun = self._trainer(task, [recipes[number] for number in fresh])
            begun.begin([recipes[number].names_as_dict() for number in fresh], **self.where)
        trainer = self._trainer(task, recipes)
        trainer.resume()
        for recipe, run in zip(recipes, trainer.runs, strict=True):
            if len(run.history) < recipe.epochs:
                self.store.begin_session(recipe, len(run.history) + 1, self.machine, self.sharing)
        try:
            finished = trainer.fit(display, should_stop)
        except UserError:
            if not trainer.diverged:
                raise
            others = [run for number, run in enumerate(trainer.runs) if number not in trainer.diverged]
            finished = all(len(run.history) == run.settings.epochs or run.is_done for run in others)
        for number, (one, run) in enumerate(zip(population, trainer.runs, strict=True)):
            diverged = number in trainer.diverged
            if finished or diverged:  # nobody is to train it again
                self._measure(one, run, task, diverged)
        return finished

    def _trainer(self, task: Task, recipes: list[Recipe]) -> Trainer:
        makers, folders = [model_maker(one, task) for one in recipes], [self.store.folder(one) for one in recipes]
        return Trainer(task, makers, recipes, folders, fabric=self.fabric, tests=not decides(recipes[0]))

    def _measure(self, one: Wanted, run: Run, task: Task, diverged: bool) -> None:
        """A network that diverged is recorded as such: another attempt would end in the same way."""
        thresholds = tuple(sorted(one.thresholds))
        probes = () if diverged else sorted(one.probes)
        found = {name: probe(name, one.recipe, run.model, task, thresholds) for name in probes}
        known = self.store.summary(one.recipe)  # trained before; only a new measurement is missing
        if known is not None:  # what other experiments measured stays
            found = joined(known["probes"], found)
        summary = {
            "recipe": one.recipe.as_dict(),
            "steps": task.steps,
            "metric": task.metric,
            "as_percent": task.as_percent,
            "diverged": diverged,
            "operations": None if diverged else operations(run.model, task),
            "curve": _columns(run.history),
            "kept_epoch": None if run.best is None else run.best_row.epoch,
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


def _columns(history: list[EpochRow]) -> dict[str, list[float | None]]:
    """JSON has no nan: None stands for it."""
    rows = [asdict(row) for row in history]
    return {name: [_number(row[name]) for row in rows] for name in rows[0]} if rows else {}


def _number(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None


def write_result(experiment: Experiment, store: Store, folder: Path, small: bool) -> bool:
    """Write the experiment's JSON; False if it is not written.

    An arm is among the arms if all its networks are finished; else among those that are missing, with what is known of
    its search, and with the networks that are finished. An arm that the JSON had before and that is not finished here,
    such as one whose grid has grown, stays as it was, too. Nothing is written if nothing is known, or if the JSON is of
    another scale and has such an arm.
    """
    path = folder / f"{experiment.name}.json"
    before, of_this_scale = _arms_in(path, small)
    arms, missing = [], []
    for arm in experiment.arms:
        recipes = chosen_recipes(arm, store)
        runs = {recipe: store.summary(recipe) for recipe in recipes or ()}
        probes: set[str] = set(arm.probes)
        asked = set(experiment.thresholds) if "thresholds" in probes else set()
        found = [run for recipe, run in runs.items() if run and not Wanted(recipe, probes, asked).missing(run)]
        search = outcome(arm, store).as_dict(arm) if arm.tries else None
        if recipes is None or len(found) < len(runs):
            part = {"seeds": arm.seeds, "runs": [_own(run, arm.probes, experiment.thresholds) for run in found]}
            one = {"key": arm.key, "name": arm.name, "track": arm.track, "search": search}
            missing.append(one | (part if found else {}))
            continue
        figures = {"paper": arm.paper, "at_epoch": arm.at_epoch, "at_threshold": arm.at_threshold}
        figures |= {"track": arm.track, "search": search, "most_operations": arm.most_operations}
        own = [_own(run, arm.probes, experiment.thresholds) for run in found]
        arms.append({"key": arm.key, "name": arm.name, "twin": arm.twin, **figures, "seeds": arm.seeds, "runs": own})
    searched = [one for arm in missing if arm["search"] for one in arm["search"]["tries"]]
    untrained = all(one["validation"] is None for one in searched) and not any("runs" in arm for arm in missing)
    twins = {arm.key: arm.twin for arm in experiment.arms}
    kept = [before[key] | {"twin": twins[key]} for key in (arm["key"] for arm in missing) if key in before]
    if (not arms and untrained) or (kept and not of_this_scale):
        return False  # nothing new takes the place of what was there
    order = [arm.key for arm in experiment.arms]
    arms = sorted([*arms, *kept], key=lambda arm: order.index(arm["key"]))
    result = {
        "name": experiment.name,
        "title": experiment.title,
        "question": experiment.question,
        "small": small,
        **_metric(experiment.arms[0].recipe),
        "written": time.strftime("%Y-%m-%d", time.gmtime()),
        "missing": missing,
        "arms": arms,
    }
    write_json(path, _rounded(result), indent=None)  # long curves: a line is enough
    return True


def _metric(recipe: Recipe) -> dict[str, Any]:
    """What its task calls an error, and whether it is shown in percent."""
    maker = TASKS.get(recipe.task)
    return {"metric": getattr(maker, "metric", "error"), "as_percent": getattr(maker, "as_percent", True)}


def _arms_in(path: Path, small: bool) -> tuple[dict[str, Any], bool]:
    """The arms in a result by their keys, none if there is no such file or it is no result; and whether they are of
    this scale."""
    try:
        content = json.loads(path.read_text())
        return {arm["key"]: arm for arm in content["arms"]}, content["small"] == small
    except (OSError, ValueError, KeyError, TypeError):
        return {}, True


def _own(summary: dict[str, Any], probes: Iterable[str], thresholds: Iterable[float]) -> dict[str, Any]:
    """Only what this experiment measures: a network may have been measured for others, too."""
    found = {name: summary["probes"][name] for name in probes if name in summary["probes"]}  # of a diverged one, none
    if "thresholds" in found:
        found["thresholds"] = [row for row in found["thresholds"] if row["threshold"] in thresholds]
    return {**summary, "probes": found}


def _rounded(value: Any) -> Any:
    """Rounded to the digits that matter."""
    match value:
        case float():
            return float(f"{value:.6g}")
        case dict():
            return {key: one if key in ("recipe", "change") else _rounded(one) for key, one in value.items()}
        case list() | tuple():
            return [_rounded(one) for one in value]
        case _:
            return value
