from glstm.experiments.experiment import Arm, Experiment
from glstm.recipes import PRESETS

BUDGETED = PRESETS["smnist-budget"]

EXPERIMENT = Experiment(
    name="truncated",
    title="Trained with the threshold on (ours)",
    question="Does a network that never sees more than its open windows learn to live in them?",
    arms=(
        Arm("after-training", "thresholded after training", BUDGETED, probes=("thresholds",), at_threshold=0.01),
        Arm(
            "from-the-start",
            "thresholded from the start",
            BUDGETED.changed(options={"threshold": 0.01}),
            probes=("gates", "thresholds"),
            at_threshold=0.01,
        ),
    ),
    thresholds=(0.0, 0.01),
)
