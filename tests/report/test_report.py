"""From JSON to tables and a page: every figure quoted is one that the JSON holds."""

import ast
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import glstm.report
from glstm.errors import UserError
from glstm.experiments import EXPERIMENTS
from glstm.gates import Gaussian, Periodic, Phased
from glstm.report import figures
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
        {"key": "g", "name": "g <b>", "twin": "l", "paper": 0.013, "at_epoch": None, "at_threshold": 0.01,
         "seeds": [0, 1],
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
    assert "| g &#60;b> | 1.30 % | 4.00 % ± 1.41 % | 2 |  | 3 | 0.250 | 9.0 % | 0.990 M |" in text
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

    VOID = frozenset({"meta"})

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
    # Of each result the curve of the arm that has one, error against operations, the gradient, and two arms' gates.
    assert text.count("<figure>") == text.count('role="img" aria-label="') == 2 * (1 + 1 + 1 + 2)


def test_a_page_is_the_same_whenever_it_is_made_and_its_figures_keep_their_ids_apart(results):
    import matplotlib

    text = page(load(results, []))
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": None, "svg.fonttype": "path"}):  # a user's own
        assert page(load(results, [])) == text
    names = re.findall(r' id="([^"]*)"', text)
    assert len(names) == len(set(names)) > 10
    assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(names)


def test_colours_and_fonts_are_the_pages(results):
    drawn = re.findall("<svg.*?</svg>", page(load(results, [])))
    assert len(drawn) == 10
    for svg in drawn:
        assert re.findall("#[0-9a-f]{6}", re.sub('base64,[^"]*', "", svg)) == []
        assert "font-family" not in svg
        assert "var(--soft)" in svg
    assert "var(--c0)" in drawn[0]
    assert ">epoch</text>" in drawn[0]
    assert ">before training</text>" in drawn[3]


def test_the_papers_figure_is_a_line_where_curves_show_the_same(results):
    path = results / "one.json"
    content = json.loads(path.read_text())
    content["arms"][1]["paper"] = 0.25
    content["arms"][1]["at_epoch"] = None
    path.write_text(json.dumps(content))
    learning, *rest = (html for _, html in figures.of(load(results, ["one"])[0]))
    assert "paper 25.00 %" in learning
    assert "paper 1.30 %" not in learning  # it is that of a network whose units are closed
    assert not any("paper" in html for html in rest)


def test_two_points_are_no_curve(results):
    """Neither two epochs nor two thresholds are joined by a line."""
    captions = [caption for caption, _ in figures.of(load(results, ["one"])[0])]
    assert captions[1] == "Error against operations, at thresholds of 0 and 0.01."
    learning, points = (figures.of(load(results, ["one"])[0])[number][1] for number in (0, 1))
    assert "g &lt;b&gt;</li>" in learning
    assert "LSTM</li>" not in learning  # two epochs
    assert points.count('class="c0 mark"') == points.count('class="c1 mark"') == 1
    assert not re.search(r"stroke: var\(--c[01]\)", points)


@pytest.mark.parametrize(
    ("gate", "values"),
    [
        (Gaussian(), {"mu": [100.0, 3.5], "sigma": [-40.0, 1.0]}),
        (Periodic(), {"mu": [100.0, 3.5], "sigma": [-40.0, 1.0], "tau": [200.0, -30.5]}),
        (Phased(), {"tau": [50.0, 1000.0], "s": [20.0, 650.0], "r": [0.1, 0.4]}),
        (Phased(), {"tau": [50.0, 1000.0, 90.0, 70.0], "s": [20.0, 650.0, 3.0, 7.0], "r": [1.3, -0.2, 2.5, 4.0]}),
    ],
)
def test_gates_are_drawn_as_the_layer_opens_them(gate, values):
    """The report computes k itself, since it knows no model: it must be the model's."""
    times = torch.linspace(1, 784, figures.GATE_COLUMNS, dtype=torch.float64)
    unit = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
    k = gate.openness(times, unit, training=False)
    assert torch.allclose(torch.from_numpy(figures.openness(values, times.numpy())), k)


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


def test_the_report_knows_no_model():
    for path in Path(glstm.report.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any(name.startswith("torch") for name in names), path


HOSTILE = {
    "a [0] that is not there": (("arms",), [], "arms should be a list of at least 1"),
    "a text for a list": (("arms", 0, "runs"), "abc", "arms[0].runs should be a list"),
    "no number": (("arms", 0, "runs", 0, "curve", "test_error", 1), None, "test_error[1] should be a finite number"),
    "infinite": (("arms", 0, "runs", 0, "curve", "mean_k", 0), 1e999, "mean_k[0] should be a finite number"),
    "a curve that is too short": (("arms", 0, "runs", 1, "curve", "test_error"), [0.5], "3, the recipe's epochs"),
    "an epoch after the last": (("arms", 1, "at_epoch"), 4, "arms[1].at_epoch should be one of the epochs"),
    "a threshold that was not tested": (("arms", 0, "at_threshold"), 0.5, "was not tested at the threshold"),
    "gates of different lengths": (
        ("arms", 0, "runs", 0, "probes", "gates", "before", "mu"), [1], "probes.gates.before should be the values"
    ),
    "an unknown probe row": (("arms", 0, "runs", 0, "probes", "thresholds", 0), 7, "thresholds[0] should be an object"),
    "no title": (("title",), 5, "title should be a text"),
    "a machine": (("arms", 0, "runs", 0, "trained", 0, "machine"), [], "machine should be an object"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_result_is_checked_at_the_door(results, what):
    """Each of these was a traceback from deep inside the report."""
    place, value, says = HOSTILE[what]
    content = json.loads((results / "one.json").read_text())
    inside = content
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    (results / "one.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"one\.json is not a result of glstm reproduce: .*" + re.escape(says)):
        load(results, [])


def test_no_html_of_a_result_reaches_the_pages(results):
    content = json.loads((results / "one.json").read_text())
    script = "<script>alert(1)</script> [a](javascript:b) |\n# c"
    content |= {"name": '"><script>', "title": script, "question": script, "missing": [script]}
    content["arms"][0]["name"] = script
    content["arms"][0]["runs"][0]["trained"][0]["machine"] = {"device": script, "commit": "<img src=x>"}
    (results / "one.json").write_text(json.dumps(content))
    markdown, html = document(load(results, [])), page(load(results, []))
    assert not re.search(r"<script|<img src=x|\n# c|\[a\]\(", markdown)
    assert not re.search(r"<script|<img src=x", html)


def test_results_of_other_networks_are_no_evidence(results):
    content = json.loads((results / "one.json").read_text())
    for name in ("budget", "threshold", "truncated"):
        content["name"] = name
        (results / f"{name}.json").write_text(json.dumps(content | {"missing": []}))
    with pytest.raises(UserError, match="the result threshold has no arm with the key 'no-budget'"):
        document(load(results, []))
    keys = ("no-budget", "from-the-start", "lambda-0", "lambda-1")
    arms = [{**content["arms"][0], "key": key, "twin": None} for key in keys]
    for name in ("budget", "threshold", "truncated"):
        (results / f"{name}.json").write_text(json.dumps(content | {"name": name, "missing": [], "arms": arms}))
    with pytest.raises(UserError, match=r"budget.json, threshold.json, truncated.json do not hold .*'paper_ops'"):
        document(load(results, []))
