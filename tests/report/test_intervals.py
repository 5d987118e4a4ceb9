"""Intervals against values from tables, and against a comparison that was worked out elsewhere."""

import pytest

from glstm.report.intervals import Difference, difference, t_quantile


@pytest.mark.parametrize(
    ("freedom", "level", "expected"),
    [
        (1, 0.95, 12.7062), (2, 0.95, 4.30265), (9, 0.95, 2.26216), (18, 0.95, 2.10092), (30, 0.95, 2.04227),
        (1000, 0.95, 1.96234), (1, 0.5, 1.0), (5, 0.99, 4.03214),
    ],
)  # fmt: skip
def test_quantiles_are_those_of_the_tables(freedom, level, expected):
    assert t_quantile(freedom, level) == pytest.approx(expected, rel=1e-5)


def test_equal_spreads_give_students_interval():
    """Two samples of three with a variance of 1 each: four degrees of freedom, and an error of sqrt(2 / 3)."""
    found = difference([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    half = 2.77645 * (2 / 3) ** 0.5
    assert (found.value, found.low, found.high) == pytest.approx((-3, -3 - half, -3 + half), rel=1e-5)
    assert found.lower
    assert not found.higher


def test_unequal_spreads_give_welchs_interval():
    """Variances 1 and 100 of three each: (1/3 + 100/3)^2 / ((1/3)^2 / 2 + (100/3)^2 / 2) = 2.04 degrees of freedom."""
    found = difference([1.0, 2.0, 3.0], [-10.0, 0.0, 10.0])
    freedom = (101 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (100 / 3) ** 2 / 2)
    assert freedom == pytest.approx(2.0400, abs=1e-4)
    assert found.high - found.value == pytest.approx(t_quantile(freedom) * (101 / 3) ** 0.5)
    assert 4.2 < t_quantile(freedom) < 4.30265
    assert not found.lower
    assert not found.higher


def test_what_has_no_spread():
    assert difference([1.0], [1.0, 2.0]) is None
    assert difference([2.0, 2.0], [1.0, 1.0]) == Difference(1.0, 1.0, 1.0)
