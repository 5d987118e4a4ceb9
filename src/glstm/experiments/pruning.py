from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.frontier import THRIFTY, V_T

EXPERIMENT = Experiment(
    name="pruning",
    title="Units that never open (Sec. 4.3)",
    question="How many units does a charge close for good, and what is left without them?",
    arms=(
        Arm("thrifty", "g-LSTM", THRIFTY, probes=("thresholds", "pruned"), at_threshold=V_T),
    ),
    thresholds=(V_T,),
)  # fmt: skip
