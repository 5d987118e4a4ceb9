from glstm.experiments.experiment import TEN_SEEDS, Arm, Experiment
from glstm.experiments.protocol import CIFAR_EPOCHS, at_its_best, best_of_images, by_the_paper
from glstm.recipes import PRESETS, Recipe

SHORT, LONG = CIFAR_EPOCHS
G_LSTM = PRESETS["scifar"].changed(epochs=LONG)
LSTM = G_LSTM.changed(cell="lstm")
BEST = G_LSTM.changed(schedule="cosine")
TRIES = best_of_images(1024)


def best(key: str, name: str, recipe: Recipe, **more) -> Arm:
    """The searches train for half of the epochs, with their whole schedule."""
    return at_its_best(key, name, recipe, TRIES, search=recipe.changed(epochs=SHORT), **more)


EXPERIMENT = Experiment(
    name="table1-scifar",
    title="Sequential CIFAR-10 (Table 1, Fig. 2d)",
    question="And on 1024 pixels in colour?",
    arms=(
        by_the_paper("glstm", "g-LSTM", G_LSTM, paper=0.411, seeds=TEN_SEEDS, probes=("gates",), twin="lstm"),
        by_the_paper("lstm", "LSTM", LSTM, paper=0.418, seeds=TEN_SEEDS),
        best("glstm-best", "g-LSTM", BEST, paper=0.411, twin="lstm-best"),
        best("lstm-best", "LSTM", BEST.changed(cell="lstm"), paper=0.418),
    ),
)
