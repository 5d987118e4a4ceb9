from glstm.experiments.experiment import Arm, Experiment
from glstm.training.recipe import PRESETS

G_LSTM = PRESETS["smnist"]
NETWORKS = {"g-LSTM": G_LSTM, "LSTM": G_LSTM.changed(cell="lstm")}

EXPERIMENT = Experiment(
    name="gradflow",
    title="How much of the gradient reaches each step (Fig. 7)",
    question="Do the first steps of a sequence feel the loss?",
    arms=tuple(
        Arm(f"{name}, after epoch {epochs}", recipe.changed(epochs=epochs), probes=("gradient flow",))
        for epochs in (1, 11)
        for name, recipe in NETWORKS.items()
    ),
)
