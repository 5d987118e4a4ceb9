from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.table1_smnist import EPOCHS, LSTM, PAPER, PLAIN

EXPERIMENT = Experiment(
    name="appD-chrono",
    title="Chrono initialisation of the biases (Appendix D)",
    question="Do biases made for long memories help, with and without gates?",
    arms=(
        Arm("g-LSTM, constant", PAPER),
        Arm("LSTM, constant", LSTM, at_epoch=EPOCHS),
        Arm("g-LSTM, chrono 784", PAPER.changed(chrono=784.0)),
        Arm("LSTM, chrono 784", PLAIN.changed(chrono=784.0)),
        Arm("g-LSTM, chrono 250", PAPER.changed(chrono=250.0)),
        Arm("LSTM, chrono 250", PLAIN.changed(chrono=250.0)),
    ),
)
