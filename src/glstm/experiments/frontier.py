from glstm.experiments.experiment import SEEDS, Arm, Experiment
from glstm.training.recipe import PRESETS, Recipe

BASE = PRESETS["smnist-budget"].changed(threshold=0.01, decay=0.9, schedule="cosine")


def point(sigma: float, budget: float, seeds: tuple[int, ...] = SEEDS[:1]) -> Arm:
    recipe: Recipe = BASE.changed(sigma=sigma, budget=budget)
    return Arm(f"sigma {sigma:g}, lambda {budget:g}", recipe, seeds=seeds, probes=("thresholds",), at_threshold=0.01)


EXPERIMENT = Experiment(
    name="frontier",
    title="Error against operations (ours)",
    question="How few operations does sequential MNIST take, at 1.5 %, at 2.3 % and at 3 %?",
    arms=(
        *(point(sigma, budget) for sigma in (250.0, 100.0, 50.0, 25.0) for budget in (0.3, 1.0, 3.0)),
        *(point(sigma, budget) for sigma in (50.0, 25.0, 12.0) for budget in (10.0, 30.0)),
    ),
    thresholds=(0.0, 0.003, 0.01, 0.03, 0.1),
)
