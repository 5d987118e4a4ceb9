from typing import Any

from glstm.experiments.experiment import Arm, Experiment
from glstm.recipes import PRESETS

EPOCHS = 120
PAPER = PRESETS["smnist"].changed(epochs=EPOCHS)
CLIP = 0.0  # of the LSTM: what validation chose for it in Table 1, as the gates' rate is that of the g-LSTM there


def variant(key: str, name: str, **changes: Any) -> tuple[Arm, Arm]:
    """Both networks as in Table 1, with these changes."""
    gated = PAPER.changed(**changes)
    return (
        Arm(f"glstm-{key}", f"g-LSTM, {name}", gated, twin=f"lstm-{key}"),
        Arm(f"lstm-{key}", f"LSTM, {name}", gated.changed(cell="lstm", clip=CLIP)),
    )


EXPERIMENT = Experiment(
    name="appD-optim",
    title="Other optimisers and initialisers (Appendix D)",
    question="Does the g-LSTM converge sooner whatever the optimiser and the initialiser are?",
    arms=(
        *variant("rmsprop-orthogonal", "RMSProp, orthogonal"),
        *variant("rmsprop-xavier", "RMSProp, Xavier", init="xavier"),
        *variant("adam-orthogonal", "Adam, orthogonal", optimizer="adam"),
        *variant("adam-xavier", "Adam, Xavier", optimizer="adam", init="xavier"),
    ),
)
