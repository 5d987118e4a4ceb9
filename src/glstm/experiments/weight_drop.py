from dataclasses import replace
from itertools import product

from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.frontier import point
from glstm.experiments.protocol import RATES

# The frontier's networks of this kind had one rate, the smaller one, and no weight drop. Those tries are among these,
# so that validation may choose them again.
UNITS, SIGMA, CHARGES = 220, 25.0, (1.0, 3.0, 10.0)
RATE_AND_SHARE = ((RATES[0], 0.0), (RATES[1], 0.0), (RATES[1], 0.3))

TRIES = tuple(
    {"units": UNITS, "gate": {"sigma": SIGMA}, "budget": charge, "lr": rate, "weight_drop": share}
    for charge, (rate, share) in product(CHARGES, RATE_AND_SHARE)
)


def plain(millions: float) -> Arm:
    arm = point(f"plain-{millions:g}", millions, TRIES, moved=False)
    return replace(arm, name=f"{arm.name}, rate and weight drop")


EXPERIMENT = Experiment(
    name="weight-drop",
    title="Narrow gates without augmentation: a larger rate, and weight drop (ours)",
    question="The frontier's g-LSTMs fit images that do not move almost exactly. Does it help to leave out recurrent "
    "weights at random, or to learn at the rate that other networks chose?",
    arms=(plain(0.25), plain(0.5), plain(6)),
    thresholds=(0.0, 0.003, 0.01, 0.03, 0.1),
)
