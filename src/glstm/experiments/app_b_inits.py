from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.protocol import by_the_paper
from glstm.recipes import PRESETS


def start(key: str, name: str, error: float) -> Arm:
    """The values that the paper leaves open are those that Table 1 chose: only the gates start elsewhere."""
    recipe, usual = PRESETS[f"adding-{key}"], PRESETS["adding-1000"]
    return by_the_paper(key, name, recipe, usual, paper=error, probes=("gates",))


EXPERIMENT = Experiment(
    name="appB-inits",
    title="Other starts for the gates (Appendix B)",
    question="Does it matter where the gates start?",
    arms=(
        start("a1", "A1: sigma = 1", 4.4e-4),
        start("a2", "A2: mu from U(0, 400)", 2.0e-5),
        start("a3", "A3: mu from U(600, 1000)", 4.0e-4),
    ),
)
