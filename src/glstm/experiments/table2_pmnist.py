from glstm.experiments.experiment import TEN_SEEDS, Arm, Experiment
from glstm.experiments.protocol import at_its_best, best_of_images, by_the_paper
from glstm.recipes import PRESETS, Recipe

G_LSTM = PRESETS["pmnist"]
LSTM = G_LSTM.changed(cell="lstm")
LONGER = LSTM.changed(epochs=235)  # after 120 its error still falls
BEST = G_LSTM.changed(decay=0.9, schedule="cosine")
TRIES = best_of_images(784)
SEARCH_EPOCHS = 40  # a third of them, each with its whole schedule


def best(key: str, name: str, recipe: Recipe, **more) -> Arm:
    return at_its_best(key, name, recipe, TRIES, search=recipe.changed(epochs=SEARCH_EPOCHS), **more)


EXPERIMENT = Experiment(
    name="table2-pmnist",
    title="Permuted MNIST (Table 2)",
    question="Does it help when neighbouring pixels lie far apart in time?",
    arms=(
        by_the_paper("glstm", "g-LSTM", G_LSTM, paper=0.075, seeds=TEN_SEEDS, probes=("gates",), twin="lstm"),
        by_the_paper("lstm", "LSTM", LSTM, paper=0.084, seeds=TEN_SEEDS),
        by_the_paper("lstm-longer", "LSTM, longer", LONGER, LSTM, paper=0.084),
        best("glstm-best", "g-LSTM", BEST, paper=0.075, twin="lstm-best"),
        best("lstm-best", "LSTM", BEST.changed(cell="lstm"), paper=0.084),
    ),
)
