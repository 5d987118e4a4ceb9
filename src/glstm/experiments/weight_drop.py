from dataclasses import replace
from itertools import product
from typing import Any

from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.frontier import point
from glstm.experiments.protocol import RATES, Tries
from glstm.experiments.thrifty import CLOCKS, PERIODS, clocked, phased

# The frontier's networks of this kind had one rate, the smaller one, and no weight drop. Those tries are among these,
# so that validation may choose them again.
UNITS, SIGMA = 220, 25.0
BEFORE, FASTER, SHARES = (RATES[0], 0.0), RATES[1], (0.1, 0.3)


def tries(charges: tuple[float, ...], rates_and_shares: tuple[tuple[float, float], ...], **more: Any) -> Tries:
    own = {"units": UNITS, "gate": {"sigma": SIGMA}}
    return tuple(
        {**own, "budget": charge, "lr": rate, "weight_drop": share, **more}
        for charge, (rate, share) in product(charges, rates_and_shares)
    )


PLAIN = tries((1.0, 3.0, 10.0), (BEFORE, (FASTER, 0.0), (FASTER, SHARES[1])))

# Where images move, a smaller share may be enough, since there is less to learn by heart. The rate alone is left out:
# it did not help where they stay.
MOVING: dict[str, Any] = {"data": {"shift": 1}}
DROPPED = tuple((FASTER, share) for share in SHARES)
MOVED = tries((3.0, 5.0, 10.0), (BEFORE, *DROPPED), **MOVING)

# None of these takes less than 0.09 M. The first one here is what the frontier chose for this limit.
FEWEST = {"units": 110, "gate": {"sigma": 50.0}, "budget": 10.0, "lr": BEFORE[0], "weight_drop": 0.0, **MOVING}
CHEAPER = (*MOVED, FEWEST, *tries((15.0,), DROPPED, **MOVING))

# What validation chose for the others, of the tries with images as they are.
CHOSEN = {"lr": 2e-3, "gate_lr": 2e-3}


def narrow(key: str, millions: float, tries: Tries, moved: bool) -> Arm:
    arm = point(key, millions, tries, moved)
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
    question="The frontier's g-LSTMs learn their training images almost by heart. Does it help to leave out recurrent "
    "weights at random, or to learn at the rate that other networks chose? And does it help others?",
    arms=(
        *(narrow(f"plain-{millions:g}", millions, PLAIN, moved=False) for millions in (0.1, 0.25, 6)),
        narrow("moved-0.25", 0.25, MOVED, moved=True),
        narrow("moved-0.09", 0.09, CHEAPER, moved=True),
        rival(phased(32), {"tau": PERIODS[0]}),
        rival(clocked(32), {"period": CLOCKS[0]}),
    ),
    thresholds=(0.0, 0.003, 0.01, 0.03, 0.1),
)
