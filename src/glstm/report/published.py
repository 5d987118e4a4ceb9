"""Networks that others published on sequential MNIST, pixel by pixel: errors are theirs.

Their operations are made comparable: what a source says of sizes and updates, in the count of this project, in which a
multiplication or an addition is one operation and a nonlinear function five (`glstm.analysis.operations_of`).
"""

from dataclasses import dataclass

from glstm.report.results import Rows, millions, percent

OTHERS = "What others published (not trained here)"
STEPS, INPUTS, UNITS = 784, 1, 110

SKIP_RNN = "Campos et al., Skip RNN, 2018, arXiv:1708.06834, Table 2, four runs"
FAST_GRNN = "Kusupati et al., FastGRNN, 2018, arXiv:1901.02358, Tables 3, 8 and 11"


@dataclass(frozen=True)
class Published:
    name: str
    error: float
    operations: float  # of a sequence
    counted: str  # from what
    source: str


def lstm(updates: float = STEPS) -> float:
    return updates * UNITS * (8 * INPUTS + 8 * UNITS + 29)


def gru(updates: float = STEPS) -> float:
    return updates * UNITS * (6 * INPUTS + 6 * UNITS + 21)


def fast_grnn(units: int, weights: float, ranks: int = 0) -> float:
    """With so many weights that are not 0. Both gates of a unit have one sum, each with its own bias; besides there are
    two nonlinear functions, and the six operations of (zeta (1 - z) + nu) h~ + z h. `ranks`: of the weights of x and of
    h together, where they are products of two matrices: so many further sums, to which nothing is added."""
    return STEPS * (2 * weights - ranks + units * (1 + 2 * 5 + 6))


NETWORKS = (
    Published("GRU", 0.032, gru(), "784 updates of 110 units", SKIP_RNN),
    Published("Skip LSTM", 0.027, lstm(379.38), "379.38 updates of 110 units; without its own gate", SKIP_RNN),
    Published("Skip GRU", 0.024, gru(392.62), "392.62 updates of 110 units; without its own gate", SKIP_RNN),
    Published(
        "FastGRNN", 0.0180, fast_grnn(128, 129 + 0.3 * 2 * 128 * 30, ranks=1 + 30),
        "128 units, recurrent weights of rank 30 of which 0.3 are not 0, input weights of rank 1", FAST_GRNN,
    ),
    Published(
        "FastGRNN-LSQ", 0.0128, fast_grnn(128, 128 + 128**2),
        "128 units, as in Table 11, and all weights, which is what Table 3's 71 kB say", FAST_GRNN,
    ),
)  # fmt: skip

# Errors of Table 2 of the g-LSTM's paper: of sMNIST, pMNIST and sCIFAR-10. Those of others are from their own papers.
ERRORS = {
    "g-LSTM": (0.013, 0.075, 0.411),
    "LSTM": (0.018, 0.084, 0.418),
    "r-LSTM": (0.016, 0.048, 0.278),
    "Zoneout": (0.013, 0.069, None),
    "IndRNN, 6 layers": (0.010, 0.040, None),
    "BN-LSTM": (0.010, 0.046, None),
    "Skip LSTM": (0.027, None, None),
}


def thrifty_rows() -> Rows:
    rows: Rows = [["", "error", "operations, our count", "counted from", "source"]]
    return rows + [
        [one.name, percent(one.error), millions(one.operations), one.counted, one.source] for one in NETWORKS
    ]
