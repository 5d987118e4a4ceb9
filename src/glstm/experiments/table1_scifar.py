from glstm.experiments.experiment import TEN_SEEDS, Experiment
from glstm.experiments.protocol import at_its_best, best_of_images, by_the_paper
from glstm.recipes import PRESETS

G_LSTM = PRESETS["scifar"]
LSTM = G_LSTM.changed(cell="lstm")
BEST = G_LSTM.changed(schedule="cosine")
TRIES = best_of_images(1024)

EXPERIMENT = Experiment(
    name="table1-scifar",
    title="Sequential CIFAR-10 (Table 1, Fig. 2d)",
    question="And on 1024 pixels in colour?",
    arms=(
        by_the_paper("glstm", "g-LSTM", G_LSTM, paper=0.411, seeds=TEN_SEEDS, probes=("gates",), twin="lstm"),
        by_the_paper("lstm", "LSTM", LSTM, paper=0.418, seeds=TEN_SEEDS),
        at_its_best("glstm-best", "g-LSTM", BEST, TRIES, paper=0.411, twin="lstm-best"),
        at_its_best("lstm-best", "LSTM", BEST.changed(cell="lstm"), TRIES, paper=0.418),
    ),
)
