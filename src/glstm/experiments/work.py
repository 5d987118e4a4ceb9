"""Trains all networks that are wanted: in this process, beside others that have the same store, or on Ray's workers."""

import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

from glstm.experiments.runner import Runner, Wanted, decides, populations, room_on
from glstm.fleet import Fleet
from glstm.stopping import StopOnSignal
from glstm.training.display import Display

WAIT = 2.0  # seconds between two looks at what other processes have finished

Wants = Callable[[], list[Wanted]]  # asked again and again: networks that are finished decide which others are wanted
Say = Callable[[str], None]


class Engine(Protocol):
    """Where networks train."""

    def train(self, wants: Wants, say: Say, should_stop: Callable[[], bool]) -> bool:
        """Train and measure everything; False when stopped before the end."""
        ...


class ThisProcess:
    """One population after the other. Several such processes with one store share the work: no network is trained by
    two, and each waits for what the others decide."""

    def __init__(self, runner: Runner, display: Callable[[], Display], together: int | None = None):
        self.runner, self.display, self.together = runner, display, together

    def train(self, wants: Wants, say: Say, should_stop: Callable[[], bool]) -> bool:
        store, said = self.runner.store, False
        while todo := missing(wants, self.runner):
            trained = False
            for population in populations(todo, room_on(self.runner.fabric.device, self.together)):
                with store.claim(one.recipe for one in population) as ours:  # others train the rest
                    left = [one for one in population if one.recipe in ours and one.missing(store.summary(one.recipe))]
                    if left and not should_stop():
                        say(f"{describe(left)}; {len(todo)} are to be trained, as far as is known")
                        trained = True
                        self.runner.train(left, self.display(), should_stop)
                if trained or should_stop():  # others may be known now that are to be trained first
                    break
            if should_stop():
                return False
            if not trained:
                if not said:
                    say("other processes train the rest; waiting for what they decide")
                said = True
                time.sleep(WAIT)
        return True


class Rays:
    """A task for each population on the workers of a Ray cluster. `machine_of` describes the machine of a worker."""

    def __init__(
        self,
        runner: Runner,
        fleet: Fleet,
        machine_of: Callable[[torch.device], dict[str, Any]],
        together: int | None = None,
    ):
        self.runner, self.fleet, self.machine_of, self.together = runner, fleet, machine_of, together

    def train(self, wants: Wants, say: Say, should_stop: Callable[[], bool]) -> bool:
        device, plan = self.runner.fabric.device, self.runner.plan()
        while todo := missing(wants, self.runner):
            work = populations(todo, room_on(device, self.together))
            say(f"{len(todo)} networks in {len(work)} tasks, as far as is known")

            def on_end(number: int, _: object, work: list[list[Wanted]] = work) -> None:
                say(f"finished: {describe(work[number])}")

            tasks = [(plan, self.machine_of, population) for population in work]
            if not self.fleet.run(_train, tasks, device.type, on_end, should_stop):
                return False
        return True


def _train(plan: dict[str, Any], machine_of: Callable[[torch.device], dict[str, Any]], work: list[Wanted]) -> None:
    """On a worker. Another attempt at the same networks, whose process has died, may be at its last save: wait."""
    runner = Runner.from_plan(plan, machine_of)
    with StopOnSignal() as should_stop:
        while left := [one for one in work if one.missing(runner.store.summary(one.recipe))]:
            with runner.store.claim(one.recipe for one in left) as ours:
                if len(ours) == len(left):
                    runner.train(left, Display(), should_stop)
                    return
            if should_stop():
                return
            time.sleep(WAIT)


def missing(wants: Wants, runner: Runner) -> list[Wanted]:
    return [one for one in wants() if one.missing(runner.store.summary(one.recipe))]


def describe(population: list[Wanted]) -> str:
    recipe, count = population[0].recipe, len(population)
    networks = "a network" if count == 1 else f"{count} networks"
    what = "a search" if decides(recipe) else "what is tested"
    return f"{networks} of {what}: {recipe.units} units, {recipe.epochs} epochs of {recipe.task}"
