from glstm.experiments.experiment import Arm, Experiment
from glstm.recipes import PRESETS
from glstm.report.published import ERRORS

# The recipes are those of the rivals' own papers, but for the epochs: about as many updates as ours have, 72,000. The
# papers have 150 (Zoneout) and more than 320 (IndRNN), and the r-LSTM's does not say.
EPOCHS = {"r-lstm": 120, "zoneout": 120, "indrnn": 40}


def rival(cell: str, name: str, task: str) -> Arm:
    """By its own recipe; its figure is that of Table 2."""
    recipe = PRESETS[f"smnist-{cell}"].changed(task=task, epochs=EPOCHS[cell])
    return Arm(cell, name, recipe, paper=ERRORS[name][("smnist", "pmnist").index(task)])


# BN-LSTM and Skip LSTM are left out: they take 12 s and 7 s for an epoch on an H200, and need hundreds.
EXPERIMENT = Experiment(
    name="table2-rivals-smnist",
    title="Other networks on sequential MNIST (Table 2)",
    question="Where do the rivals of Table 2 end, by their own recipes?",
    arms=(
        rival("r-lstm", "r-LSTM", "smnist"),
        rival("zoneout", "Zoneout", "smnist"),
        rival("indrnn", "IndRNN, 6 layers", "smnist"),
    ),
)
