from itertools import product

from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.protocol import STARTS, by_the_paper
from glstm.recipes import PRESETS

PLSTM = PRESETS["adding-plstm"]
# r is a share of a period: the g-LSTM's rate of 1 is too large for it, so it gets rates of its own.
TRIES = tuple({"init": init, "gate_lr": rate} for init, rate in product(STARTS, (0.01, 0.1)))

EXPERIMENT = Experiment(
    name="appC-plstm",
    title="g-LSTM and Phased LSTM (Appendix C)",
    question="Is a gate that opens once easier to train than one that opens again and again?",
    arms=(
        by_the_paper("glstm", "g-LSTM", PRESETS["adding-1000"], paper=7.7e-5, probes=("gates",), at_epoch=PLSTM.epochs),
        Arm("plstm", "PLSTM, gate rate 1", PLSTM, paper=2.4e-4, probes=("gates",)),
        Arm("plstm-own-rate", "PLSTM, own rate", PLSTM, track="paper", paper=2.4e-4, tries=TRIES, probes=("gates",)),
    ),
)
