"""A sweep: recipes, trained once each, and what validation says of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from statistics import mean, stdev
from typing import Any

from glstm.data.task import Task
from glstm.errors import UserError
from glstm.experiments.runner import Runner, Wanted
from glstm.experiments.store import Store
from glstm.extras import needed_by
from glstm.recipes import Recipe, make_task, model_maker
from glstm.sweeps.plan import Plan, Range, Search, Values, with_values
from glstm.training.best import check_patience


@dataclass(frozen=True)
class Trial:
    """One recipe, from each of the seeds."""

    values: Values
    recipes: list[Recipe]

    def errors(self, store: Store) -> list[float] | None:
        """Validation errors of the networks that are kept; None: not all are trained. Infinite: training diverged."""
        found = [store.summary(recipe) for recipe in self.recipes]
        if any(one is None for one in found):
            return None
        return [_error(one) for one in found if one is not None]

    def as_dict(self, store: Store) -> dict[str, Any]:
        """For JSON, which has no infinite numbers."""
        errors = self.errors(store)
        finite = None if errors is None or inf in errors else errors
        return {
            "values": self.values,
            "validation_error": None if finite is None else mean(finite),
            "standard_deviation": stdev(finite) if finite and len(finite) > 1 else None,
            "diverged": errors is not None and inf in errors,
            "folders": [str(store.folder(recipe).path) for recipe in self.recipes],
        }


def _error(summary: dict[str, Any]) -> float:
    """Of the epoch whose network is kept. With a budget on openness that need not be the one with the lowest error."""
    errors, kept = summary["curve"].get("validation_error", []), summary.get("kept_epoch")
    if summary["diverged"] or not errors:
        return inf
    if kept is None:  # a summary from before it was recorded
        return min((error for error in errors if error is not None), default=inf)
    error = errors[kept - 1]
    return inf if error is None else error


class Sweep:
    """`base` is what all recipes have in common."""

    def __init__(self, plan: Plan, base: Recipe, store: Store):
        self.plan, self.store = plan, store
        self.base = with_values(base, {name: value for name, value in plan.recipe.items() if name != "seed"})
        if "seed" in plan.recipe or "seed" in plan.grid:
            raise UserError("seeds of a sweep are said by seeds = [0, 1], not in its recipe or grid")
        self.trials = [self._trial(values) for values in plan.in_grid()] if plan.search is None else []
        self._study = _Study(plan.search) if plan.search else None

    def _trial(self, values: Values) -> Trial:
        recipe = with_values(self.base, values)
        return Trial(values, [recipe.changed(seed=seed) for seed in self.plan.seeds])

    def samples(self) -> Iterator[Values]:
        """Of a search: values that it may ask for, each of them once."""
        search = self.plan.search
        if search is None:
            return
        ends = {name: one if isinstance(one, list) else [one.low, one.high] for name, one in search.values.items()}
        first = {name: one[0] for name, one in ends.items()}
        for name, values in ends.items():
            for value in values:
                yield first | {name: value}

    def wanted(self) -> list[Wanted]:
        """Networks to train, as far as is known. A search is asked for more when all before are trained.

        A sweep that goes on asks the same questions again, and the store has the answers: it goes on where it was.
        """
        while self._study and self._study.asks(len(self.trials)):
            errors = [trial.errors(self.store) for trial in self.trials]
            known = [mean(one) for one in errors if one is not None]
            if len(known) < len(errors):
                break
            self.trials += [self._trial(values) for values in self._study.next(known)]
        found = {recipe: Wanted(recipe) for trial in self.trials for recipe in trial.recipes}  # a search may repeat one
        return list(found.values())

    def ranked(self) -> list[Trial]:
        """Those that are trained, the best first."""
        scores = {number: trial.errors(self.store) for number, trial in enumerate(self.trials)}
        known = {number: mean(errors) for number, errors in scores.items() if errors is not None}
        return [self.trials[number] for number in sorted(known, key=lambda number: (known[number], number))]


class _Study:
    """Optuna's sampler, with a fixed seed: the same answers lead to the same questions."""

    WORST = 1e9  # what it is told of a network that diverged

    def __init__(self, search: Search):
        with needed_by("a sweep with a [search]"):
            import optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.optuna, self.search = optuna, search
        sampler = optuna.samplers.TPESampler(seed=search.seed, n_startup_trials=max(10, search.together))
        self.study = optuna.create_study(sampler=sampler, direction="minimize")
        self.open: list[Any] = []
        self.told = 0

    def asks(self, made: int) -> bool:
        return made < self.search.trials

    def next(self, errors: list[float]) -> list[Values]:
        """The next values; `errors` are those of all before."""
        for trial, error in zip(self.open, errors[self.told :], strict=True):
            self.study.tell(trial, min(error, self.WORST))
        self.told = len(errors)
        count = min(self.search.together, self.search.trials - self.told)
        self.open = [self.study.ask() for _ in range(count)]
        return [
            {name: self._suggest(trial, name, one) for name, one in self.search.values.items()} for trial in self.open
        ]

    def _suggest(self, trial: Any, name: str, values: Range | list[Any]) -> Any:
        if isinstance(values, list):
            return values[
                trial.suggest_categorical(name, list(range(len(values))))
            ]  # a list or None cannot be a choice
        suggest: Callable[..., Any] = trial.suggest_float
        if isinstance(values.low, int) and isinstance(values.high, int):
            suggest = trial.suggest_int
        step = {} if values.step is None else {"step": values.step}
        return suggest(name, values.low, values.high, log=values.log, **step)


def check(sweep: Sweep, runner: Runner, on_each: Callable[[int, int], None] = lambda done, of: None) -> None:
    """Make every network once, before the first is trained: a bad value in the last recipe is found now. Of a search,
    whose recipes are not known, each value of a list and both ends of each range."""
    recipes = [trial.recipes[0] for trial in sweep.trials] or [with_values(sweep.base, one) for one in sweep.samples()]
    tasks: dict[str, Task] = {}  # the last one: they may be large
    for done, recipe in enumerate(sorted(recipes, key=lambda one: str(one.data)), 1):
        key = str(recipe.data)
        if key not in tasks:
            tasks = {key: make_task(recipe, runner.data, runner.fabric.device)}
        task = tasks[key]
        if not task.validation_size:  # it would choose by the test
            raise UserError(f"a sweep chooses by validation, and {task.name} has no validation part: hold some out")
        check_patience(task, recipe)
        model_maker(recipe, task)()
        on_each(done, len(recipes))
