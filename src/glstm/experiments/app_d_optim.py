from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.table1_smnist import LSTM, PAPER

EPOCHS = 60  # enough to see who is sooner
G_60, LSTM_60 = PAPER.changed(epochs=EPOCHS), PAPER.changed(cell="lstm", epochs=EPOCHS)

EXPERIMENT = Experiment(
    name="appD-optim",
    title="Other optimisers and initialisers (Appendix D)",
    question="Does the g-LSTM converge sooner whatever the optimiser and the initialiser are?",
    arms=(
        Arm("g-LSTM, RMSProp, orthogonal", PAPER, at_epoch=EPOCHS),
        Arm("LSTM, RMSProp, orthogonal", LSTM, at_epoch=EPOCHS),
        Arm("g-LSTM, RMSProp, Xavier", G_60.changed(init="xavier")),
        Arm("LSTM, RMSProp, Xavier", LSTM_60.changed(init="xavier")),
        Arm("g-LSTM, Adam, orthogonal", G_60.changed(optimizer="adam")),
        Arm("LSTM, Adam, orthogonal", LSTM_60.changed(optimizer="adam")),
        Arm("g-LSTM, Adam, Xavier", G_60.changed(optimizer="adam", init="xavier")),
        Arm("LSTM, Adam, Xavier", LSTM_60.changed(optimizer="adam", init="xavier")),
    ),
)
