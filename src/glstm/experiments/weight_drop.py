from dataclasses import replace
from itertools import product
from typing import Any

from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.frontier import grid, point
from glstm.experiments.protocol import Tries
from glstm.experiments.small import small
from glstm.experiments.thrifty import CLOCKS, PERIODS, clocked, phased

# Shares of the recurrent weights that an update leaves out. Where images move, less is learnt by heart.
SHARES, WHERE_IMAGES_MOVE = (0.3, 0.5), (0.1, 0.3)

PLAIN = grid((220,), (25.0, 50.0), (3.0, 10.0))
MOVED = grid((220,), (25.0, 50.0), (5.0, 10.0), shift=1)

# What validation chose for each of the others without weight drop, all of them with images that move.
CHOSEN = {"lr": 2e-3, "data": {"shift": 1}}
CHOSEN_GATED = {**CHOSEN, "gate_lr": 2e-3}


def dropping(tries: Tries, shares: tuple[float, ...]) -> Tries:
    return tuple({**change, "weight_drop": share} for change, share in product(tries, shares))


def thrifty(millions: float, moved: bool) -> Arm:
    tries = dropping(MOVED, WHERE_IMAGES_MOVE) if moved else dropping(PLAIN, SHARES)
    arm = point(f"{'moved' if moved else 'plain'}-{millions:g}", millions, tries, moved)
    return replace(arm, name=f"{arm.name}, weight drop")


def rival(arm: Arm, chosen: dict[str, Any]) -> Arm:
    """With the recipe that was chosen for it, and weight drop if that is better by validation."""
    search = None if arm.search is None else arm.search.changed(**chosen)
    tries = dropping(({},), (0.0, *WHERE_IMAGES_MOVE))
    return replace(arm, recipe=arm.recipe.changed(**chosen), search=search, tries=tries)


EXPERIMENT = Experiment(
    name="weight-drop",
    title="Weight drop (ours)",
    question="Narrow gates learn training images by heart. What if updates leave out recurrent weights?",
    arms=(
        thrifty(0.1, moved=False),
        thrifty(0.25, moved=False),
        thrifty(0.5, moved=False),
        thrifty(0.25, moved=True),
        rival(small("lstm", "LSTM", 64), CHOSEN),
        rival(small("gru", "GRU", 64), CHOSEN),
        rival(phased(110), {**CHOSEN_GATED, "gate": {"tau": PERIODS[1]}}),
        rival(clocked(32), {**CHOSEN_GATED, "gate": {"period": CLOCKS[0]}}),
    ),
    thresholds=(0.0, 0.003, 0.01, 0.03, 0.1),
)
