"""Trains all networks that are wanted: in this process, beside others that have the same store, or on Ray's workers."""

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from glstm.experiments.runner import Runner, Wanted, populations, room_on
from glstm.extras import needed_by
from glstm.training.display import Display

WAIT = 2.0  # seconds between two looks at what other processes have finished

Wants = Callable[[], list[Wanted]]  # asked again and again: networks that are finished decide which others are wanted
Say = Callable[[str], None]


class Engine(Protocol):
    """Where networks train."""

    def train(self, wants: Wants, say: Say, should_stop: Callable[[], bool]) -> bool:
        """Train and measure everything; False when stopped before the end."""
        ...

    def close(self) -> None: ...


class ThisProcess:
    """One population after the other. Several such processes with one store share the work: no network is trained by
    two, and each waits for what the others decide."""

    def __init__(self, runner: Runner, display: Callable[[], Display]):
        self.runner, self.display = runner, display

    def train(self, wants: Wants, say: Say, should_stop: Callable[[], bool]) -> bool:
        store, said = self.runner.store, False
        while todo := missing(wants, self.runner):
            trained = False
            for population in populations(todo, room_on(self.runner.fabric.device)):
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

    def close(self) -> None:
        pass


class Rays:
    """A task for each population on the workers of a Ray cluster, which all see the folder of the store.

    If a worker or its machine dies, Ray starts its task again elsewhere, and the networks go on from their checkpoints.
    """

    RETRIES = 5

    def __init__(self, runner: Runner, address: str | None = None):
        with needed_by("--engine ray"):
            self.ray: Any = import_module("ray")  # it is large, and no part of an installation for tests
        self.runner = runner
        self.ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, include_dashboard=False)

    def train(self, wants: Wants, say: Say, should_stop: Callable[[], bool]) -> bool:
        device = self.runner.fabric.device.type
        needs = {"num_cpus": 1, "num_gpus": int(device == "cuda"), "max_retries": self.RETRIES}
        task = self.ray.remote(**needs)(_train)
        plan = self.ray.put(self.runner.plan())
        while todo := missing(wants, self.runner):
            work = populations(todo, room_on(self.runner.fabric.device))
            say(f"{len(todo)} networks in {len(work)} tasks, as far as is known")
            running = {task.remote(plan, population): population for population in work}
            while running:
                done, _ = self.ray.wait(list(running), timeout=WAIT)
                for one in done:
                    self.ray.get(one)  # raises what the task raised
                    say(f"finished: {describe(running.pop(one))}")
                if should_stop():
                    for one in running:
                        self.ray.cancel(one)
                    return False
        return True

    def close(self) -> None:
        self.ray.shutdown()


def _train(plan: dict, population: list[Wanted]) -> None:
    """On a worker. Another attempt at the same networks, whose process has died, may be at its last save: wait."""
    runner = Runner.from_plan(plan)
    while left := [one for one in population if one.missing(runner.store.summary(one.recipe))]:
        with runner.store.claim(one.recipe for one in left) as ours:
            if len(ours) == len(left):
                runner.train(left, Display(), lambda: False)
                return
        time.sleep(WAIT)


def missing(wants: Wants, runner: Runner) -> list[Wanted]:
    return [one for one in wants() if one.missing(runner.store.summary(one.recipe))]


def describe(population: list[Wanted]) -> str:
    recipe, count = population[0].recipe, len(population)
    networks = "a network" if count == 1 else f"{count} networks"
    return f"{networks} of {recipe.units} units, {recipe.epochs} epochs of {recipe.task}"
