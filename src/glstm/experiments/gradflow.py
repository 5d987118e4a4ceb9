from glstm.experiments.experiment import Arm, Experiment
from glstm.training.recipe import PRESETS

G_LSTM = PRESETS["smnist"]
LSTM = G_LSTM.changed(cell="lstm")


def pair(epochs: int) -> tuple[Arm, Arm]:
    """Both networks after so many epochs."""
    when, probes = f"after epoch {epochs}", ("gradient flow",)
    plain = Arm(f"lstm-{epochs}", f"LSTM, {when}", LSTM.changed(epochs=epochs), probes=probes)
    gated = Arm(f"glstm-{epochs}", f"g-LSTM, {when}", G_LSTM.changed(epochs=epochs), probes=probes, twin=plain.key)
    return gated, plain


EXPERIMENT = Experiment(
    name="gradflow",
    title="How much of the gradient reaches each step (Fig. 7)",
    question="Do the first steps of a sequence feel the loss?",
    arms=(*pair(1), *pair(11)),
)
