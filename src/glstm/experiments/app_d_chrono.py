from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.table1_smnist import LSTM, PAPER

EPOCHS = 60  # enough to see which learns first
G_60, LSTM_60 = PAPER.changed(epochs=EPOCHS), PAPER.changed(cell="lstm", epochs=EPOCHS)

EXPERIMENT = Experiment(
    name="appD-chrono",
    title="Chrono initialisation of the biases (Appendix D)",
    question="Do biases made for long memories help, with and without gates?",
    arms=(
        Arm("glstm-constant", "g-LSTM, constant", PAPER, at_epoch=EPOCHS, twin="lstm-constant"),
        Arm("lstm-constant", "LSTM, constant", LSTM, at_epoch=EPOCHS),
        Arm("glstm-chrono-784", "g-LSTM, chrono 784", G_60.changed(chrono=784.0), twin="lstm-chrono-784"),
        Arm("lstm-chrono-784", "LSTM, chrono 784", LSTM_60.changed(chrono=784.0)),
        Arm("glstm-chrono-250", "g-LSTM, chrono 250", G_60.changed(chrono=250.0), twin="lstm-chrono-250"),
        Arm("lstm-chrono-250", "LSTM, chrono 250", LSTM_60.changed(chrono=250.0)),
    ),
)
