from glstm.experiments.experiment import SEEDS, Arm, Experiment
from glstm.training.recipe import PRESETS

BASE = PRESETS["smnist-budget"].changed(threshold=0.01, schedule="cosine")
V_T = 0.01


def point(sigma: float, budget: float, decay: float = 0.9, rise: int = 0, seeds: tuple[int, ...] = SEEDS[:1]) -> Arm:
    """`rise`: the epochs that lambda takes to rise."""
    recipe = BASE.changed(sigma=sigma, budget=budget, decay=decay, budget_epochs=rise)
    name = f"sigma {sigma:g}, lambda {budget:g}, decay {decay:g}" + (f", {rise} epochs to rise" if rise else "")
    return Arm(name, recipe, seeds=seeds, probes=("thresholds",), at_threshold=V_T)


EXPERIMENT = Experiment(
    name="frontier",
    title="Error against operations (ours)",
    question="How few operations does sequential MNIST take, at 1.5 %, at 2.3 % and at 3 %?",
    arms=(
        *(point(250, budget) for budget in (1, 3)),
        *(point(100, budget) for budget in (0.3, 1, 3)),
        *(point(50, budget) for budget in (1, 3, 10)),
        *(point(25, budget) for budget in (1, 3)),
        *(point(sigma, budget, decay=0.5) for sigma, budget in ((250, 1), (100, 1), (50, 3), (50, 10), (25, 3))),
        *(point(sigma, budget, rise=60) for sigma, budget in ((250, 3), (100, 10), (50, 10), (50, 30), (25, 10))),
    ),
    thresholds=(0.0, 0.003, 0.01, 0.03, 0.1),
)
