"""Several contenders, timed in turns, so that other load on the machine affects all of them."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median

import torch

Call = Callable[[], object]
SETTLE = 0.02  # seconds in which the threads of the contender before stop spinning
WARMING = 0.1  # seconds: a call that takes longer warms up by itself


@dataclass(frozen=True)
class Elsewhere:
    """A contender in another process. It takes its turn there, and says how long each call took."""

    turn: Callable[[float], list[float]]


@dataclass(frozen=True)
class Timing:
    seconds: float  # median of a call
    threads: int
    runs: int


Contender = Callable[[int], Call | Elsewhere]


def race(contenders: Mapping[str, Contender], threads: Iterable[int], seconds: float) -> dict[str, Timing]:
    """The median time of each contender, at its best number of threads.

    A contender takes a number of threads and returns the function to time. That function is called for `seconds` at
    each number of threads, in five turns, and at least five times.
    """
    best: dict[str, Timing] = {}
    before = torch.get_num_threads()
    try:
        for count in threads:
            torch.set_num_threads(count)
            calls = {name: make(count) for name, make in contenders.items()}
            times: dict[str, list[float]] = {name: [] for name in calls}
            for number in range(5):
                for name, call in calls.items():
                    time.sleep(SETTLE)
                    if number == 0 or max(times[name]) < WARMING:
                        turn(call, 0)
                    times[name] += turn(call, seconds / 5)
            for name, found in times.items():
                timing = Timing(median(found), count, len(found))
                if name not in best or timing.seconds < best[name].seconds:
                    best[name] = timing
    finally:
        torch.set_num_threads(before)
    return best


def turn(call: Call | Elsewhere, seconds: float) -> list[float]:
    """The seconds of each call, for so long, and at least of one."""
    if isinstance(call, Elsewhere):
        return call.turn(seconds)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times
