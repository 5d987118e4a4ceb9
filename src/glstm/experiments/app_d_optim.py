from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.table1_smnist import LSTM, PAPER

EPOCHS = 60  # enough to see which learns first
G_60, LSTM_60 = PAPER.changed(epochs=EPOCHS), PAPER.changed(cell="lstm", epochs=EPOCHS)

EXPERIMENT = Experiment(
    name="appD-optim",
    title="Other optimisers and initialisers (Appendix D)",
    question="Does the g-LSTM converge sooner whatever the optimiser and the initialiser are?",
    arms=(
        Arm(
            "glstm-rmsprop-orthogonal",
            "g-LSTM, RMSProp, orthogonal",
            PAPER,
            at_epoch=EPOCHS,
            twin="lstm-rmsprop-orthogonal",
        ),
        Arm("lstm-rmsprop-orthogonal", "LSTM, RMSProp, orthogonal", LSTM, at_epoch=EPOCHS),
        Arm("glstm-rmsprop-xavier", "g-LSTM, RMSProp, Xavier", G_60.changed(init="xavier"), twin="lstm-rmsprop-xavier"),
        Arm("lstm-rmsprop-xavier", "LSTM, RMSProp, Xavier", LSTM_60.changed(init="xavier")),
        Arm(
            "glstm-adam-orthogonal",
            "g-LSTM, Adam, orthogonal",
            G_60.changed(optimizer="adam"),
            twin="lstm-adam-orthogonal",
        ),
        Arm("lstm-adam-orthogonal", "LSTM, Adam, orthogonal", LSTM_60.changed(optimizer="adam")),
        Arm(
            "glstm-adam-xavier",
            "g-LSTM, Adam, Xavier",
            G_60.changed(optimizer="adam", init="xavier"),
            twin="lstm-adam-xavier",
        ),
        Arm("lstm-adam-xavier", "LSTM, Adam, Xavier", LSTM_60.changed(optimizer="adam", init="xavier")),
    ),
)
