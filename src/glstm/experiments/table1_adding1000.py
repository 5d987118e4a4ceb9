from glstm.experiments.experiment import TEN_SEEDS, Arm, Experiment
from glstm.experiments.protocol import at_its_best, best_of_adding, by_the_paper
from glstm.recipes import PRESETS, Recipe

G_LSTM = PRESETS["adding-1000"]
LSTM = G_LSTM.changed(cell="lstm")
BEST = G_LSTM.changed(epochs=300)  # enough for each of them to learn the task, if it does
TRIES = best_of_adding(1000)


def searched(recipe: Recipe) -> Recipe:
    """Half of the epochs are enough to tell which of the tries learns first."""
    return recipe.changed(epochs=recipe.epochs // 2)


def best(key: str, name: str, recipe: Recipe, **more) -> Arm:
    return at_its_best(key, name, recipe, TRIES, search=searched(recipe), **more)


EXPERIMENT = Experiment(
    name="table1-adding1000",
    title="Adding task, N = 1000 (Table 1, Fig. 2a)",
    question="Does the g-LSTM learn to add two of a thousand numbers, sooner and better than the LSTM?",
    arms=(
        by_the_paper("glstm", "g-LSTM", G_LSTM, paper=3.8e-5, seeds=TEN_SEEDS, probes=("gates",), twin="lstm"),
        by_the_paper("lstm", "LSTM", LSTM, paper=1.4e-3, seeds=TEN_SEEDS),
        best("glstm-best", "g-LSTM", BEST, paper=3.8e-5, twin="lstm-best"),
        best("lstm-best", "LSTM", BEST.changed(cell="lstm"), paper=1.4e-3),
    ),
)
