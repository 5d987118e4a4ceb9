from glstm.experiments.experiment import Arm, Experiment
from glstm.training.recipe import PRESETS

G_LSTM = PRESETS["pmnist"]

EXPERIMENT = Experiment(
    name="table2-pmnist",
    title="Permuted MNIST (Table 2)",
    question="Does it help when neighbouring pixels lie far apart in time?",
    arms=(
        Arm("g-LSTM", G_LSTM, paper=0.075, probes=("gates",)),
        Arm("LSTM", G_LSTM.changed(cell="lstm"), paper=0.084),
    ),
)
