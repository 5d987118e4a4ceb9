"""Pictures come out as real image files, with what they claim in them."""

import numpy as np
from PIL import Image

from glstm.analysis import plots


def test_gates_are_sorted_by_their_moment_and_saved_whole(tmp_path):
    times = np.arange(1, 51)[:, None]
    late_first = np.exp(-((times - np.array([40, 25, 10])) ** 2) / 25)
    figure = plots.gates(late_first, late_first)
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


def test_learning_curves_carry_their_names_and_values():
    curves: dict[str, plots.Curve] = {"g-LSTM": ([1, 2], [0.5, 0.1]), "LSTM": ([1, 2], [0.5, 0.4])}
    figure = plots.learning_curve(curves, metric="error", percent=True)
    axes = figure.axes[0]
    assert [line.get_label() for line in axes.lines] == ["g-LSTM", "LSTM"]
    assert np.asarray(axes.lines[0].get_ydata()).tolist() == [0.5, 0.1]
    assert axes.get_ylabel() == "test error"
    figure.canvas.draw()
