from dataclasses import replace

from glstm.experiments.budget import LAMBDA_1
from glstm.experiments.experiment import SEEDS, Experiment

AFTER = replace(LAMBDA_1, paper=None, seeds=SEEDS, at_threshold=0.01)

EXPERIMENT = Experiment(
    name="truncated",
    title="Trained with the threshold on (ours)",
    question="Does a network that never sees more than its open windows learn to live in them?",
    arms=(
        replace(AFTER, key="after-training", name="thresholded after training"),
        replace(
            AFTER,
            key="from-the-start",
            name="thresholded from the start",
            recipe=LAMBDA_1.recipe.changed(options={"threshold": 0.01}),
            search=LAMBDA_1.search,
        ),
    ),
    thresholds=(0.0, 0.01),
)
