from glstm.experiments.experiment import Arm, Experiment
from glstm.training.recipe import PRESETS

G_LSTM = PRESETS["smnist"]
NETWORKS = {"g-LSTM": G_LSTM, "LSTM": G_LSTM.changed(cell="lstm")}
BIASES = {"constant": None, "chrono 784": 784.0, "chrono 250": 250.0}

EXPERIMENT = Experiment(
    name="appD-chrono",
    title="Chrono initialisation of the biases (Appendix D)",
    question="Do biases made for long memories help, with and without gates?",
    arms=tuple(
        Arm(f"{name}, {label}", recipe.changed(chrono=t_max))
        for label, t_max in BIASES.items()
        for name, recipe in NETWORKS.items()
    ),
)
