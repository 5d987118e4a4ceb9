from glstm.experiments.experiment import SEEDS, Arm, Experiment
from glstm.experiments.table1_smnist import EPOCHS, LSTM, PAPER, PLAIN

LONGER = 220  # epochs; the paper, too, gave its LSTM of 25 units 100 more

EXPERIMENT = Experiment(
    name="appD-size",
    title="Smaller and larger networks (Appendix D)",
    question="Does it hold for other sizes?",
    arms=(
        Arm(
            "glstm-25",
            "g-LSTM, 25 units",
            PAPER.changed(units=25, epochs=LONGER),
            paper=0.0279,
            at_epoch=EPOCHS,
            twin="lstm-25",
        ),
        Arm("lstm-25", "LSTM, 25 units", PLAIN.changed(units=25, epochs=LONGER), paper=0.0358),
        Arm("glstm-110", "g-LSTM, 110 units", PAPER, paper=0.0135, twin="lstm-110"),
        Arm("lstm-110", "LSTM, 110 units", LSTM, paper=0.0181),
        Arm("glstm-220", "g-LSTM, 220 units", PAPER.changed(units=220), paper=0.0110, twin="lstm-220"),
        Arm("lstm-220", "LSTM, 220 units", PLAIN.changed(units=220), paper=0.0134, seeds=SEEDS[:1]),
    ),
)
