from glstm.experiments import table1_adding1000 as shorter
from glstm.experiments.experiment import TEN_SEEDS, Arm, Experiment
from glstm.experiments.protocol import at_its_best, best_of_adding, by_the_paper
from glstm.recipes import PRESETS, Recipe

G_LSTM = PRESETS["adding-2000"]
LSTM = G_LSTM.changed(cell="lstm")
BEST = G_LSTM.changed(epochs=300)
TRIES = best_of_adding(2000)


def best(key: str, name: str, recipe: Recipe, search: Recipe, **more) -> Arm:
    """What was chosen at 1000 steps, with biases for memories of 2000 where biases are for long memories."""
    return at_its_best(
        key, name, recipe, TRIES, search=shorter.searched(search), search_tries=shorter.TRIES, **more
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="table1-adding2000",
    title="Adding task, N = 2000 (Table 1, Fig. 2b)",
    question="Does it still, at twice the length?",
    arms=(
        by_the_paper(
            "glstm", "g-LSTM", G_LSTM, shorter.G_LSTM,
            paper=1.3e-3, seeds=TEN_SEEDS, probes=("gates",), twin="lstm",
        ),
        by_the_paper("lstm", "LSTM", LSTM, shorter.LSTM, paper=1.6e-1, seeds=TEN_SEEDS),
        best("glstm-best", "g-LSTM", BEST, shorter.BEST, paper=1.3e-3, twin="lstm-best"),
        best("lstm-best", "LSTM", BEST.changed(cell="lstm"), shorter.BEST.changed(cell="lstm"), paper=1.6e-1),
    ),
)  # fmt: skip
