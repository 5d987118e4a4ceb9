"""Small estimators, and data they learn in a moment."""

import numpy as np

from glstm import SequenceClassifier, SequenceRegressor

SMALL = {"units": 8, "lr": 0.02, "batch": 64, "epochs": 30, "random_state": 0}
STEPS = 12


def events(count: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Noise on two channels (n, 2, T), and a peak at step 3: its channel is the class."""
    draws = np.random.default_rng(seed)
    x = draws.normal(0, 0.3, (count, 2, STEPS))
    channel = draws.integers(0, 2, count)
    x[np.arange(count), channel, 3] += 3
    return x, np.array(["first", "second"])[channel]


def classifier(**changes) -> SequenceClassifier:
    return SequenceClassifier(**(SMALL | changes))


def regressor(**changes) -> SequenceRegressor:
    return SequenceRegressor(**(SMALL | changes))
