from glstm.experiments.experiment import SEEDS, Arm, Experiment
from glstm.training.recipe import PRESETS

G_LSTM = PRESETS["smnist"]
PAPER = {25: (0.0279, 0.0358), 110: (0.0135, 0.0181), 220: (0.0110, 0.0134)}

EXPERIMENT = Experiment(
    name="appD-size",
    title="Smaller and larger networks (Appendix D)",
    question="Does it hold for other sizes?",
    arms=tuple(
        arm
        for units, (gated, plain) in PAPER.items()
        for arm in (
            Arm(f"g-LSTM, {units} units", G_LSTM.changed(units=units), paper=gated),
            Arm(
                f"LSTM, {units} units",
                G_LSTM.changed(units=units, cell="lstm", epochs=220 if units == 25 else 120),
                paper=plain,
                seeds=SEEDS[:1] if units == 220 else SEEDS,
            ),
        )
    ),
)
