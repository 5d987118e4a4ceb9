from glstm.experiments.experiment import Experiment
from glstm.experiments.protocol import by_the_paper
from glstm.recipes import PRESETS

EXPERIMENT = Experiment(
    name="appB-inits",
    title="Other starts for the gates (Appendix B)",
    question="Does it matter where the gates start?",
    arms=(
        by_the_paper("a1", "A1: sigma = 1", PRESETS["adding-a1"], paper=4.4e-4, probes=("gates",)),
        by_the_paper("a2", "A2: mu from U(0, 400)", PRESETS["adding-a2"], paper=2.0e-5, probes=("gates",)),
        by_the_paper("a3", "A3: mu from U(600, 1000)", PRESETS["adding-a3"], paper=4.0e-4, probes=("gates",)),
    ),
)
