from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.frontier import THRIFTY
from glstm.experiments.small import SMALL_LSTM

EXPERIMENT = Experiment(
    name="fig1-cells",
    title="What a cell of each network does (Fig. 1)",
    question="When does a unit change what it holds?",
    arms=(
        Arm("glstm", "g-LSTM", THRIFTY, seeds=(0,), probes=("one sequence",)),
        Arm("lstm", "LSTM", SMALL_LSTM, seeds=(0,), probes=("one sequence",)),
    ),
)
