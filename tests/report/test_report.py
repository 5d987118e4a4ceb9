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
from glstm.report.reading import load
from glstm.report.tables import document

COMMITTED = Path(__file__).parents[2] / "results"
RECIPE = {"task": "smnist", "cell": "glstm", "units": 110, "data": {}, "epochs": 3, "seed": 0}
MACHINE = {"device": "a device", "commit": "0123456789abcdef", "software": {"torch": "2"}}


def summary(seed: int, errors: list[float], probes: dict | None = None) -> dict:
    return {
        "recipe": {**RECIPE, "seed": seed},
        "steps": 784,
        "metric": "error",
        "as_percent": True,
        "diverged": False,
        "operations": 2e6,
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


def tried(chosen: int | None) -> dict:
    tries = [
        {"change": {"init": "xavier", "clip": 0.0}, "diverged": False, "validation": 0.0125, "operations": 2e6},
        {"change": {"lr": 0.001, "data": {"shift": 1}}, "diverged": True, "validation": None, "operations": None},
        {"change": {"gate": {"sigma": 25.0}}, "diverged": False, "validation": None, "operations": None},
    ]
    return {"chosen": chosen, "seeds": [100], "tries": tries}


@pytest.fixture
def results(tmp_path):
    arms = [
        {"key": "g", "name": "g <b>", "twin": "l", "paper": 0.013, "at_epoch": None, "at_threshold": 0.01,
         "track": "paper", "search": tried(0), "most_operations": None, "seeds": [0, 1],
         "runs": [summary(0, [0.5, 0.2, 0.02], probed(0.02)), summary(1, [0.6, 0.3, 0.04], probed(0.04))]},
        {"key": "l", "name": "LSTM", "twin": None, "paper": None, "at_epoch": 2, "at_threshold": None, "seeds": [5],
         "track": "paper", "search": tried(2), "most_operations": None,
         "runs": [summary(5, [0.9, 0.8, 0.7], probed(0.7))]},
    ]  # fmt: skip
    missing = [
        {"key": "third", "name": "a third", "track": "paper", "search": tried(None)},
        {"key": "fourth", "name": "a fourth", "track": "given", "search": None},
    ]
    for name in ("one", "two"):
        content = {
            "name": name,
            "title": f"Title {name}",
            "question": "?",
            "small": False,
            "missing": missing,
            "arms": arms,
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def changed(results: Path, change) -> None:
    """`change` gets the content of one result, which is then written again."""
    path = results / "one.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_figures_are_those_of_the_json(results):
    text = document(load(results, ["two", "one"]))
    assert text.index("Title two") < text.index("Title one")
    assert "| g &#60;b> | 1.30 % | 4.00 ± 1.41 % | 2 | 2 of 2 seeds |  | 3 | 0.250 | 9.0 % | 0.99 M |" in text
    # Operations are those of the last epoch, so they do not stand beside the figure of an earlier one.
    assert "| LSTM |  | 80.00 % | 1 | never (1 seed) | 85.00 % | 2 | 0.500 |  |  |" in text
    assert "Not finished yet: a third." in text
    assert "Not finished yet: a fourth." in text
    assert "a third: 2 of 3 tries are trained." in text
    assert "g &#60;b>: xavier start, no clipping (validation error 1.25 %, of 3 tries)." in text
    assert "- 3 networks are finished and tested." in text  # each once
    assert "- 1.5 minutes on a device (torch 2)." in text
    assert "- By the code of 0123456789ab." in text


def test_what_was_tried_is_shown(results):
    text = page(load(results, [])).replace("\u00a0", " ")
    assert text.count("What was tried, and what validation chose") == 2
    for cells in (
        ("xavier start, no clipping", "1.25 %", "2 M", "chosen"),
        ("rate 0.001, images that move by 1 pixel", "diverged", "", ""),
        ("sigma 25", "not trained yet", "", ""),
    ):
        assert re.search("<td>" + "</td><td[^>]*>".join(map(re.escape, cells)) + "</td>", text)


def test_what_was_trained_in_two_places_is_counted_in_both(results):
    elsewhere = {"machine": {**MACHINE, "device": "another", "commit": "fedcba9876543210"}, "seconds": 120.0}
    changed(results, lambda content: content["arms"][0]["runs"][0]["trained"].append(elsewhere))
    text = document(load(results, ["two", "one"]))
    assert "- 1.5 minutes on a device (torch 2).\n\n- 2.0 minutes on another (torch 2).\n" in text
    assert "- By the code of 0123456789ab, fedcba987654." in text


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
    # Of each result the learning curve, where seeds end, the gradient, and two arms' gates.
    assert text.count("<figure>") == text.count('role="img" aria-label="') == 2 * (1 + 1 + 1 + 2)


def test_on_a_narrow_page_every_cell_has_its_own_line():
    """So no column falls off the edge: the style sheet stacks cells, which must say what they are."""
    text = page(load(COMMITTED, []))
    tables = re.findall("<table.*?</table>", text)
    assert len(tables) > 5
    for one in tables:
        assert one.startswith('<table class="stacked">')
        head = len(re.findall("<th(?: [^>]*)?>", one))
        assert re.findall("<td[^>]*>", one).count("<td>") == one.count("<tr>") - 1  # the first of each row
        assert one.count(' data-name="') == (head - 1) * (one.count("<tr>") - 1)
    assert text.count('<div class="wide-only">') == text.count('<div class="narrow-only">') == 1


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
    changed(results, lambda content: content["arms"][1].update(paper=0.25, at_epoch=None))
    learning = figures.one(load(results, ["one"])[0], "learning paper", "here")[1]
    assert "paper 25.00 %" in learning
    assert "paper 1.30 %" not in learning  # it is that of a network whose units are closed


def test_two_points_are_no_curve(results):
    """Neither two epochs nor two thresholds are drawn: a table says as much."""
    result = load(results, ["one"])[0]
    assert not {"thresholds", "operations", "both"} & {*figures.keys(result)}
    learning = figures.one(result, "learning paper", "")[1]
    assert "g &lt;b&gt;</li>" in learning
    assert "LSTM</li>" not in learning


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
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(UserError, match=r"bad.json is not a result of glstm reproduce: it cannot be read"):
        load(tmp_path, [])


def set_in(*path_and_value):
    """A change that sets a value deep in a result."""
    *path, last, value = path_and_value

    def change(content):
        for step in path:
            content = content[step]
        content[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.pop("title"), "it has no 'title'"),
        (set_in("small", 1), "'small' of it must be true or false, not a whole number"),
        (set_in("arms", {}), "'arms' of it must be a list, not an object"),
        (set_in("arms", 0, []), "arm 1 must be an object, not a list"),
        (lambda content: content["arms"][0].pop("track"), "arm 1 has no 'track'"),
        (
            set_in("arms", 0, "track", "mine"),
            "the track of the arm 'g' must be one of paper, best, given, but is 'mine'",
        ),
        (set_in("arms", 0, "paper", "1"), "'paper' of arm 1 must be a number or null, not a text"),
        (set_in("arms", 0, "paper", True), "'paper' of arm 1 must be a number or null, not true or false"),
        (set_in("arms", 0, "runs", []), "the arm 'g' has no runs"),
        (set_in("arms", 0, "at_epoch", 9), "the arm 'g' is quoted at epoch 9, but a curve has 3"),
        (set_in("arms", 0, "at_threshold", 0.5), "quoted at a threshold of 0.5, at which it was not tested"),
        (set_in("arms", 0, "search", "chosen", 3), "the search of the arm 'g' chose number 3 of 3 tries"),
        (set_in("arms", 0, "search", "chosen", None), "the arm 'g' has runs, but its search chose nothing"),
        (
            set_in("arms", 0, "search", "tries", 1, 7),
            "try 2 of the search of the arm 'g' must be an object, not a whole",
        ),
        (
            set_in("arms", 0, "search", "tries", 1, "change", "lr", [0.001]),
            "tries[1].change.lr should be a finite number",
        ),
        (
            set_in("arms", 0, "search", "tries", 1, "change", "epochs", "many"),
            "change.epochs should be a whole number",
        ),
        (set_in("arms", 0, "search", "epochs", "many"), "search.epochs should be a whole number"),
        (set_in("arms", 0, "search", "tries", 1, "change", "data", 1), "tries[1].change.data should be"),
        (set_in("arms", 0, "runs", 1, "recipe", {}), "the recipe of run 2 of the arm 'g' has no 'task'"),
        (set_in("arms", 0, "runs", 1, "curve", "epoch", []), "the curve of run 2 of the arm 'g' must have one length"),
        (set_in("arms", 0, "runs", 1, "curve", "mean_k", 0, None), "curve of run 2 of the arm 'g' must be of numbers"),
        (
            set_in("arms", 0, "runs", 0, "probes", "thresholds", [3]),
            "'thresholds' of run 1 of the arm 'g' must be a list",
        ),
        (set_in("arms", 0, "runs", 0, "probes", "gates", {}), "'gates' of run 1 of the arm 'g' must have 'before'"),
        (
            set_in("arms", 0, "runs", 0, "trained", 0, "machine", {}),
            "the machine of run 1 of the arm 'g' has no 'device'",
        ),
        (set_in("arms", 0, "runs", 0, "as_percent", False), "its networks have different metrics"),
        (set_in("missing", 0, "a third"), "missing arm 1 must be an object, not a text"),
        (set_in("arms", 0, "key", "l"), "two arms have the key 'l'; each must have its own"),
        (set_in("missing", 0, "key", "fourth"), "two arms have the key 'fourth'; each must have its own"),
        (set_in("arms", 0, "twin", "x"), "'g' is compared with 'x', which is no arm's key there"),
        (set_in("arms", 1, "track", "best"), "'g' is compared with 'l', which is of another track"),
    ],
)
def test_what_is_wrong_with_a_result_is_said(results, change, message):
    changed(results, change)
    with pytest.raises(UserError) as caught:
        load(results, [])
    assert str(caught.value).startswith(f"{results / 'one.json'} is not a result of glstm reproduce: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("curve", [{}, {"epoch": [1], "test_error": [None], "mean_k": [None]}])
def test_a_network_that_diverged_needs_no_curve(results, curve):
    changed(results, lambda content: content["arms"][0]["runs"][0].update(diverged=True, curve=curve, operations=None))
    arm = load(results, ["one"])[0].arms[0]
    assert len(arm.errors) == 1
    assert arm.learnt_count == "1 of 2 seeds"
    assert "| 2, 1 diverged |" in document(load(results, ["one"]))


def test_a_network_is_not_compared_with_one_that_is_missing(results):
    changed(results, set_in("arms", 0, "twin", "third"))
    assert load(results, ["one"])[0].twins() == []


def test_results_of_the_earlier_protocol_are_not_taken_for_new_ones():
    with pytest.raises(UserError, match="arm 1 has no 'track'"):
        load(COMMITTED / "earlier", [])


def test_committed_results_have_the_keys_of_the_experiments():
    """Claims look arms up by these."""
    for path in sorted(COMMITTED.glob("*.json")):
        content = json.loads(path.read_text())
        keys = {arm.key: arm.twin for arm in EXPERIMENTS[content["name"]].arms}
        assert {arm["key"]: arm["twin"] for arm in content["arms"]}.items() <= keys.items(), path.name
        assert {arm["key"] for arm in (*content["arms"], *content["missing"])} == set(keys), path.name


def test_the_report_knows_no_model():
    for path in Path(glstm.report.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any(name.startswith("torch") for name in names), path


def test_no_html_of_a_result_reaches_the_pages(tmp_path):
    content = json.loads((COMMITTED / "table1-smnist.json").read_text())
    script = "<script>alert(1)</script> [a](javascript:b) |\n# c"
    content |= {"name": '"><script>', "title": script, "question": script}
    content["arms"][0]["name"] = script
    content["arms"][0]["runs"][0]["trained"][0]["machine"] |= {"device": script, "commit": "<img src=x>"}
    (tmp_path / "one.json").write_text(json.dumps(content))
    markdown, html = document(load(tmp_path, [])), page(load(tmp_path, []))
    assert not re.search(r"<script|<img src=x|\n# c|\[a\]\(", markdown)
    assert not re.search(r"<script|<img src=x", html)
