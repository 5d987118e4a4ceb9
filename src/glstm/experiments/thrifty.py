from itertools import product

from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.protocol import RATES, at_its_best
from glstm.experiments.table1_smnist import BEST
from glstm.recipes import Recipe

SEARCH_EPOCHS = 60  # half of them, each with its whole schedule

# The Phased LSTM starts as in its paper, and has one rate for weights and gates.
PHASED = BEST.changed(cell="plstm", gate={"s": (0.0, 784.0), "r": 0.05}, options={"log_tau": True})
PERIODS = ((1.0, 20.0), (20.0, 400.0))  # exp(U(0, 3)), as in its paper, and exp(U(3, 6))
PHASES = tuple(
    {"gate": {"tau": tau}, "lr": rate, "gate_lr": rate, **({"data": {"shift": shift}} if shift else {})}
    for tau, rate, shift in product(PERIODS, RATES, (0, 1))
)


def halved(recipe: Recipe) -> Recipe:
    """What decides: it takes half of the time."""
    return recipe.changed(epochs=SEARCH_EPOCHS)


def phased(r: float) -> Arm:
    """`r` is where the units' open shares start."""
    recipe = PHASED.changed(gate={"r": r})
    return at_its_best(f"plstm-{r:g}", f"Phased LSTM, r = {r:g}", recipe, PHASES, search=halved(recipe))


EXPERIMENT = Experiment(
    name="thrifty",
    title="Other ways to save operations (ours)",
    question="What error do other networks reach that leave out operations?",
    arms=(phased(0.05), phased(0.2)),
)
