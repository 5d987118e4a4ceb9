from glstm.experiments.experiment import Arm, Experiment
from glstm.recipes import PRESETS

G_LSTM = PRESETS["adding-2000"]
LSTM = G_LSTM.changed(cell="lstm", epochs=630)  # enough to see it stay on its plateau, or leave it

EXPERIMENT = Experiment(
    name="table1-adding2000",
    title="Adding task, N = 2000 (Table 1, Fig. 2b)",
    question="Does it still, at twice the length?",
    arms=(
        Arm("glstm", "g-LSTM", G_LSTM, paper=1.3e-3, probes=("gates",), twin="lstm"),
        Arm("lstm", "LSTM", LSTM, paper=1.6e-1),
        # Memory from the start: by the paper's recipe the LSTM does not leave the plateau of predicting the mean.
        Arm("lstm-chrono", "LSTM, chrono 2000", LSTM.changed(chrono=2000.0)),
    ),
)
