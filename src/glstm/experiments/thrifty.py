from itertools import product
from typing import Any

from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.protocol import RATES, Tries, at_its_best, best_of_images
from glstm.experiments.table1_smnist import BEST
from glstm.recipes import Recipe

SEARCH_EPOCHS = 60  # half of them, each with its whole schedule

# The Phased LSTM has its paper's open share and leak, and one rate for weights and gates.
PHASED = BEST.changed(cell="plstm", gate={"s": (0.0, 784.0), "r": 0.05}, options={"log_tau": True})
# tau is exp(U), too, but longer than the paper's exp(U(0, 3)), with which the loss of 3,000 training images fell to 1.2
# in eight epochs, where these had 0.55 and 0.46.
PERIODS = ((20.0, 400.0), (50.0, 800.0))

# The clocks of the Clockwork RNN over an LSTM: the plain RNN of that paper takes 8 s for an epoch on an H200.
CLOCKED = BEST.changed(cell="gated", gate={"kind": "clockwork"})
CLOCKS = tuple(tuple(first * 2**number for number in range(8)) for first in (1, 2))  # from 1 on in the paper

SPARSE = BEST.changed(cell="lstm", sparsity=0.95)
SPARSITIES = (0.8, 0.9, 0.95, 0.98)


def eight(name: str, values: tuple[Any, ...]) -> Tries:
    """Eight tries: a value of the gate, one rate for weights and gates, and images that move by a pixel."""
    return tuple(
        {"gate": {name: value}, "lr": rate, "gate_lr": rate, **({"data": {"shift": shift}} if shift else {})}
        for value, rate, shift in product(values, RATES, (0, 1))
    )


def halved(recipe: Recipe) -> Recipe:
    """What decides: it takes half of the time."""
    return recipe.changed(epochs=SEARCH_EPOCHS)


def phased(r: float) -> Arm:
    """`r` is where the units' open shares start."""
    recipe = PHASED.changed(gate={"r": r})
    return at_its_best(f"plstm-{r:g}", f"Phased LSTM, r = {r:g}", recipe, eight("tau", PERIODS), search=halved(recipe))


def pruned(sparsity: float) -> Arm:
    """All have the recipe that validation chose for one of them: only one thing is to differ."""
    key, name = f"pruned-{100 * sparsity:g}", f"pruned LSTM, {100 * sparsity:g} %"
    recipe = SPARSE.changed(sparsity=sparsity)
    return at_its_best(key, name, recipe, best_of_images(784), search=halved(SPARSE))


EXPERIMENT = Experiment(
    name="thrifty",
    title="Other ways to save operations (ours)",
    question="What error do other networks reach that leave out operations?",
    arms=(
        phased(0.05),
        phased(0.2),
        *(pruned(share) for share in SPARSITIES),
        at_its_best("clockwork", "Clockwork LSTM", CLOCKED, eight("period", CLOCKS), search=halved(CLOCKED)),
    ),
)
