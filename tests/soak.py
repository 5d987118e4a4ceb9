"""Whether memory grows: `make soak` makes 100000 calls of each kind, deployed, streamed and in training.

Resident memory is read from /proc/self/statm, after a collection of garbage, at ten marks after the warm-up, which is
the first tenth of the calls. A kind passes if the highest of the later marks is not above the first by more than the
size of one allocator arena, 1 MiB: a leak of 12 bytes a call would be seen.
"""

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

import glstm

STEPS, WIDTH, UNITS = 20, 3, 16
MARKS = 10
MOST_GROWTH = 2**20  # bytes


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def network() -> glstm.SequenceModel:
    torch.manual_seed(0)
    return glstm.SequenceModel(glstm.GLSTM(WIDTH, UNITS, mu=(1, STEPS), sigma=2.0), nn.Linear(UNITS, 2))


def deployed() -> Callable[[int], object]:
    """Sequences of several lengths of batch, and every so often the network is deployed anew."""
    model = network().eval()
    known = [glstm.deploy(model, STEPS, 0.01)]
    inputs = [torch.randn(STEPS, batch, WIDTH) for batch in (1, 2, 5)]

    def call(number: int) -> None:
        if number % 500 == 0:
            known[0] = glstm.deploy(model, STEPS, 0.01)
        known[0](inputs[number % 3])

    return call


def streamed() -> Callable[[int], object]:
    """Single samples; a stream that is at its end is reset, and now and then copied or made anew."""
    runtime = glstm.deploy(network().eval(), STEPS, 0.01)
    stream = [runtime.stream()]
    sample = np.ones(WIDTH, np.float32)

    def call(number: int) -> None:
        if number % STEPS == 0:
            stream[0].reset()
        if number % 1000 == 0:
            stream[0] = runtime.stream()
        stream[0].step(sample)

    return call


def trained() -> Callable[[int], object]:
    """A step of an optimiser, on batches of several sizes."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    inputs = [torch.randn(STEPS, batch, WIDTH) for batch in (1, 4, 8)]

    def call(number: int) -> None:
        optimizer.zero_grad()
        (model(inputs[number % 3]).square().mean() + glstm.budget(model, times=STEPS)).backward()
        optimizer.step()

    return call


KINDS = {"deployed": deployed, "streamed": streamed, "trained": trained}


def soak(name: str, calls: int) -> tuple[list[int], float]:
    """Resident bytes at the marks after the warm-up, and the seconds of one call."""
    call = KINDS[name]()
    warm_up = calls // 10
    marks, began = [], time.perf_counter()
    for number in range(calls):
        call(number)
        if number + 1 >= warm_up and (number + 1 - warm_up) % max(1, (calls - warm_up) // MARKS) == 0:
            marks.append(resident())
    return marks, (time.perf_counter() - began) / calls


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--kind", choices=KINDS, action="append")
    given = parser.parse_args()
    torch.set_num_threads(1)
    grew = False
    for name in given.kind or KINDS:
        marks, seconds = soak(name, given.calls)
        growth = max(marks[1:]) - marks[0]
        grew |= growth > MOST_GROWTH
        print(
            f"{name}: {given.calls} calls of {1e6 * seconds:.0f} us; {marks[0] / 2**20:.1f} MiB after the warm-up, "
            f"then {growth / 2**10:+.0f} KiB at most; KiB at the marks: {[(mark - marks[0]) >> 10 for mark in marks]}",
            flush=True,
        )
    return 1 if grew else 0


if __name__ == "__main__":
    sys.exit(main())
