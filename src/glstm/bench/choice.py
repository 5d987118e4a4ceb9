"""Measures how good the choice between dense and sparse is on this machine: both are run and compared."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from glstm.bench.cpu import Case, build_layer, training_step
from glstm.bench.race import race
from glstm.ops import cpu

STEPS = 300
OPENNESS = (0.02, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)


@dataclass(frozen=True)
class Choice:
    case: Case
    threads: int
    dense: float  # seconds
    sparse: float
    chosen: float

    @property
    def loss(self) -> float:
        """How much slower the choice was than the better of the two; noise makes it a little more or less than 0."""
        return self.chosen / min(self.dense, self.sparse) - 1


def cases() -> Iterator[Case]:
    for hidden in (28, 110, 220):
        for kind, batches in (("inference", (1, 4, 16, 100)), ("training", (1, 4, 16, 100))):
            for batch in batches:
                for openness in OPENNESS:
                    yield Case(kind, batch, openness, steps=STEPS, hidden=hidden)


def measure(case: Case, threads: int, seconds: float) -> Choice:
    torch.manual_seed(0)
    layer, x = build_layer(case), torch.randn(case.steps, case.batch, case.inputs)
    if case.kind == "training":
        step = training_step(layer, lambda: layer(x, sequence=False)[1][0].sum())
    else:
        step = partial(layer.eval(), x, sequence=False)  # the choice is made at the first call and remembered

    def forced(path: str):
        def run() -> None:
            with cpu.forcing(path):
                step()

        return run

    ways = {"dense": lambda _: forced("dense"), "sparse": lambda _: forced("sparse"), "chosen": lambda _: step}
    with torch.set_grad_enabled(case.kind == "training"):
        found = race(ways, [threads], seconds)
    return Choice(case, threads, *(found[name].seconds for name in ("dense", "sparse", "chosen")))
