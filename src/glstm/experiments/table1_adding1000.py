from glstm.experiments.experiment import Arm, Experiment
from glstm.training.recipe import PRESETS

G_LSTM = PRESETS["adding-1000"]
TUNED = G_LSTM.changed(schedule="cosine")

EXPERIMENT = Experiment(
    name="table1-adding1000",
    title="Adding task, N = 1000 (Table 1, Fig. 2a)",
    question="Does the g-LSTM learn to add two of a thousand numbers, sooner and better than the LSTM?",
    arms=(
        Arm("g-LSTM", G_LSTM, paper=3.8e-5, probes=("gates",)),
        Arm("LSTM", G_LSTM.changed(cell="lstm"), paper=1.4e-3),
        Arm("g-LSTM, tuned", TUNED),
        Arm("LSTM, tuned", TUNED.changed(cell="lstm")),
    ),
)
