from glstm.experiments.app_d_optim import variant
from glstm.experiments.experiment import Experiment

EXPERIMENT = Experiment(
    name="appD-chrono",
    title="Chrono initialisation of the biases (Appendix D)",
    question="Do biases made for long memories help, with and without gates?",
    arms=(
        *variant("constant", "constant"),
        *variant("chrono-784", "chrono 784", chrono=784.0),
        *variant("chrono-250", "chrono 250", chrono=250.0),
    ),
)
