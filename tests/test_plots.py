"""Pictures come out as real image files, with what they claim in them."""

import math
from itertools import combinations

import numpy as np
import pytest
from PIL import Image

from glstm import plots
from glstm.plots import Axis, Curve, Level


def drawn(curves, x=None, y=None, levels=()):
    figure = plots.new_figure(5, 3)
    axes = figure.add_subplot()
    plots.draw_curves(axes, curves, x or Axis("x"), y or Axis("y"), levels)
    figure.canvas.draw()
    return axes


def test_gates_are_sorted_by_their_moment_and_saved_whole(tmp_path):
    times = np.arange(1, 51)[:, None]
    late_first = np.exp(-((times - np.array([40, 25, 10])) ** 2) / 25)
    figure = plots.gates(late_first, late_first)
    assert [axes.get_title() for axes in figure.axes[:2]] == ["before training", "after training"]
    shown = figure.axes[0].images[0].get_array()
    assert shown.argmax(1).tolist() == [9, 24, 39]
    plots.save(figure, tmp_path / "gates.png")
    with Image.open(tmp_path / "gates.png") as image:
        assert image.width > 600
    plots.save(figure, tmp_path / "gates.svg")
    assert b"<svg" in (tmp_path / "gates.svg").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"gates.png", "gates.svg"}


def test_a_unit_that_never_opens_can_be_drawn():
    plots.gates(np.zeros((5, 2)), np.zeros((5, 2))).canvas.draw()


def test_a_learning_curve_carries_its_name_and_values():
    figure = plots.learning_curve(Curve("g-LSTM", [1, 2], [0.5, 0.1]), metric="error", percent=True)
    (axes,) = figure.axes
    (line,) = axes.lines
    assert line.get_label() == "g-LSTM"
    assert np.asarray(line.get_ydata()).tolist() == [0.5, 0.1]
    assert line.get_marker() == "o"  # two points would be hard to see as a line
    assert axes.get_ylabel() == "error"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["g-LSTM"]
    figure.canvas.draw()
    assert "50 %" in [label.get_text() for label in axes.get_yticklabels()]


VALUES = [[1.0], [0.0, 0.0], [1e-6, 1.0], [0.011, 0.013], [0.009, 0.9], [0.063, 0.62], [3.0, 700.0], [math.nan, 2.0]]


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("log", [False, True])
def test_an_axis_can_be_read(values, log):
    axis = Axis("x", log=log)
    low, high = axis.limits(values)
    ticks = axis.ticks_within(low, high)
    assert ticks == sorted(set(ticks))
    assert all(low <= tick <= high for tick in ticks)
    assert 3 <= len(ticks) <= plots.MANY_TICKS


def test_percents_have_ticks_where_curves_end():
    """Powers of ten alone would be 1 % and 10 % here, with most of a curve below the one or above the other."""
    axis = Axis("error", log=True, percent=True)
    assert [axis.form(tick) for tick in axis.ticks_within(0.009, 0.9)] == [
        "1 %", "2 %", "5 %", "10 %", "20 %", "50 %",
    ]  # fmt: skip
    assert [axis.form(tick) for tick in axis.ticks_within(0.4, 0.8)] == ["40 %", "50 %", "60 %", "70 %", "80 %"]


def test_zero_has_its_place_on_a_log_axis():
    axes = drawn([Curve("a", [1e-5, 1e-3, 0.1], [1, 2, 3])], x=Axis("v", log=True, zero=1e-5))
    assert [label.get_text() for label in axes.get_xticklabels()][:2] == ["0", "1e-4"]


def test_what_cannot_be_shown_leaves_a_gap_or_stands_at_the_edge():
    curve = Curve("a", [1, 2, 3, 4], [0.5, 0.0, math.inf, 0.1], [0.4, 0.0, 0.1, 0.1], [0.6, 0.1, 0.2, 0.2])
    axes = drawn([curve], y=Axis("y", log=True))
    np.testing.assert_equal(np.asarray(axes.lines[0].get_ydata()), [0.5, 0.1, np.nan, 0.1])


def test_a_range_of_many_points_is_thinned_and_loses_none_of_its_extremes():
    x = np.arange(1, 701)
    low, high = np.ones(700), np.full(700, 2.0)
    low[333], high[699] = 0.5, 3.0
    places, least, most = plots._in_columns(x, low, high)
    assert len(places) == len(least) == len(most) <= plots.BAND_COLUMNS
    assert (places[0], places[-1]) == (1, 700)
    assert least.min() == 0.5
    assert most[-1] == 3.0


def test_levels_are_lines_in_their_curves_colours_and_their_texts_stand_apart():
    curves = [Curve(name, [1, 2, 3], [0.9, 0.5, 0.2]) for name in "ab"]
    axes = drawn(curves, y=Axis("y", log=True), levels=[Level(0.411, "first", 0), Level(0.418, "second", 1)])
    assert [line.get_color() for line in axes.lines[2:]] == list(plots.COLOURS[:2])
    assert [np.asarray(line.get_ydata())[0] for line in axes.lines[2:]] == [0.411, 0.418]
    first, second = (text.get_window_extent() for text in axes.texts)
    assert [text.get_text() for text in axes.texts] == ["first", "second"]
    assert not first.overlaps(second)


def test_texts_stay_beside_the_axes():
    moved = plots._apart([0.99, 0.5, 0.995, 1.0])
    assert moved[1] == 0.5
    assert max(moved) <= 1
    assert np.diff(sorted(moved)).min() >= plots.TEXT_HEIGHT - 1e-9


def test_texts_cover_neither_marks_nor_each_other():
    """The second mark stands where the first one's text would, and so on."""
    x, y = [1.0, 1.03, 1.0, 1.03, 1.6], [0.5, 0.52, 0.54, 0.5, 0.1]
    curve = Curve(
        "a", x, y, low=[0.45, *y[1:]], high=[0.5, *y[1:]], line=False, texts=["first", "second", "third", "", "x"]
    )
    axes = drawn([curve])
    boxes = [text.get_window_extent() for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == ["first", "second", "third", "x"]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    places = axes.transData.transform([*zip(x, y)])
    assert not any(box.contains(*place) for box in boxes for place in places)


def test_a_dashed_curve():
    solid, dashed = drawn([Curve("a", [1, 2, 3], [1, 2, 3]), Curve("b", [1, 2, 3], [3, 2, 1], dashed=True)]).lines
    assert solid.get_linestyle() == "-"
    assert dashed.get_linestyle() != "-"
