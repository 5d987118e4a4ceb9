from glstm.experiments.experiment import Experiment
from glstm.experiments.table2_rivals_smnist import rival

EXPERIMENT = Experiment(
    name="table2-rivals-pmnist",
    title="Other networks on permuted MNIST (Table 2)",
    question="Where do the rivals of Table 2 end, by their own recipes?",
    arms=(
        rival("r-lstm", "r-LSTM", "pmnist"),
        rival("zoneout", "Zoneout", "pmnist"),
        rival("indrnn", "IndRNN, 6 layers", "pmnist"),
    ),
)
