from glstm.experiments.experiment import Arm, Experiment
from glstm.training.recipe import PRESETS

G_LSTM = PRESETS["smnist"]
NETWORKS = {"g-LSTM": G_LSTM, "LSTM": G_LSTM.changed(cell="lstm")}
NAMES = {"rmsprop": "RMSProp", "adam": "Adam", "orthogonal": "orthogonal", "xavier": "Xavier"}

EXPERIMENT = Experiment(
    name="appD-optim",
    title="Other optimisers and initialisers (Appendix D)",
    question="Does the g-LSTM converge sooner whatever the optimiser and the initialiser are?",
    arms=tuple(
        Arm(f"{name}, {NAMES[optimizer]}, {NAMES[init]}", recipe.changed(optimizer=optimizer, init=init))
        for optimizer in ("rmsprop", "adam")
        for init in ("orthogonal", "xavier")
        for name, recipe in NETWORKS.items()
    ),
)
