from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.protocol import at_its_best, best_of_images
from glstm.experiments.table1_smnist import BEST

TRIES = best_of_images(784)
UNITS = (4, 8, 16, 32, 64)
SMALL_LSTM = BEST.changed(cell="lstm", units=16, lr=2e-3, chrono=784.0)  # what validation chose for 16 units


def small(cell: str, name: str, units: int) -> Arm:
    recipe = BEST.changed(cell=cell, units=units)
    return at_its_best(f"{cell}-{units}", f"{name}, {units} units", recipe, TRIES)


EXPERIMENT = Experiment(
    name="small",
    title="Small LSTMs and GRUs, the obvious way to save operations (ours)",
    question="What error does an LSTM or a GRU reach that is so small that it takes few operations?",
    arms=(
        *(small(cell, name, units) for cell, name in (("lstm", "LSTM"), ("gru", "GRU")) for units in UNITS),
        small("gru", "GRU", 110),  # as the LSTM of 110 units, which another experiment has
    ),
)
