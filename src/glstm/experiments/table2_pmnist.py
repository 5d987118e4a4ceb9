from glstm.experiments.experiment import Arm, Experiment
from glstm.recipes import PRESETS

G_LSTM = PRESETS["pmnist"]
TUNED = G_LSTM.changed(decay=0.9, schedule="cosine")

EXPERIMENT = Experiment(
    name="table2-pmnist",
    title="Permuted MNIST (Table 2)",
    question="Does it help when neighbouring pixels lie far apart in time?",
    arms=(
        Arm("glstm", "g-LSTM", G_LSTM, paper=0.075, probes=("gates",), twin="lstm"),
        Arm("lstm", "LSTM", G_LSTM.changed(cell="lstm"), paper=0.084),
        Arm("glstm-tuned", "g-LSTM, tuned", TUNED, paper=0.075, twin="lstm-tuned"),
        Arm("lstm-tuned", "LSTM, tuned", TUNED.changed(cell="lstm"), paper=0.084),
    ),
)
