"""The two tracks on which networks are compared: what the tries of each are.

On the paper's track a recipe is what the paper says. It leaves some values open; these are chosen by validation, for
each network by itself, with the same number of tries. On the other track every network is searched in the same grid,
and images that move are offered to all.
"""

from itertools import product
from typing import Any

from glstm.experiments.experiment import Arm
from glstm.recipes import Recipe

Tries = tuple[dict[str, Any], ...]

STARTS = ("orthogonal", "xavier")  # of the kernels; the paper's 'orthogonal' leaves the size of the input kernel open
CLIPS = (1.0, 0.0)  # norm of the gradient; 0: no clipping
GATE_RATES = (0.1, 1.0)  # which the paper gives for the adding task only
CIFAR_EPOCHS = (50, 100)  # which the paper does not give
RATES = (1e-3, 2e-3)
LOWER_RATES = (5e-4, 1e-3)  # of the first grid, on sequential MNIST: the larger one was the better for both networks


def moving(shift: int) -> dict[str, Any]:
    """What a try says of its training images; without a shift, nothing."""
    return {"data": {"shift": shift}} if shift else {}


def left_open(recipe: Recipe) -> Tries:
    """Four tries. On CIFAR-10, how long; else for gates whose rate the paper does not give, the rate; for others,
    clipping."""
    if recipe.task == "scifar":
        return tuple({"init": init, "epochs": epochs} for epochs, init in product(CIFAR_EPOCHS, STARTS))
    if recipe.cell == "glstm" and recipe.task != "adding":
        return tuple({"init": init, "gate_lr": rate} for init, rate in product(STARTS, GATE_RATES))
    return tuple({"init": init, "clip": clip} for init, clip in product(STARTS, CLIPS))


def best_of_images(steps: int, rates: tuple[float, ...] = RATES) -> Tries:
    """Eight tries: the rate, biases for long memories, and images that move by a pixel."""
    biases = ({"forget_bias": 1.0}, {"chrono": float(steps)})
    return tuple({"lr": rate, **bias, **moving(shift)} for rate, bias, shift in product(rates, biases, (0, 1)))


def best_of_adding(steps: int) -> Tries:
    """Eight tries: the rate, the start, and a schedule."""
    starts = ({"init": "xavier"}, {"init": "orthogonal", "chrono": float(steps)})
    return tuple(
        {"lr": rate, **start, "schedule": schedule}
        for rate, start, schedule in product((1e-3, 2e-3), starts, ("constant", "cosine"))
    )


def by_the_paper(key: str, name: str, recipe: Recipe, search: Recipe | None = None, **more: Any) -> Arm:
    """`search`: another recipe decides, such as that with the usual number of epochs."""
    return Arm(key, name, recipe, track="paper", tries=left_open(recipe), search=search, **more)


def at_its_best(key: str, name: str, recipe: Recipe, tries: Tries, **more: Any) -> Arm:
    return Arm(key, name, recipe, track="best", tries=tries, **more)
