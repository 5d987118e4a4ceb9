from itertools import product

from glstm.experiments.experiment import Experiment
from glstm.experiments.protocol import RATES, at_its_best, moving
from glstm.experiments.table1_smnist import BEST
from glstm.experiments.thrifty import SEARCH_EPOCHS
from glstm.report.frontier import NOT_RECURRENT

UNITS = (50, 100)  # about as many operations as the frontier's networks take where images move
(CELL,) = NOT_RECURRENT
RECIPE = BEST.changed(cell=CELL)

# Those of images, but for biases for long memories, which it does not have.
TRIES = tuple({"lr": rate, **moving(shift)} for rate, shift in product(RATES, (0, 1)))

EXPERIMENT = Experiment(
    name="no-recurrence",
    title="A network without recurrence, with as few operations (ours)",
    question="Gates know which step it is, and all images have the same number of steps. What does this alone make "
    "possible? One hidden layer that has all pixels as its input, with weights of its own for each.",
    arms=tuple(
        at_its_best(
            f"ff-{units}", f"feed-forward network, {units} units", RECIPE.changed(units=units), TRIES,
            search=RECIPE.changed(units=units, epochs=SEARCH_EPOCHS),
        )
        for units in UNITS
    ),
)  # fmt: skip
