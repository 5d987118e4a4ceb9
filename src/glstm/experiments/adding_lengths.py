from glstm.experiments.experiment import Arm, Experiment
from glstm.recipes import PRESETS, Recipe

EPOCHS = 300  # of 50 updates: enough to see who learns
STARTS = {
    "orthogonal": {"init": "orthogonal"},
    "xavier": {"init": "xavier"},
    "chrono": {"init": "orthogonal", "chrono": None},  # biases for memories as long as the sequence
}


def start(recipe: Recipe, name: str, steps: int) -> Recipe:
    return recipe.changed(**STARTS[name] | ({"chrono": float(steps)} if name == "chrono" else {}))


def pair(steps: int, name: str) -> tuple[Arm, Arm]:
    """Both networks from one start; the gates' moments are those of N = 1000, scaled."""
    gated = PRESETS["adding-1000"].changed(epochs=EPOCHS).at_length(steps)
    plain, key = gated.changed(cell="lstm"), f"{steps}-{name}"
    said = f"N = {steps}, {name}"
    return (
        Arm(f"glstm-{key}", f"g-LSTM, {said}", start(gated, name, steps), twin=f"lstm-{key}"),
        Arm(f"lstm-{key}", f"LSTM, {said}", start(plain, name, steps)),
    )


EXPERIMENT = Experiment(
    name="adding-lengths",
    title="Adding task, short and long, from three starts (ours)",
    question="From which length on do gates help, and how much is it a matter of the start?",
    arms=tuple(arm for steps in (100, 250, 500, 1000, 2000) for name in STARTS for arm in pair(steps, name)),
)
