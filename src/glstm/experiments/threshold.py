from dataclasses import replace

from glstm.experiments.budget import LAMBDA_1
from glstm.experiments.experiment import SEEDS, Experiment
from glstm.experiments.table1_smnist import EXPERIMENT as TABLE1

GATED = replace(TABLE1.arms[0], paper=None, twin=None, seeds=SEEDS)

EXPERIMENT = Experiment(
    name="threshold",
    title="Closed is closed: computes and error against the threshold (Fig. 5)",
    question="How much of the work can be left out of a budgeted network, and what does it cost?",
    arms=(
        replace(LAMBDA_1, paper=0.023, probes=("thresholds",), at_threshold=0.01),
        replace(GATED, key="no-budget", name="no budget, sigma = 250", probes=("thresholds",), at_threshold=0.01),
    ),
    thresholds=(0.0, 1e-4, 1e-3, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9),
)
