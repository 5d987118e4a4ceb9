from glstm.experiments.experiment import Arm, Experiment
from glstm.recipes import PRESETS

G_LSTM = PRESETS["scifar"]
TUNED = G_LSTM.changed(schedule="cosine", data={"shift": 2})

EXPERIMENT = Experiment(
    name="table1-scifar",
    title="Sequential CIFAR-10 (Table 1, Fig. 2d)",
    question="And on 1024 pixels in colour?",
    arms=(
        Arm("glstm", "g-LSTM", G_LSTM, paper=0.411, probes=("gates",), twin="lstm"),
        Arm("lstm", "LSTM", G_LSTM.changed(cell="lstm"), paper=0.418),
        Arm("glstm-tuned", "g-LSTM, tuned", TUNED, paper=0.411, twin="lstm-tuned"),
        Arm("lstm-tuned", "LSTM, tuned", TUNED.changed(cell="lstm"), paper=0.418),
    ),
)
