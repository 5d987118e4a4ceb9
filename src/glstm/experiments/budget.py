from glstm.experiments.experiment import Arm, Experiment
from glstm.recipes import PRESETS

BUDGETED = PRESETS["smnist-budget"]
TUNED = BUDGETED.changed(decay=0.9, schedule="cosine", data={"shift": 1})
PAPER = {0.0: None, 0.1: 0.024, 1.0: 0.022, 10.0: 0.028}

EXPERIMENT = Experiment(
    name="budget",
    title="A charge for openness (Fig. 4 and Appendix D)",
    question="How far can gates be made to close before the error grows?",
    arms=(
        *(
            Arm(
                f"lambda-{value:g}",
                f"lambda = {value:g}",
                BUDGETED.changed(budget=value),
                paper=error,
                probes=("gates", "thresholds"),
            )
            for value, error in PAPER.items()
        ),
        Arm("lambda-1-tuned", "lambda = 1, tuned", TUNED, paper=PAPER[1.0], probes=("gates", "thresholds")),
    ),
    thresholds=(0.0, 0.01),
)
