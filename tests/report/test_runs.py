"""The page of anybody's runs, from tiny real ones: its figures are those of their files."""

import csv
import json
import re
import shlex
import shutil
from html.parser import HTMLParser
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from glstm.cli.main import app
from glstm.cli.repeat import command
from glstm.errors import UserError
from glstm.report.run_page import about, how_chosen, networks_table, runs_page
from glstm.report.runs import load_runs

SMALL = ["--epochs", "4", "--units", "5", "--device", "cpu"]


def glstm(*words: object):
    return CliRunner().invoke(app, [str(word) for word in words])


def train(*words: object) -> None:
    done = glstm("train", *words)
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Two seeds of a g-LSTM, an LSTM and a g-LSTM with another rate, on a file; and the adding task."""
    torch.set_num_threads(1)  # as in every test; a module's fixture comes before that
    folder = tmp_path_factory.mktemp("runs")
    draw = np.random.default_rng(0)
    x = draw.normal(size=(40, 6, 2)).astype(np.float32)
    np.savez(folder / "signs.npz", x=x, y=(x[:, :, 0].sum(1) > 0).astype(np.int64))
    data = [folder / "signs.npz", "--test", "0.25", *SMALL]
    train(*data, "--seeds", "2", "--out", folder / "g")
    train(*data, "--cell", "lstm", "--out", folder / "l")
    train(*data, "--lr", "0.01", "--gate-value", "sigma=2.5", "--out", folder / "fast")
    train("adding", "--steps", "12", "--train-size", "60", "--test-size", "30", *SMALL, "--out", folder / "adding")
    return folder


@pytest.fixture
def runs(trained, tmp_path) -> Path:
    return shutil.copytree(trained, tmp_path / "runs", symlinks=True)


def result(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def lines(comparison) -> list[dict[str, str]]:
    head, *body = networks_table(comparison)
    return [dict(zip(head, row, strict=True)) for row in body]


def percent(values: list[float]) -> str:
    return f"{100 * mean(values):.2f} ± {100 * stdev(values):.2f} %"


def test_seeds_are_one_line_with_the_figures_of_their_results(trained):
    (comparison,) = load_runs([trained / "g", trained / "l"])
    g, lstm = lines(comparison)
    seeds = [trained / "g" / "seed0", trained / "g" / "seed1"]
    found = [result(seed) for seed in seeds]
    assert (g["network"], g["seeds"], g["units"]) == ("g-LSTM", "2", "5")
    assert g["validation error"] == percent([one["validation_error"] for one in found])
    assert g["test error"] == percent([one["test_error"] for one in found])
    assert g["mean k"] == f"{mean(one['mean_k'] for one in found):.3f}"
    assert g["open"] == f"{100 * mean(one['open_share'] for one in found):.1f} %"
    best = sorted(one["epoch"] for one in found)
    assert g["best epoch"] == (f"{best[0]} of 4" if best[0] == best[1] else f"{best[0]}-{best[1]} of 4")
    seconds = median(float(row["seconds"]) for seed in seeds for row in rows_of(seed))
    assert g["seconds an epoch"] == f"{seconds:.2g} (2 together)"
    assert g["begun on"].startswith("CPU, ")
    # Four blocks of 5 units: weights from 2 inputs and 5 units, two biases; the head; and a mu and a sigma each.
    assert g["parameters"] == str(4 * 5 * (2 + 5 + 2) + 2 * (5 + 1) + 2 * 5)
    assert (lstm["network"], lstm["seeds"]) == ("LSTM", "1")
    assert lstm["test error"] == f"{100 * result(trained / 'l')['test_error']:.2f} %"
    assert int(lstm["parameters"]) == int(g["parameters"]) - 2 * 5


def test_without_validation_it_is_the_last_epochs_test_error(trained):
    (comparison,) = load_runs([trained / "adding"])
    (line,) = lines(comparison)
    assert line["test mse"] == f"{float(rows_of(trained / 'adding')[-1]['test_error']):.4g}"
    assert line["epochs"] == "4"
    assert "validation mse" not in line
    assert how_chosen(comparison).startswith("There is no validation part: the test mse is that of the last epoch")
    assert about(comparison.task) == "60 training and 30 test sequences of 12 steps, 2 inputs, 1 output."


def test_the_task_and_the_choice_are_said(trained):
    (comparison,) = load_runs([trained / "g", trained / "l"])
    sizes = json.loads((trained / "l" / "data.json").read_text())["sequences"]
    assert about(comparison.task) == (
        f"{sizes['train']} training, {sizes['validation']} validation and {sizes['test']} test sequences of up to "
        "6 steps, 2 inputs, 2 classes (0, 1)."
    )
    assert "the test part was used once" in how_chosen(comparison)


def test_networks_with_the_same_cell_are_named_by_what_differs(trained):
    (comparison,) = load_runs([trained / "g", trained / "fast", trained / "l"])
    assert [network.name for network in comparison.networks] == [
        "g-LSTM, lr 0.002",
        "g-LSTM, lr 0.01, sigma 2.5",
        "LSTM",
    ]
    assert comparison.differing() == ["cell", "lr", "gate.sigma"]


class Checker(HTMLParser):
    """Every tag closed, nothing fetched from elsewhere."""

    VOID = frozenset({"meta", "img"})

    def __init__(self):
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "link", "iframe")
        for name, value in attrs:
            assert name not in ("src", "href") or value.startswith(("data:", "#"))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(trained, tmp_path):
    done = glstm("report", trained, "--out", tmp_path / "page.html")  # a folder of runs, and of folders of runs
    assert done.exit_code == 0, done.output
    text = (tmp_path / "page.html").read_text()
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert not re.search(r"url\((?!#)|@import|https?:", re.sub(r'base64,[^"]*', "", text))
    assert "5 runs of 4 networks" in text
    assert text.count("<section") == 2  # a task each
    assert text.count('role="img" aria-label="') == 2 * 2
    assert text.count('<img src="data:image/png;base64,') == 3  # the LSTM has no gates
    names = re.findall(r' id="([^"]*)"', text)
    assert len(names) == len(set(names))
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_best_epoch_is_marked_and_colours_are_those_of_the_table(trained):
    text = runs_page(load_runs([trained / "g", trained / "l"]))
    errors, loss = re.findall("<svg.*?</svg>", text)
    assert '<span class="colour c1"></span>LSTM' in text
    assert '<li class="c1">LSTM</li>' in text
    assert text.count("<li class=") == 2 * 2  # marks have no line of their own in the legend
    assert errors.count("<use ") - loss.count("<use ") == 2 + 1  # a mark for each seed


def test_names_are_text(runs):
    path = runs / "l" / "config.json"
    config = json.loads(path.read_text())
    config["task"]["name"], config["recipe"]["cell"] = "<b>bold</b>", "x:<i>"
    path.write_text(json.dumps(config))
    text = runs_page(load_runs([runs / "l"]))
    assert "<b>" not in text
    assert "<i>" not in text
    assert "&lt;b&gt;bold" in text


def test_unfinished_runs_are_called_so(runs):
    (runs / "g" / "seed1" / "result.json").resolve().unlink()
    (runs / "l" / "result.json").resolve().unlink()
    (comparison,) = load_runs([runs / "g", runs / "l"])
    g, lstm = lines(comparison)
    assert g["seeds"] == "2, 1 unfinished"
    assert g["test error"] == f"{100 * result(runs / 'g' / 'seed0')['test_error']:.2f} %"
    assert (lstm["validation error"], lstm["test error"], lstm["best epoch"]) == ("unfinished", "unfinished", "4 of 4")
    (runs / "l" / "metrics.csv").resolve().unlink()  # it was only begun
    assert lines(load_runs([runs / "l"])[0])[0]["best epoch"] == "0 of 4"
    rows = (runs / "adding" / "metrics.csv").read_text().splitlines(keepends=True)
    (runs / "adding" / "metrics.csv").write_text("".join(rows[:-1]))
    assert lines(load_runs([runs / "adding"])[0])[0]["test mse"] == "unfinished"
    runs_page(load_runs([runs]))


def test_a_run_without_a_recipe_or_an_older_one_is_shown_too(runs):
    path = runs / "l" / "config.json"
    config = json.loads(path.read_text())
    del config["about"]
    config["recipe"] = None
    path.write_text(json.dumps(config))
    (line,) = lines(load_runs([runs / "l"])[0])
    assert line["units"] == "5"
    assert "parameters" not in line
    assert line["test error"] == f"{100 * result(runs / 'l')['test_error']:.2f} %"
    assert command(runs / "l") is None


@pytest.mark.parametrize("name", ["g/seed1", "l", "fast", "adding"])
def test_the_command_repeats_the_run(trained, tmp_path, name):
    words = shlex.split(command(trained / name) or "")
    assert words[:2] == ["glstm", "train"]
    train(*words[2:], "--device", "cpu", "--out", tmp_path / "again")
    first, again = (json.loads((folder / "config.json").read_text()) for folder in (trained / name, tmp_path / "again"))
    assert again == first
    assert (tmp_path / "again" / "losses.csv").read_text() == (trained / name / "losses.csv").read_text()


def test_bad_folders_are_named_in_one_sentence(runs, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    for path, message in (
        (tmp_path / "nowhere", "nowhere is not there; a run is a folder that glstm train made"),
        (runs / "signs.npz", "signs.npz is a file; a run is a folder"),
        (empty, "there is no run in .*empty, nor in its folders: glstm train makes them"),
    ):
        with pytest.raises(UserError, match=message):
            load_runs([path])
    shutil.copytree(runs / "l", runs / "copy")
    with pytest.raises(UserError, match=r"l and .*copy are the same network with the same seed, 0: leave one out"):
        load_runs([runs / "l", runs / "copy"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "{", "config.json is not a file of a run: Expecting property name"),
        ("config.json", "[]", "config.json is not a file of a run: it should be an object"),
        ("config.json", '{"model": {}}', "l is a model folder without a task"),
        ("config.json", '{"settings": {}}', "config.json is not the config of a run: it has no task"),
        ("metrics.csv", "epoch\none\n", "l is not a whole run of glstm train: "),
        ("result.json", "{}", "l is not a whole run of glstm train: KeyError"),
    ],
)
def test_broken_files_are_named(runs, name, content, message):
    (runs / "l" / name).write_text(content)
    with pytest.raises(UserError, match=message):
        load_runs([runs / "l"])


def test_a_broken_picture_is_named(runs):
    (runs / "fast" / "gates.png").write_text("no picture")
    with pytest.raises(UserError, match=r"gates.png is not a PNG picture"):
        runs_page(load_runs([runs / "fast"]))


def test_a_folder_given_twice_counts_once(trained):
    (comparison,) = load_runs([trained / "g", trained / "g" / "seed0"])
    assert len(comparison.networks[0].runs) == 2


def test_results_are_reported_alone_and_without_out(runs, tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    (results / "one.json").write_text("{}")
    for words, message in (
        ([results, runs / "l"], "holds results of glstm reproduce: report it alone"),
        ([results, "--out", tmp_path / "x.html"], "--out is for a page of runs"),
        ([results], "one.json is not a result of glstm reproduce"),
    ):
        error = glstm("report", *words).exception
        assert isinstance(error, UserError)
        assert message in str(error)
    assert not (tmp_path / "x.html").exists()


def test_only_a_report_is_replaced(runs, tmp_path):
    page = tmp_path / "page.html"
    for _ in range(2):
        assert glstm("report", runs / "l", "--out", page).exit_code == 0
    page.write_text("<html>the only copy of my thesis</html>")
    error = glstm("report", runs / "l", "--out", page).exception
    assert isinstance(error, UserError)
    assert str(error) == f"{page} is there, and glstm report did not write it: choose another --out, or move it away"
    assert "thesis" in page.read_text()


def test_results_replace_only_a_report(tmp_path):
    shutil.copytree(Path(__file__).parents[2] / "results", tmp_path / "results")
    assert glstm("report", tmp_path / "results").exit_code == 0
    written = (tmp_path / "results" / "README.md").read_text()
    (tmp_path / "results" / "report.html").write_text("mine")
    (tmp_path / "results" / "README.md").write_text(written + "changed")
    error = glstm("report", tmp_path / "results").exception
    assert "report.html is there, and glstm report did not write it: move it away" in str(error)
    assert (tmp_path / "results" / "report.html").read_text() == "mine"
    assert (tmp_path / "results" / "README.md").read_text() == written + "changed"
