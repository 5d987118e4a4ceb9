"""Estimated time of the C engine on the dense and on the sparse path, to choose between the two.

This is about time. What a trained network needs in operations is `Cost` in `glstm/training/evaluate.py`. The constants
are nanoseconds on one machine (`glstm bench choice` measured them, and measures how good the choice is on yours); only
their ratio matters, and it differs little between machines.
"""

import ctypes
from ctypes import c_double
from dataclasses import dataclass


class Counts(ctypes.Structure):
    """Totals of a schedule, filled by `glstm_schedule_counts`: sums over steps, then over spans."""

    _fields_ = [(name, c_double) for name in ("open", "open_squared", "in_vectors", "changes", "spans_squared")]


@dataclass(frozen=True)
class Shape:
    steps: int
    batch: int
    inputs: int
    hidden: int
    lanes: int  # floats in a vector
    threads: int
    team: int = 1  # threads that share the units of few samples, and wait for each other after each step

    def most_in_a_thread(self, together: int) -> int:
        """How many groups of samples, `together` at a time, the busiest thread has."""
        groups = -(-self.batch // together)
        return -(-groups // min(self.threads, groups))


def dense(shape: Shape, taped: bool) -> float:
    width = -(-shape.hidden // 16) * 16 * 16 / shape.lanes
    if shape.team > 1:
        rows, width, barrier = shape.batch, width / shape.team, 150
    else:
        rows, barrier = shape.most_in_a_thread(1), 0
    products = (rows + 1) * width * (1 + shape.inputs + shape.hidden)  # one more: the weights are loaded, too
    if taped:
        return shape.steps * (0.21 * products + 3.9 * rows * width + 1350)
    return shape.steps * (0.069 * products + 1.6 * rows * width + 26 + barrier)


def sparse(shape: Shape, taped: bool, counts: Counts, one_by_one: bool) -> float:
    """`one_by_one`: each sample is computed by itself, with units in the lanes."""
    if one_by_one:
        sequences = shape.most_in_a_thread(1)
        if taped:
            vectors = counts.in_vectors / max(counts.open, 1) * shape.steps  # over all steps
            each = 26 * shape.steps + 14 * counts.in_vectors + 9.6 * shape.inputs * vectors + 3.3 * counts.changes
            return 1350 * shape.steps + sequences * each
        return sequences * (46 * shape.steps + 6.5 * counts.in_vectors + 0.96 * counts.changes)
    vectors = shape.most_in_a_thread(shape.lanes)
    products = counts.open_squared + shape.inputs * counts.open
    if taped:
        each = 43 * counts.open + 6.2 * products + 11.7 * counts.changes
        return 1430 * shape.steps + vectors * each + 1.2 * products + 21 * counts.spans_squared
    each = 34 * counts.open + 1.08 * products + 3.2 * counts.changes
    return 84 * shape.steps + vectors * each + 2.1 * counts.spans_squared


def best_sparse(shape: Shape, taped: bool, counts: Counts) -> tuple[float, bool]:
    """The time of the sparse path, and whether samples are computed one by one; without a tape, few samples are."""
    ways = (False, True) if taped else (shape.batch < shape.lanes / 2,)
    return min((sparse(shape, taped, counts, one_by_one), one_by_one) for one_by_one in ways)


def sparse_at_least(shape: Shape, taped: bool, open_cells: int) -> float:
    """A lower bound that needs no schedule: as if the same number of units were open at every step, without changes."""
    squared = open_cells**2 / shape.steps
    return best_sparse(shape, taped, Counts(open_cells, squared, max(open_cells, squared / shape.lanes), 0, 0))[0]
