from itertools import product
from typing import Any

from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.protocol import RATES, Tries, at_its_best, best_of_images, moving
from glstm.experiments.table1_smnist import BEST
from glstm.recipes import Recipe

SEARCH_EPOCHS = 60  # half of them, each with its whole schedule

# What a network of 110 units saves may be less than what a smaller one never has: each is tried in several sizes.
SIZES = (110, 32)

# The Phased LSTM has its paper's open share and leak, and one rate for weights and gates. tau is exp(U): the paper's
# exp(U(0, 3)), or as long as the sequence is.
PHASED = BEST.changed(cell="plstm", gate={"s": (0.0, 784.0), "r": 0.05}, options={"log_tau": True})
PERIODS = ((1.0, 20.0), (50.0, 800.0))

# The clocks of the Clockwork RNN over an LSTM: the plain RNN of that paper takes 8 s for an epoch on an H200.
CLOCKED = BEST.changed(cell="gated", gate={"kind": "clockwork"})
CLOCKS = tuple(tuple(first * 2**number for number in range(8)) for first in (1, 2))  # from 1 on in the paper

SPARSE = BEST.changed(cell="lstm")
PRUNED = ((110, 0.9), (110, 0.98), (32, 0.9), (16, 0.9))  # units, and the share of weights that is set to 0


def eight(name: str, values: tuple[Any, ...]) -> Tries:
    """Eight tries: a value of the gate, one rate for weights and gates, and images that move by a pixel."""
    return tuple(
        {"gate": {name: value}, "lr": rate, "gate_lr": rate, **moving(shift)}
        for value, rate, shift in product(values, RATES, (0, 1))
    )


def rival(key: str, name: str, recipe: Recipe, tries: Tries) -> Arm:
    """What decides trains for half of the epochs: it takes half of the time."""
    return at_its_best(key, name, recipe, tries, search=recipe.changed(epochs=SEARCH_EPOCHS))


def phased(units: int) -> Arm:
    return rival(f"plstm-{units}", f"Phased LSTM, {units} units", PHASED.changed(units=units), eight("tau", PERIODS))


def clocked(units: int) -> Arm:
    recipe = CLOCKED.changed(units=units)
    return rival(f"clockwork-{units}", f"Clockwork LSTM, {units} units", recipe, eight("period", CLOCKS))


def pruned(units: int, sparsity: float) -> Arm:
    key = f"pruned-{units}-{round(100 * sparsity)}"
    name = f"pruned LSTM, {units} units, {100 - round(100 * sparsity)} % of the weights"
    return rival(key, name, SPARSE.changed(units=units, sparsity=sparsity), best_of_images(784))


EXPERIMENT = Experiment(
    name="thrifty",
    title="Other ways to save operations (ours)",
    question="What error do other networks reach that leave out operations?",
    arms=(*map(phased, SIZES), *(pruned(*one) for one in PRUNED), *map(clocked, SIZES)),
)
