from dataclasses import replace
from itertools import product
from typing import Any

from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.frontier import point
from glstm.experiments.protocol import RATES, Tries, moving
from glstm.experiments.thrifty import CLOCKS, PERIODS, clocked, phased

# The frontier's networks of this kind had one rate, the smaller one, and no weight drop. Those tries are among these,
# so that validation may choose them again.
UNITS, SIGMA = 220, 25.0
SHARES = (0.1, 0.3)
BEFORE = (RATES[0], 0.0)  # rate and share of the frontier
FASTER = RATES[1]


def tries(charges: tuple[float, ...], rates_and_shares: tuple[tuple[float, float], ...], **more: Any) -> Tries:
    own = {"units": UNITS, "gate": {"sigma": SIGMA}}
    return tuple(
        {**own, "budget": charge, "lr": rate, "weight_drop": share, **more}
        for charge, (rate, share) in product(charges, rates_and_shares)
    )


PLAIN = tries((1.0, 3.0, 10.0), (BEFORE, (FASTER, 0.0), (FASTER, SHARES[1])))

# Where images move, networks fit them less closely, so a smaller share may be enough. The rate alone is left out: it
# did not help where they stay.
MOVING = moving(1)
DROPPED = tuple((FASTER, share) for share in SHARES)
MOVED = tries((3.0, 5.0, 10.0), (BEFORE, *DROPPED), **MOVING)

# No network of MOVED takes less than 0.09 M: for this limit a larger charge is added, and what the frontier chose.
OF_THE_FRONTIER = {"units": 110, "gate": {"sigma": 50.0}, "budget": 10.0, "lr": RATES[0], "weight_drop": 0.0, **MOVING}
MOVED_AND_CHEAPER = (*MOVED, OF_THE_FRONTIER, *tries((15.0,), DROPPED, **MOVING))

# What validation chose for the others, of the tries with images as they are.
CHOSEN = {"lr": 2e-3, "gate_lr": 2e-3}


def narrow(key: str, millions: float, grid: Tries, moved: bool) -> Arm:
    arm = point(key, millions, grid, moved)
    return replace(arm, name=f"{arm.name}, rate and weight drop")


def rival(arm: Arm, gate: dict[str, Any]) -> Arm:
    """With the recipe that was chosen for it, and weight drop if that is better."""
    changes = {**CHOSEN, "gate": gate}
    search = arm.search and arm.search.changed(**changes)
    shares = tuple({"weight_drop": share} for share in (0.0, *SHARES))
    name = f"{arm.name}, images as they are, weight drop"
    return replace(arm, name=name, recipe=arm.recipe.changed(**changes), search=search, tries=shares)


EXPERIMENT = Experiment(
    name="weight-drop",
    title="Narrow gates: a larger rate, and weight drop (ours)",
    question="Without augmentation the frontier's g-LSTMs fit their training images almost exactly. Does it help to "
    "leave out recurrent weights at random, or to learn at the rate that other networks chose? And where images move, "
    "or with other networks?",
    arms=(
        *(narrow(f"plain-{millions:g}", millions, PLAIN, moved=False) for millions in (0.1, 0.25, 6)),
        narrow("moved-0.25", 0.25, MOVED, moved=True),
        narrow("moved-0.09", 0.09, MOVED_AND_CHEAPER, moved=True),
        rival(phased(32), {"tau": PERIODS[0]}),
        rival(clocked(32), {"period": CLOCKS[0]}),
    ),
    thresholds=(0.0, 0.003, 0.01, 0.03, 0.1),
)
