from glstm.experiments.experiment import Arm, Experiment
from glstm.recipes import PRESETS

TANH = PRESETS["smnist"]
EPOCHS = 60  # enough to see whether it matters

EXPERIMENT = Experiment(
    name="candidate",
    title="tanh against the printed logistic (ours)",
    question="The paper's equation has a logistic function where every implementation has tanh: does it matter?",
    arms=(
        Arm("tanh", "tanh", TANH, at_epoch=EPOCHS),
        Arm("logistic", "logistic", TANH.changed(options={"candidate": "sigmoid"}, epochs=EPOCHS)),
    ),
)
