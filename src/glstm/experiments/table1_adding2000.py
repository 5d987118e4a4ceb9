from glstm.experiments.experiment import TEN_SEEDS, Experiment
from glstm.experiments.protocol import at_its_best, best_of_adding, by_the_paper
from glstm.recipes import PRESETS

G_LSTM = PRESETS["adding-2000"]
LSTM = G_LSTM.changed(cell="lstm")
BEST = G_LSTM.changed(epochs=300)
SEARCH = 350  # epochs: half of them, which is enough to tell who learns
TRIES = best_of_adding(2000)

EXPERIMENT = Experiment(
    name="table1-adding2000",
    title="Adding task, N = 2000 (Table 1, Fig. 2b)",
    question="Does it still, at twice the length?",
    arms=(
        by_the_paper(
            "glstm",
            "g-LSTM",
            G_LSTM,
            G_LSTM.changed(epochs=SEARCH),
            paper=1.3e-3,
            seeds=TEN_SEEDS,
            probes=("gates",),
            twin="lstm",
        ),
        by_the_paper("lstm", "LSTM", LSTM, LSTM.changed(epochs=SEARCH), paper=1.6e-1, seeds=TEN_SEEDS),
        at_its_best("glstm-best", "g-LSTM", BEST, TRIES, paper=1.3e-3, seeds=TEN_SEEDS, twin="lstm-best"),
        at_its_best("lstm-best", "LSTM", BEST.changed(cell="lstm"), TRIES, paper=1.6e-1, seeds=TEN_SEEDS),
    ),
)
