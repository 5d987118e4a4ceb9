"""Tasks on the workers of a Ray cluster, which all see the same folders. Ray is an extra."""

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch

from glstm.errors import UserError
from glstm.extras import needed_by

WAIT = 2.0  # seconds between two looks at what is finished
PATIENCE = 60.0  # seconds in which tasks that are asked to stop save what they have


class Fleet:
    """A connection to the cluster that RAY_ADDRESS names; without it, Ray starts one on this machine.

    If a worker or its machine dies, Ray starts its task again elsewhere, so a task must be one that can go on from what
    the attempt before it has saved. Make a `Fleet` before signals are handled: Ray sets handlers of its own.
    """

    RETRIES = 5

    def __init__(self):
        with needed_by("--engine ray"):
            self.ray: Any = import_module("ray")  # it is large, and no part of an installation for tests
        address = os.environ.get("RAY_ADDRESS") or "local"  # None: that of the last command, perhaps gone
        self.ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, include_dashboard=False)

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_: object) -> None:
        self.ray.shutdown()

    def has_gpus(self) -> bool:
        return self.ray.cluster_resources().get("GPU", 0) > 0

    def run(
        self,
        function: Callable[..., Any],
        work: Sequence[tuple[Any, ...]],
        device: str,
        on_end: Callable[[int, Any], None],
        should_stop: Callable[[], bool],
        on_wait: Callable[[], None] = lambda: None,
    ) -> bool:
        """Call the function with each of these arguments, each call a task with one device of this type; False: stopped
        before all had ended.

        `on_end` is told a task's number and what it returned, in the order in which they end. A task uses as many
        threads as this process would, because sums are divided among threads: it ends with the same bits as here.
        A task that is asked to stop has a SIGINT, as from Ctrl-C.
        """
        threads = torch.get_num_threads()
        needs = {"num_cpus": self._cpus(threads), "num_gpus": int(device == "cuda"), "max_retries": self.RETRIES}
        task = self.ray.remote(**needs)(_call)
        running = {task.remote(function, one, threads): number for number, one in enumerate(work)}
        while running and not should_stop():
            for one in self.ray.wait(list(running), timeout=WAIT)[0]:
                on_end(running.pop(one), self._result(one))
            on_wait()
        for one in running:
            self.ray.cancel(one)
        if running:
            self.ray.wait(list(running), num_returns=len(running), timeout=PATIENCE)
        return not running

    def _result(self, one: Any) -> Any:
        try:
            return self.ray.get(one)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from None  # as if it had been raised here
        except self.ray.exceptions.RayError as error:
            why = next(iter(str(error).splitlines()), type(error).__name__)
            raise UserError(
                f"a task was lost {self.RETRIES + 1} times, the last time because {why:.200}; what is saved is intact"
            ) from None

    def _cpus(self, threads: int) -> int:
        """What a task asks for: not more than the largest machine has, for it would wait for ever."""
        largest = max((one["Resources"].get("CPU", 0) for one in self.ray.nodes() if one["Alive"]), default=1)
        return max(1, min(threads, int(largest)))


def _call(function: Callable[..., Any], arguments: tuple[Any, ...], threads: int) -> Any:
    torch.set_num_threads(threads)
    return function(*arguments)
