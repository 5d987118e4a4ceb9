from glstm.experiments.experiment import TEN_SEEDS, Experiment
from glstm.experiments.protocol import at_its_best, best_of_images, by_the_paper
from glstm.recipes import PRESETS

G_LSTM = PRESETS["pmnist"]
LSTM = G_LSTM.changed(cell="lstm")
LONGER = LSTM.changed(epochs=235)  # after 120 its error still falls
BEST = G_LSTM.changed(decay=0.9, schedule="cosine")
TRIES = best_of_images(784)

EXPERIMENT = Experiment(
    name="table2-pmnist",
    title="Permuted MNIST (Table 2)",
    question="Does it help when neighbouring pixels lie far apart in time?",
    arms=(
        by_the_paper("glstm", "g-LSTM", G_LSTM, paper=0.075, seeds=TEN_SEEDS, probes=("gates",), twin="lstm"),
        by_the_paper("lstm", "LSTM", LSTM, paper=0.084, seeds=TEN_SEEDS),
        by_the_paper("lstm-longer", "LSTM, longer", LONGER, LSTM, paper=0.084),
        at_its_best("glstm-best", "g-LSTM", BEST, TRIES, paper=0.075, twin="lstm-best"),
        at_its_best("lstm-best", "LSTM", BEST.changed(cell="lstm"), TRIES, paper=0.084),
    ),
)
