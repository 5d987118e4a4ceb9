from glstm.experiments.experiment import Arm, Experiment
from glstm.training.recipe import PRESETS

BUDGETED = PRESETS["smnist-budget"]
PAPER = {0.0: None, 0.1: 0.024, 1.0: 0.022, 10.0: 0.028}

EXPERIMENT = Experiment(
    name="budget",
    title="A charge for openness (Fig. 4 and Appendix D)",
    question="How far can gates be made to close before the error grows?",
    arms=tuple(
        Arm(f"lambda = {value:g}", BUDGETED.changed(budget=value), paper=error, probes=("gates", "thresholds"))
        for value, error in PAPER.items()
    ),
    thresholds=(0.0, 0.01),
)
