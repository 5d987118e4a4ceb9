from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.table1_smnist import EPOCHS, LSTM, PAPER, PLAIN

EXPERIMENT = Experiment(
    name="appD-optim",
    title="Other optimisers and initialisers (Appendix D)",
    question="Does the g-LSTM converge sooner whatever the optimiser and the initialiser are?",
    arms=(
        Arm("g-LSTM, RMSProp, orthogonal", PAPER),
        Arm("LSTM, RMSProp, orthogonal", LSTM, at_epoch=EPOCHS),
        Arm("g-LSTM, RMSProp, Xavier", PAPER.changed(init="xavier")),
        Arm("LSTM, RMSProp, Xavier", PLAIN.changed(init="xavier")),
        Arm("g-LSTM, Adam, orthogonal", PAPER.changed(optimizer="adam")),
        Arm("LSTM, Adam, orthogonal", PLAIN.changed(optimizer="adam")),
        Arm("g-LSTM, Adam, Xavier", PAPER.changed(optimizer="adam", init="xavier")),
        Arm("LSTM, Adam, Xavier", PLAIN.changed(optimizer="adam", init="xavier")),
    ),
)
