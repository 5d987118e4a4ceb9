from glstm.experiments.experiment import Arm, Experiment
from glstm.recipes import PRESETS

EXPERIMENT = Experiment(
    name="appC-plstm",
    title="g-LSTM and Phased LSTM (Appendix C)",
    question="Is a gate that opens once easier to train than one that opens again and again?",
    arms=(
        Arm("glstm", "g-LSTM", PRESETS["adding-1000"], paper=7.7e-5, probes=("gates",), at_epoch=500),
        Arm("plstm", "PLSTM", PRESETS["adding-plstm"], paper=2.4e-4, probes=("gates",)),
        # r is between 0 and 1: with a rate of 1 it jumps
        Arm("plstm-slow-gate", "PLSTM, gate rate 0.1", PRESETS["adding-plstm"].changed(gate_lr=0.1), probes=("gates",)),
    ),
)
