from dataclasses import replace

from glstm.experiments.experiment import Arm, Experiment
from glstm.recipes import PRESETS

G_LSTM = PRESETS["smnist"]
LSTM = G_LSTM.changed(cell="lstm")
LEARNT = 40  # epochs after which the LSTM is about where the g-LSTM is after a few


def pair(epochs: int) -> tuple[Arm, Arm]:
    """Both networks after so many epochs."""
    when = f"after epoch {epochs}"
    plain = Arm(f"lstm-{epochs}", f"LSTM, {when}", LSTM.changed(epochs=epochs), probes=("gradient flow",))
    gated = replace(plain, key=f"g{plain.key}", name=f"g-{plain.name}", recipe=G_LSTM.changed(epochs=epochs))
    return replace(gated, twin=plain.key), plain


EXPERIMENT = Experiment(
    name="gradflow",
    title="How much of the gradient reaches each step (Fig. 7)",
    question="Do the first steps of a sequence feel the loss?",
    arms=(*pair(1), *pair(11), pair(LEARNT)[1]),
)
