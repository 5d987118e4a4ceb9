from itertools import product

from glstm.experiments.experiment import SEEDS, TEN_SEEDS, Arm, Experiment
from glstm.experiments.protocol import moving
from glstm.recipes import PRESETS

V_T = 0.01
# Units are closed in training as they will be in use.
BASE = PRESETS["smnist-budget"].changed(options={"threshold": V_T}, schedule="cosine", decay=0.9)

THRIFTY = BASE.changed(units=220, gate={"sigma": 25.0}, budget=10.0)  # what validation chose for 0.1 M operations


def grid(units: tuple[int, ...], sigmas: tuple[float, ...], budgets: tuple[float, ...], shift: int = 0) -> tuple:
    return tuple(
        {"units": count, "gate": {"sigma": sigma}, "budget": budget, **moving(shift)}
        for count, sigma, budget in product(units, sigmas, budgets)
    )


PLAIN = grid((110, 220), (25.0, 50.0), (1.0, 3.0, 10.0))
WIDE = PLAIN + grid((110,), (250.0,), (1.0, 3.0))
MOVED = grid((110, 220), (25.0, 50.0), (3.0, 5.0, 10.0), shift=1)
MOVED += grid((440,), (25.0,), (5.0, 10.0), shift=1)  # tried when the others had been tested; the choice is the same


def point(key: str, millions: float, tries: tuple, moved: bool) -> Arm:
    """The best by validation of those that take so many operations or fewer."""
    how = "images that move" if moved else "images as they are"
    return Arm(
        key, f"g-LSTM, at most {millions:g} M, {how}", BASE, track="best", seeds=TEN_SEEDS if moved else SEEDS,
        probes=("gates", "thresholds"), at_threshold=V_T, tries=tries, most_operations=1e6 * millions,
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="frontier",
    title="Error against operations (ours)",
    question="How few operations does sequential MNIST take at a given error?",
    arms=(
        point("moved-0.09", 0.09, MOVED, moved=True),
        point("moved-0.25", 0.25, MOVED, moved=True),
        point("plain-0.1", 0.1, PLAIN, moved=False),
        point("plain-0.25", 0.25, PLAIN, moved=False),
        point("plain-6", 6.0, WIDE, moved=False),
    ),
    thresholds=(0.0, 0.003, 0.01, 0.03, 0.1),
)
