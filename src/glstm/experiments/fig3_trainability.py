from glstm.experiments.experiment import Experiment
from glstm.experiments.protocol import by_the_paper
from glstm.recipes import PRESETS

EXPERIMENT = Experiment(
    name="fig3-trainability",
    title="Gates that all start at one moment (Fig. 3)",
    question="Do gates that all open at step 500 spread out over the sequence?",
    arms=(by_the_paper("mu-500", "g-LSTM, mu = 500", PRESETS["adding-mu500"], paper=3.9e-5, probes=("gates",)),),
)
