from dataclasses import replace
from itertools import product
from typing import Any

from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.frontier import point
from glstm.experiments.protocol import RATES
from glstm.experiments.thrifty import CLOCKS, PERIODS, clocked, phased

# The frontier's networks of this kind had one rate, the smaller one, and no weight drop. Those tries are among these,
# so that validation may choose them again.
UNITS, SIGMA, CHARGES = 220, 25.0, (1.0, 3.0, 10.0)
RATE_AND_SHARE = ((RATES[0], 0.0), (RATES[1], 0.0), (RATES[1], 0.3))

TRIES = tuple(
    {"units": UNITS, "gate": {"sigma": SIGMA}, "budget": charge, "lr": rate, "weight_drop": share}
    for charge, (rate, share) in product(CHARGES, RATE_AND_SHARE)
)

# Where images move, too. The rate alone did not help where they stay, and is left out; a smaller share is among the
# tries, since images that move leave less to fit.
MOVED_CHARGES, MOVED_RATE_AND_SHARE = (3.0, 5.0, 10.0), ((RATES[0], 0.0), (RATES[1], 0.1), (RATES[1], 0.3))

MOVED_TRIES = tuple(
    {"units": UNITS, "gate": {"sigma": SIGMA}, "budget": charge, "lr": rate, "weight_drop": share, "data": {"shift": 1}}
    for charge, (rate, share) in product(MOVED_CHARGES, MOVED_RATE_AND_SHARE)
)

# What validation chose for the others, of the tries with images as they are.
CHOSEN = {"lr": 2e-3, "gate_lr": 2e-3}


def without_augmentation(millions: float) -> Arm:
    arm = point(f"plain-{millions:g}", millions, TRIES, moved=False)
    return replace(arm, name=f"{arm.name}, rate and weight drop")


def with_augmentation(millions: float) -> Arm:
    arm = point(f"moved-{millions:g}", millions, MOVED_TRIES, moved=True)
    return replace(arm, name=f"{arm.name}, rate and weight drop")


def rival(arm: Arm, gate: dict[str, Any]) -> Arm:
    """With the recipe that was chosen for it, and weight drop if that is better."""
    changes = {**CHOSEN, "gate": gate}
    search = arm.search and arm.search.changed(**changes)
    tries = tuple({"weight_drop": share} for share in (0.0, 0.1, 0.3))
    name = f"{arm.name}, images as they are, weight drop"
    return replace(arm, name=name, recipe=arm.recipe.changed(**changes), search=search, tries=tries)


EXPERIMENT = Experiment(
    name="weight-drop",
    title="Narrow gates without augmentation: a larger rate, and weight drop (ours)",
    question="The frontier's g-LSTMs fit images that do not move almost exactly. Does it help to leave out recurrent "
    "weights at random, or to learn at the rate that other networks chose? And does it help others?",
    arms=(
        *map(without_augmentation, (0.1, 0.25, 6)),
        *map(with_augmentation, (0.25, 0.09)),
        rival(phased(32), {"tau": PERIODS[0]}),
        rival(clocked(32), {"period": CLOCKS[0]}),
    ),
    thresholds=(0.0, 0.003, 0.01, 0.03, 0.1),
)
