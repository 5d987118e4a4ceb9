"""From JSON to tables and a page: every figure quoted is one that the JSON holds."""

import ast
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import glstm.report
from glstm.errors import UserError
from glstm.experiments import EXPERIMENTS
from glstm.gates import Gaussian, Phased
from glstm.report import drawing
from glstm.report.drawing import Axis, Curve, Scale, chart
from glstm.report.page import page
from glstm.report.results import load
from glstm.report.tables import document

COMMITTED = Path(__file__).parents[2] / "results"
RECIPE = {"task": "smnist", "epochs": 3, "seed": 0}
MACHINE = {"device": "a device", "commit": "0123456789abcdef", "software": {"torch": "2"}}


def summary(seed: int, errors: list[float], probes: dict | None = None) -> dict:
    return {
        "recipe": {**RECIPE, "seed": seed},
        "steps": 784,
        "metric": "error",
        "as_percent": True,
        "curve": {"epoch": [1, 2, 3], "test_error": errors, "mean_k": [1.0, 0.5, 0.25]},
        "probes": probes or {},
        "trained": [{"machine": MACHINE, "epochs": 3, "seconds": 30.0}],
    }


def probed(error: float) -> dict:
    rows = [
        {"threshold": level, "error": error + level, "open_share": 0.1 - level, "cached_ops": 1e6 * (1 - level)}
        for level in (0.0, 0.01)
    ]
    gates = {"mu": [100.0, 700.0], "sigma": [10.0, -50.0]}
    return {"thresholds": rows, "gates": {"before": gates, "after": gates}, "gradient flow": [1.0, 0.1, 0.0]}


@pytest.fixture
def results(tmp_path):
    arms = [
        {"key": "g", "name": "g <b>", "twin": "l", "paper": 0.013, "at_epoch": None, "at_threshold": 0.01, "seeds": [0, 1],
         "runs": [summary(0, [0.5, 0.2, 0.02], probed(0.02)), summary(1, [0.6, 0.3, 0.04], probed(0.04))]},
        {"key": "l", "name": "LSTM", "twin": None, "paper": None, "at_epoch": 2, "at_threshold": None, "seeds": [5],
         "runs": [summary(5, [0.9, 0.8, 0.7], probed(0.7))]},
    ]  # fmt: skip
    for name in ("one", "two"):
        content = {
            "name": name,
            "title": f"Title {name}",
            "question": "?",
            "small": False,
            "missing": ["a third"],
            "arms": arms,
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def test_figures_are_those_of_the_json(results):
    text = document(load(results, ["two", "one"]))
    assert text.index("Title two") < text.index("Title one")
    assert "| g <b> | 1.30 % | 4.00 % ± 1.41 % | 2 |  | 3 | 0.250 | 9.0 % | 0.990 M |" in text
    assert "| LSTM |  | 80.00 % | 1 | 85.00 % | 2 | 0.500 |  |  |" in text
    assert "Not trained yet: a third." in text
    assert "3 networks; 1.5 minutes on a device (torch 2); by the code of 0123456789ab." in text  # each once


def test_what_was_trained_in_two_places_is_counted_in_both(results):
    path = results / "one.json"
    content = json.loads(path.read_text())
    elsewhere = {"machine": {**MACHINE, "device": "another", "commit": "fedcba9876543210"}, "seconds": 120.0}
    content["arms"][0]["runs"][0]["trained"].append(elsewhere)
    path.write_text(json.dumps(content))
    text = document(load(results, ["two", "one"]))
    assert (
        "1.5 minutes on a device (torch 2); 2.0 minutes on another (torch 2); by the code of 0123456789ab, fed" in text
    )


class Checker(HTMLParser):
    """Every tag closed, nothing fetched from elsewhere."""

    VOID = frozenset({"meta", "img", "line", "circle", "polyline", "polygon"})

    def __init__(self):
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            assert name not in ("src", "href") or value.startswith(("data:", "#"))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(results):
    text = page(load(results, []))
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert "g &lt;b&gt;" in text
    assert "<b>" not in text
    assert "nan" not in re.sub(r"base64,[^\"]*", "", text)
    assert text.count("<figure>") == 2 * (1 + 3 + 1 + 2)


def test_gates_are_drawn_as_the_layer_opens_them():
    """The report computes k itself, since it knows no model: it must be the model's."""
    for gate, values in (
        (Gaussian(), {"mu": [100.0, 3.5], "sigma": [-40.0, 1.0]}),
        (Phased(), {"tau": [50.0, 1000.0], "s": [20.0, 650.0], "r": [0.1, 0.4]}),
    ):
        times = torch.linspace(1, 784, drawing.PICTURE, dtype=torch.float64)
        unit = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
        k = gate.openness(times, unit, training=False)
        own = drawing._gaussian if "mu" in values else drawing._phased
        for number in range(2):
            one = {name: value[number] for name, value in values.items()}
            drawn = torch.tensor([own(float(t), **one) for t in times], dtype=torch.float64)
            assert torch.allclose(drawn, k[:, number])
        assert drawing.gates(values, 784, "title").startswith("<img")


def test_no_result_and_broken_ones_are_named(tmp_path):
    with pytest.raises(UserError, match="there are no results in"):
        load(tmp_path, [])
    (tmp_path / "bad.json").write_text('{"name": "bad"}')
    with pytest.raises(UserError, match=r"bad.json is not a result of glstm reproduce"):
        load(tmp_path, [])


@pytest.mark.parametrize(
    ("key", "twin", "message"),
    [
        ("l", None, r"one.json has two arms with the key 'l'; each must have its own"),
        ("g", "x", r"one.json compares 'g' with 'x', which is no arm's key there"),
    ],
)
def test_keys_that_name_no_arm_or_two_are_named(results, key, twin, message):
    path = results / "one.json"
    content = json.loads(path.read_text())
    content["arms"][0].update(key=key, twin=twin)
    content["missing"] = []
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        load(results, [])


def test_committed_results_have_the_keys_of_the_experiments():
    """Claims look arms up by these."""
    for path in sorted(COMMITTED.glob("*.json")):
        content = json.loads(path.read_text())
        keys = {arm.key: arm.twin for arm in EXPERIMENTS[content["name"]].arms}
        assert {arm["key"]: arm["twin"] for arm in content["arms"]}.items() <= keys.items(), path.name


@pytest.mark.parametrize("values", [[1.0], [0.0, 0.0], [1e-6, 1.0], [0.011, 0.013], [3.0, 700.0], [math.nan, 2.0]])
@pytest.mark.parametrize("log", [False, True])
def test_axes_have_ticks_within_them(values, log):
    scale = Scale(values, Axis("x", log=log), 0, 100)
    assert all(-1e-6 <= scale(tick) <= 100 + 1e-6 for tick in scale.ticks())
    assert len(scale.ticks()) <= 12
    assert len(scale.ticks()) >= (0 if log else 2)


def test_a_chart_draws_what_it_is_given():
    svg = chart(
        [Curve("a", [0, 1], [0, 1], [0, 1], [0, 1]), Curve("b", [0], [1], marks=True)], Axis("x"), Axis("y"), "t"
    )
    assert svg.count("<polyline") == svg.count("<polygon") == svg.count("<circle") == 1
    x, y = (float(value) for value in re.findall(r'points="[\d.]+,[\d.]+ ([\d.]+),([\d.]+)"', svg)[-1])
    assert (x, y) == (drawing.WIDTH - drawing.RIGHT, drawing.TOP)


def test_the_report_knows_no_model():
    for path in Path(glstm.report.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any(name.startswith("torch") for name in names), path
