from glstm.experiments.experiment import Arm, Experiment
from glstm.training.recipe import PRESETS

PAPER = PRESETS["smnist"]
TUNED = PAPER.changed(decay=0.9, schedule="cosine")

EXPERIMENT = Experiment(
    name="table1-smnist",
    title="Sequential MNIST (Table 1, Fig. 2c)",
    question="Does the g-LSTM converge sooner than the LSTM, and where do both end, by the paper's recipe and by ours?",
    arms=(
        Arm("g-LSTM", PAPER, paper=0.013, probes=("gates",)),
        Arm("LSTM", PAPER.changed(cell="lstm"), paper=0.018),
        Arm("LSTM, 360 epochs", PAPER.changed(cell="lstm", epochs=360)),
        Arm("g-LSTM, tuned", TUNED),
        Arm("LSTM, tuned", TUNED.changed(cell="lstm")),
    ),
)
