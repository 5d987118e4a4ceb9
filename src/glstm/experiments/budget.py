from glstm.experiments.experiment import TEN_SEEDS, Arm, Experiment
from glstm.experiments.protocol import by_the_paper
from glstm.recipes import PRESETS

BUDGETED = PRESETS["smnist-budget"]
PAPER = {0.1: 0.024, 1.0: 0.022, 10.0: 0.028}


def charged(value: float, error: float | None, **more) -> Arm:
    """The values that the paper leaves open are chosen at lambda = 1, for all."""
    recipe = BUDGETED.changed(budget=value)
    return by_the_paper(
        f"lambda-{value:g}", f"lambda = {value:g}", recipe, BUDGETED,
        paper=error, probes=("gates", "thresholds"), **more,
    )  # fmt: skip


LAMBDA_1 = charged(1.0, PAPER[1.0], seeds=TEN_SEEDS)

EXPERIMENT = Experiment(
    name="budget",
    title="A charge for openness (Fig. 4 and Appendix D)",
    question="How far can gates be made to close before the error grows?",
    arms=(charged(0.0, None), charged(0.1, PAPER[0.1]), LAMBDA_1, charged(10.0, PAPER[10.0])),
    thresholds=(0.0, 0.01),
)
