"""What others published: their operations by the count of this project, and the two places where they are shown."""

import re
from html import escape

import pytest
from torch import nn

from glstm.analysis.operations import operations_of
from glstm.cells import CELLS
from glstm.report.frontier_figure import frontier_chart
from glstm.report.page import page
from glstm.report.published import NETWORKS, STEPS, fast_grnn, gru, lstm, thrifty_rows
from glstm.report.table2 import table2_rows
from glstm.report.tables import document, plain
from made_up_results import made_up


def test_operations_of_others_are_counted_as_ours():
    assert lstm() == operations_of(nn.LSTM(1, 110), STEPS)
    assert gru() == operations_of(nn.GRU(1, 110), STEPS)


@pytest.mark.parametrize(("name", "cell"), [("Skip LSTM", "skip-lstm"), ("Skip GRU", "skip-gru")])
def test_a_gate_that_skips_adds_little(name, cell):
    (updates,) = (float(one.counted.split()[0]) for one in NETWORKS if one.name == name)
    (ours,) = (one.operations for one in NETWORKS if one.name == name)
    assert ours == pytest.approx(operations_of(CELLS[cell](1, 110), STEPS, updates / STEPS), rel=0.01)


class Counted:
    """A number that counts what is done with it."""

    operations = 0

    def _count(self, _: object) -> "Counted":
        Counted.operations += 1
        return self

    __add__ = __mul__ = __rsub__ = _count


def nonlinear(value: Counted) -> Counted:
    Counted.operations += 5
    return value


def test_fast_grnn_by_its_equations():
    units, x, h, weight, bias, zeta, nu = 3, *(Counted() for _ in range(6))
    for _ in range(units):
        shared = weight * x
        for _ in range(units):
            shared = shared + weight * h
        z, candidate = nonlinear(shared + bias), nonlinear(shared + bias)
        assert (zeta * (1 - z) + nu) * candidate + z * h
    assert fast_grnn(units, units + units**2) == STEPS * Counted.operations


def test_fast_grnn_with_weights_that_are_products():
    """Two numbers stand between three h and three units, one between x and them: their sums begin with a product."""
    between = 2 * (3 + 2) + 1  # products and additions
    units = 3 * (1 + 2 * 2 + 2 + 2 * 5 + 6)  # x's product, then a product and an addition each; two biases; the rest
    assert fast_grnn(3, 1 + 3 + 2 * 2 * 3, ranks=3) == STEPS * (between + units)


def test_they_are_in_the_picture_and_in_both_reports():
    results = made_up()
    chart = frontier_chart({result.name: result for result in results})
    (shown,) = (curve for curve in chart.curves if curve.name == "published by others")
    assert list(shown.texts) == [one.name for one in NETWORKS]
    for rows in (thrifty_rows(), table2_rows({result.name: result for result in results})):
        for row in rows[1:]:
            cells = "".join(f"<td[^>]*>{re.escape(cell)}</td>" for cell in map(escape, row[1:]))
            assert re.search(cells, page(results).replace("\u00a0", " "))
            assert f"| {' | '.join(map(plain, row))} |" in document(results)
