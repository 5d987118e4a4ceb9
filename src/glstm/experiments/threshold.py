from glstm.experiments.budget import TUNED
from glstm.experiments.experiment import Arm, Experiment
from glstm.recipes import PRESETS

EXPERIMENT = Experiment(
    name="threshold",
    title="Closed is closed: computes and error against the threshold (Fig. 5)",
    question="How much of the work can be left out of a budgeted network, and what does it cost?",
    arms=(
        Arm("lambda-1", "lambda = 1", PRESETS["smnist-budget"], paper=0.023, probes=("thresholds",), at_threshold=0.01),
        Arm("lambda-1-tuned", "lambda = 1, tuned", TUNED, paper=0.023, probes=("thresholds",), at_threshold=0.01),
        Arm("no-budget", "no budget, sigma = 250", PRESETS["smnist"], probes=("thresholds",), at_threshold=0.01),
    ),
    thresholds=(0.0, 1e-4, 1e-3, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9),
)
