"""Every figure of results that a document or the page prints is computed again here, from the JSON alone."""

import json
import re
from decimal import ROUND_HALF_UP, Decimal
from html import unescape
from pathlib import Path
from statistics import mean, median, stdev

import pytest
from scipy.stats import ttest_ind

from glstm.experiments import EXPERIMENTS, adding_lengths, app_d_optim
from glstm.experiments.frontier import THRIFTY
from glstm.experiments.small import SMALL_LSTM
from glstm.report.page import page
from glstm.report.published import thrifty_rows
from glstm.report.reading import load
from glstm.report.table2 import table2_rows
from glstm.report.tables import document

ROOT = Path(__file__).parents[1]
RESULTS = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "results").glob("*.json"))}
LEARNT = {"adding": 0.01, "smnist": 0.05, "pmnist": 0.12, "scifar": 0.5}

# A share, a number of operations, a small error, or an epoch; in text, as 'mean ± deviation', and as an interval.
FIGURE = re.compile(
    r"[-+]?\d+\.\d+ \([-+]?\d+\.\d+ to [-+]?\d+\.\d+\)|\d+(?:\.\d+)? ± \d+(?:\.\d+)? %|\d+(?:\.\d+)? (?:%|M\b)"
    r"|\d\.\de-\d+|\bepoch \d+(?:\.\d+)?|[-+]\d\.\d+ points|-?\d\.\d\d to -?\d\.\d\d"
)
# What is said, not measured: levels at which tasks are learnt, the interval's probability, the paper's network in two
# counts, and the share of its gates that are open.
SAID = {"5 %", "12 %", "50 %", "95 %", "2.3 %", "8.2 %", "0.92 M", "7.6 M"}


def rounded(value: float, digits: int = 2) -> str:
    """As on paper: a 5 is rounded up."""
    return str(Decimal(f"{value:.10g}").quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def percent(value: float) -> str:
    return f"{rounded(100 * value)} %"


def errors(arm: dict) -> list[float]:
    """The figure of each seed."""
    return [error_of(run, arm) for run in arm["runs"] if not run["diverged"]]


def error_of(run: dict, arm: dict) -> float:
    if arm["at_threshold"] is not None:
        return next(row["error"] for row in run["probes"]["thresholds"] if row["threshold"] == arm["at_threshold"])
    if "as an LSTM" in run["probes"]:
        return run["probes"]["as an LSTM"]["error"]
    return run["curve"]["test_error"][(arm["at_epoch"] or len(run["curve"]["test_error"])) - 1]


def learnt(arm: dict, epochs: int | None = None) -> float:
    """The epoch by which half of the seeds have learnt the task; infinite: not in so many epochs."""
    found = []
    for run in arm["runs"]:
        level, curve = LEARNT[run["recipe"]["task"]], run["curve"]["test_error"][:epochs]
        found.append(next((n for n, one in enumerate(curve, 1) if one <= level), float("inf")))
    return median(found)


def spread(values: list[float]) -> str:
    return f"{rounded(100 * mean(values))} ± {rounded(100 * stdev(values))} %"


def welch(one: list[float], other: list[float]) -> tuple[float, float, float]:
    """The difference between its interval's ends, by another implementation than the report's."""
    found = ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    return found.low, mean(one) - mean(other), found.high


def points(one: list[float], other: list[float]) -> tuple[str, ...]:
    return tuple(f"{Decimal(rounded(100 * number)):+}" for number in welch(one, other))


@pytest.fixture(scope="module")
def smnist() -> dict[str, dict]:
    return {arm["key"]: arm for arm in RESULTS["table1-smnist"]["arms"]}


@pytest.fixture(scope="module")
def figures() -> set[str]:
    """All that may be quoted."""
    found = SAID | {
        cell for row in (*thrifty_rows(), *table2_rows({})) for cell in row
    }  # tests/report/test_published.py
    for result in RESULTS.values():
        for arm in result["arms"]:
            found |= of_arm(arm)
        arms = {arm["key"]: arm for arm in result["arms"]}
        for gated, plain in ((arm, arms.get(arm["twin"])) for arm in arms.values()):
            if plain and min(len(gated["runs"]), len(plain["runs"])) > 1:
                own, other = errors(gated), errors(plain)
                low, value, high = points(own, other)
                found |= {f"{value} ({low} to {high})", f"{value} points", f"{low} to {high}"}
                low, value, high = (f"{number:+.1e}" for number in welch(own, other))
                found |= {f"{value} ({low} to {high})", *(number.lstrip("+-") for number in (low, value, high))}
        for arm in (arm for arm in result["missing"] if "runs" in arm):  # the seeds that are finished
            found |= of_arm({**arm, "at_threshold": None, "at_epoch": None, "paper": None})
        searches = [arm["search"] for arm in (*result["arms"], *result["missing"]) if arm["search"]]
        for one in (one for search in searches for one in search["tries"] if one["validation"] is not None):
            found |= {percent(one["validation"]), f"{one['validation']:.1e}", f"{(one['operations'] or 0) / 1e6:.3g} M"}
    earlier = after(50, arms_of("table1-scifar")["lstm"]), after(120, arms_of("table1-smnist")["lstm-longer"])
    return found | of_charge() | {*map(percent, earlier)}


def of_charge() -> set[str]:
    """What a charge for openness costs: the thresholded network with lambda = 1 against that with wide gates."""
    charged = [arm for arm in RESULTS["budget"]["arms"] if arm["key"] == "lambda-1"]
    wide = [arm for arm in RESULTS["table1-smnist"]["arms"] if arm["key"] == "glstm"]
    low, value, high = points(errors({**charged[0], "at_threshold": 0.01}), errors(wide[0]))
    return {f"{value} points", f"{value} ({low} to {high})", f"{low} to {high}"}


def of_arm(arm: dict) -> set[str]:
    """An arm's figures, as shares and as small numbers."""
    own = errors(arm)
    last = [mean(run["curve"]["test_error"][: arm["at_epoch"]][-5:]) for run in arm["runs"] if not run["diverged"]]
    single = [*own, mean(own), median(own), mean(last)] + ([] if arm["paper"] is None else [arm["paper"]])
    found = {f"epoch {learnt(arm):g}", *map(percent, single), *(f"{value:.1e}" for value in single)}
    found |= {f"{100 * value:.3g} %" for value in single}
    if arm["most_operations"] is not None:
        found |= {f"{arm['most_operations'] / 1e6:g} M"}
    if len(own) > 1:
        found |= {spread(own), f"{stdev(own):.1e}"}
    found |= {f"epoch {run['recipe']['epochs']}" for run in arm["runs"]}
    found |= {f"{100 - 100 * run['recipe'].get('sparsity', 0):g} %" for run in arm["runs"]}  # weights left
    flows = [run["probes"]["gradient flow"] for run in arm["runs"] if "gradient flow" in run["probes"]]
    found |= {f"{mean(flow[:100]):.1e}" for flow in flows}  # of the first steps
    counts = [run["operations"] for run in arm["runs"] if run["operations"] is not None]
    found |= {f"{mean(counts) / 1e6:.3g} M"} if counts else set()
    for rows in zip(*(run["probes"].get("thresholds", []) for run in arm["runs"] if not run["diverged"]), strict=True):
        found |= {f"{mean(row[count] for row in rows) / 1e6:.3g} M" for count in ("cached_ops", "paper_ops")}
        found |= {percent(mean(row["error"] for row in rows))}
        found |= {f"{100 * mean(row['open_share'] for row in rows):.1f} %", spread([row["error"] for row in rows])}
    return found


def section(name: str, start: str, end: str | None) -> str:
    text = (ROOT / name).read_text()
    text = text[text.index(start) :]
    return re.sub(r"\s+", " ", text if end is None else text[: text.index(end)])


QUOTING = {
    "README": ("README.md", "## Does the paper's result hold?", "## Where to go on"),
    "came out": ("docs/experiments.md", "## What came out so far", "## The protocol"),
    "protocol": ("docs/experiments.md", "## The protocol", "## A sceptical reviewer asks"),
    "sceptic": ("docs/experiments.md", "## A sceptical reviewer asks", None),
}


@pytest.mark.parametrize("part", QUOTING)
def test_every_figure_in_the_documents_is_one_of_the_json(part, figures):
    quoted = FIGURE.findall(section(*QUOTING[part]))
    assert len(quoted) >= 5
    assert set(quoted) - figures == set()


def arms_of(name: str) -> dict[str, dict]:
    return {arm["key"]: arm for arm in RESULTS[name]["arms"]}


def small_spread(values: list[float]) -> str:
    return f"{mean(values):.1e} ± {stdev(values):.1e}"


TABLES = {
    "adding, 1000 steps": ("table1-adding1000", "3.8e-05 | 1.4e-03"),
    "sequential MNIST": ("table1-smnist", "1.30 % | 1.80 %"),
    "permuted MNIST": ("table2-pmnist", "7.50 % | 8.40 %"),
    "sequential CIFAR-10": ("table1-scifar", "41.10 % | 41.80 %"),
}


@pytest.mark.parametrize("end", ["", "-best"])
@pytest.mark.parametrize("task", TABLES)
def test_both_tables_have_every_task_that_is_finished(task, end):
    """Each figure with its network: one that is in the JSON may still be another's."""
    (name, paper), arms = TABLES[task], arms_of(TABLES[task][0])
    if f"glstm{end}" not in arms:
        pytest.skip("not finished yet")
    gated, plain = (errors(arms[f"{cell}{end}"]) for cell in ("glstm", "lstm"))
    form = spread if RESULTS[name]["as_percent"] else small_spread
    if RESULTS[name]["as_percent"]:
        low, value, high = points(gated, plain)
        interval = f"{value} ({low} to {high}) points"
    else:
        low, value, high = (f"{number:.1e}" for number in welch(gated, plain))
        interval = f"{value} ({low} to {high})"
    first = str(len(gated)) if end else paper
    assert f"| {task} | {first} | {form(gated)} | {form(plain)} | {interval} |" in section(*QUOTING["came out"])
    row = f"| {form(gated)} | {form(plain)} |"
    assert (f"| {task} | {len(gated)} {row}" if end else row) in section(*QUOTING["README"])


def test_who_learns_when_is_as_said(smnist):
    text = section(*QUOTING["came out"])
    adding, pmnist, scifar = (arms_of(name) for name in ("table1-adding1000", "table2-pmnist", "table1-scifar"))
    half = {key: f"epoch {learnt(arm):g}" for key, arm in adding.items()}
    assert f"have learnt to add by {half['glstm']}, half of the LSTM's by {half['lstm']}." in text
    assert f"have learnt by {half['lstm-best']}, half of the g-LSTM's by {half['glstm-best']}, and both end at" in text
    half = {key: f"epoch {learnt(arm):g}" for key, arm in smnist.items()}
    assert half["glstm"] == half["glstm-best"]
    assert f"On sequential MNIST half of its seeds are under 5 % by {half['glstm']} on both tracks" in text
    assert f"by {half['lstm']} by the paper's recipe and by {half['lstm-best']} at its best" in text
    half = {key: f"epoch {learnt(arm):g}" for key, arm in pmnist.items()}
    assert f"under 12 % by {half['glstm']}, half of the LSTM's by {half['lstm']}." in text
    half = {key: f"epoch {learnt(arm):g}" for key, arm in scifar.items()}
    assert f"under 50 % by {half['glstm']}, half of the LSTM's by {half['lstm']}." in text
    assert half["glstm-best"] == half["lstm-best"]
    assert f"half of the seeds of each are under 50 % by {half['lstm-best']}" in text
    assert f"{count(smnist['lstm'])} of the LSTM's 10 seeds get there in 120 epochs" in text
    ends = sorted(errors(smnist["lstm"]))
    assert f"between {percent(ends[0])} and {percent(ends[-1])}, with a median of {percent(median(ends))}" in text
    assert max(errors(pmnist["glstm"])) < min(errors(pmnist["lstm"]))
    tested = {json.dumps(run["recipe"]) for one in RESULTS.values() for arm in one["arms"] for run in arm["runs"]}
    assert f"{len(tested)} networks are finished and tested" in text


def test_how_long_networks_train_decides_on_images(smnist):
    text = section(*QUOTING["came out"])
    scifar, pmnist = arms_of("table1-scifar"), arms_of("table2-pmnist")
    epochs = {key: chosen(scifar[key])["change"]["epochs"] for key in ("glstm", "lstm")}
    assert epochs == {"glstm": 50, "lstm": 100}
    assert f"After {epochs['glstm']}, the LSTM is at {percent(after(50, scifar['lstm']))}" in text
    assert f"the highest of its ten seeds is at {percent(max(errors(scifar['lstm'])))}" in text
    short, long = (
        next(one["validation"] for one in scifar["glstm"]["search"]["tries"] if one["change"] == change)
        for change in ({"init": "xavier", "epochs": 50}, {"init": "xavier", "epochs": 100})
    )
    assert short < long
    assert f"does not seem to gain by the second fifty: {percent(short)} and {percent(long)} by validation" in text
    assert min(errors(scifar["lstm-best"])) > mean(errors(scifar["lstm"]))  # its grid does not have its best recipe
    longer = smnist["lstm-longer"]
    assert f"three seeds are at {spread(errors(longer))}" in text
    of_the_ten = percent(mean(errors(smnist["lstm"])))
    assert f"After 120 epochs they had {percent(after(120, longer))}, where the ten had {of_the_ten}" in text
    assert f"bring the LSTM to {spread(errors(pmnist['lstm-longer']))}, still above every seed" in text
    assert max(errors(pmnist["glstm"])) < min(errors(pmnist["lstm-longer"]))


def test_biases_for_long_memories_and_the_curriculum_are_as_said():
    text = section(*QUOTING["came out"])
    half = {key: f"epoch {learnt(arm):g}" for key, arm in arms_of("appD-chrono").items()}
    assert f"by {half['lstm-chrono-784']} (T_max = 784) and by {half['lstm-chrono-250']} (T_max = 250)" in text
    assert f"half of the g-LSTM's by {half['glstm-chrono-784']} and by {half['glstm-chrono-250']}: it loses" in text
    taught, plain = (arms_of("curriculum")[key] for key in ("curriculum", "lstm"))
    assert f"under 50 % by epoch {learnt(taught):g} behind their narrow gates" in text
    assert f"half of the plain LSTM's by epoch {learnt(plain):g}." in text
    assert f"has {spread(errors(taught))}, the plain LSTM {spread(errors(plain))}: " in text
    logistic, tanh = (arms_of("candidate")[key] for key in ("logistic", "tanh"))
    assert f"at {spread(errors(logistic))} after 60 epochs, tanh at {spread(errors(tanh))}" in text


def after(epochs: int, arm: dict) -> float:
    """The mean test error after so many epochs of training that went on."""
    return mean(run["curve"]["test_error"][epochs - 1] for run in arm["runs"])


def count(arm: dict) -> int:
    """Seeds that learn the task."""
    return sum(min(run["curve"]["test_error"]) <= LEARNT[run["recipe"]["task"]] for run in arm["runs"])


def test_what_every_start_of_the_gates_gives_is_as_said():
    text = section(*QUOTING["came out"])
    starts = {"mu from U(300, 700), sigma 40": arms_of("table1-adding1000")["glstm"]}
    starts |= {arm["name"]: arm for arm in RESULTS["appB-inits"]["arms"]}
    starts |= {"mu = 500": arms_of("fig3-trainability")["mu-500"]}
    for name, arm in starts.items():
        own = errors(arm)
        row = f"| {name} | {len(own)} | {arm['paper']:.1e} | {mean(own):.1e} | {median(own):.1e} |"
        assert row in text
        assert count(arm) == len(own)
    missed = {name for name, arm in starts.items() if mean(errors(arm)) > arm["paper"]}
    assert missed == {"mu from U(300, 700), sigma 40", "A2: mu from U(0, 400)", "mu = 500"}


def test_who_learns_to_add_sooner_at_each_length_is_as_said():
    text = section(*QUOTING["came out"])
    arms = arms_of("adding-lengths")
    for steps in (100, 250, 500, 1000, 2000):
        cells = []
        for start in ("orthogonal", "xavier", "chrono"):
            half = [learnt(arms[f"{cell}-{steps}-{start}"], adding_lengths.EPOCHS) for cell in ("glstm", "lstm")]
            cells.append(" / ".join("> 300" if one == float("inf") else f"{one:g}" for one in half))
        assert f"| {steps} | {' | '.join(cells)} |" in text
        assert steps < 250 or learnt(arms[f"lstm-{steps}-chrono"]) < learnt(arms[f"glstm-{steps}-chrono"])
    table = arms_of("table1-adding2000")
    assert (count(table["glstm"]), count(table["lstm"])) == (10, 1)
    assert f"half of them by epoch {learnt(table['glstm']):g}; of the LSTM's ten, one does." in text
    assert f"epoch {learnt(table['lstm-best']):g} against epoch {learnt(table['glstm-best']):g}" in text
    low, _, high = welch(errors(table["glstm-best"]), errors(table["lstm-best"]))
    assert low < 0 < high


def test_the_phased_lstm_is_as_said():
    text = section(*QUOTING["came out"])
    usual = errors(arms_of("appC-plstm")["plstm"])
    assert count(arms_of("appC-plstm")["plstm"]) == len(usual) == 3
    assert sum(error > LEARNT["adding"] for error in usual) == 1
    assert f"end higher (median {median(usual):.1e}), one of them above it again" in text
    gated, phased = (arms_of("appC-plstm")[key] for key in ("glstm", "plstm-own-rate"))
    own = sorted(errors(phased))
    assert own[1] < 1e-3 < LEARNT["adding"] < own[2]
    assert f"(median {median(own):.1e}, paper {phased['paper']:.1e})" in text
    assert f"The g-LSTM is at {mean(errors(gated)):.1e} after {gated['at_epoch']} epochs, where the paper has" in text


def test_what_a_charge_costs_is_as_said(figures):
    text = section(*QUOTING["came out"])
    for arm in RESULTS["budget"]["arms"]:
        closed = [next(row for row in run["probes"]["thresholds"] if row["threshold"] == 0.01) for run in arm["runs"]]
        paper = "" if arm["paper"] is None else f" {percent(arm['paper'])}"
        share, exact = (mean(row[name] for row in closed) for name in ("open_share", "cached_ops"))
        assert (
            f"| {arm['name'].removeprefix('lambda = ')} | {len(arm['runs'])} |{paper} | {spread(errors(arm))} "
            f"| {spread([row['error'] for row in closed])} | {100 * share:.1f} % | {exact / 1e6:.3g} M |" in text
        )
    missed = {arm["key"]: 100 * (mean(errors(arm)) - (arm["paper"] or 0)) for arm in RESULTS["budget"]["arms"]}
    assert f"missed by {missed['lambda-0.1']:.2f} and {missed['lambda-1']:.2f} points" in text
    without, charged = (
        mean(errors(arm)) for arm in RESULTS["budget"]["arms"] if arm["key"] in ("lambda-0", "lambda-1")
    )
    assert without >= charged


def chosen(arm: dict) -> dict:
    return arm["search"]["tries"][arm["search"]["chosen"]]


def test_what_validation_chose_is_as_said(smnist):
    text = section(*QUOTING["came out"])
    gated, plain = (chosen(smnist[key]) for key in ("glstm-best", "lstm-best"))
    assert gated["change"] == plain["change"] == {"lr": 1e-3, "forget_bias": 1.0, "data": {"shift": 1}}
    rates = {one["change"]["lr"] for one in smnist["lstm-best"]["search"]["tries"]}
    assert max(rates) == 1e-3  # the largest of the grid
    assert f"{percent(gated['validation'])} for the g-LSTM, {percent(plain['validation'])} for the LSTM" in text
    by_the_paper = chosen(smnist["lstm"])["validation"]
    assert by_the_paper < plain["validation"]
    assert f"was {percent(by_the_paper)}, lower than the {percent(plain['validation'])} of the best" in text
    sceptic = section(*QUOTING["sceptic"])
    for key, name in (("lstm", "LSTM's four by the paper's recipe lie"), ("glstm", "g-LSTM's")):
        tried = [one["validation"] for one in smnist[key]["search"]["tries"]]
        assert f"{name} between {percent(min(tried))} and {percent(max(tried))}" in sceptic


def test_recipes_that_were_chosen_elsewhere_are_the_chosen_ones():
    """Literals that stand for a choice: a search that is run again may choose another."""
    for name, key, literal in (("frontier", "plain-0.1", THRIFTY), ("small", "lstm-16", SMALL_LSTM)):
        (arm,) = (arm for arm in (*RESULTS[name]["arms"], *RESULTS[name]["missing"]) if arm["key"] == key)
        (own,) = (arm for arm in EXPERIMENTS[name].arms if arm.key == key)
        assert own.recipe.changed(**chosen(arm)["change"]) == literal
    plain = chosen(arms_of("table1-smnist")["lstm"])["change"]
    assert plain["clip"] == app_d_optim.CLIP
    adding = arms_of("table1-adding1000")
    starts = {(cell, chosen(adding[cell])["change"]["init"]) for cell in ("glstm", "lstm")}
    assert starts == adding_lengths.CHOSEN_THERE


CELLS = {"glstm": "g-LSTM", "lstm": "LSTM", "gru": "GRU"}


def test_few_operations_are_as_said():
    text = section(*QUOTING["came out"])
    rows = []
    for arm in (arm for name in ("frontier", "small", "thrifty") for arm in RESULTS[name]["arms"]):
        recipe, own = arm["runs"][0]["recipe"], errors(arm)
        closed = [row for run in arm["runs"] for row in run["probes"].get("thresholds", ()) if row["threshold"] == 0.01]
        count = mean(row["cached_ops"] for row in closed) if closed else operations(arm)
        limited = arm["most_operations"] is not None  # the frontier's are named after their limits
        who = f"{CELLS[recipe['cell']]}, {recipe['units']} units" if limited else arm["name"]
        moved = "images that move" if recipe["data"].get("shift") else "none"
        rows.append(f"| {who} | {moved} | {len(own)} | {spread(own)} | {count / 1e6:.3g} M |")
    assert len(rows) >= 5
    for row in rows:
        assert row in text
    first, second = (arms_of("frontier")[key] for key in ("moved-0.09", "moved-0.25"))
    plain, others = ("small", "table1-smnist"), ("small", "table1-smnist", "thrifty")
    cheapest = cheapest_as_good(first, plain)
    assert cheapest["key"] == cheapest_as_good(second, plain)["key"] == "gru-64"
    words = f"the cheapest whose error is not clearly higher than the first's takes {operations(cheapest) / 1e6:.3g} M"
    assert words in text
    thrifty = cheapest_as_good(first, others)
    assert mean(errors(thrifty)) < mean(errors(first))
    assert round(operations(thrifty) / 76_900) == 11
    assert f"a Phased LSTM with {operations(thrifty) / 1e6:.3g} M, eleven times as many" in text
    pruned = cheapest_as_good(second, others)
    assert (
        f"a pruned LSTM with {operations(pruned) / 1e6:.3g} M, whose error is not clearly higher than the second's"
        in text
    )
    assert (thrifty["key"], pruned["key"]) == ("plstm-110", "pruned-110-90")


def operations(arm: dict) -> float:
    return mean(run["operations"] for run in arm["runs"])


def cheapest_as_good(gated: dict, names: tuple[str, ...]) -> dict:
    """The cheapest other network on sequential MNIST that is not worse by more than chance."""
    arms = [arm for name in names for arm in RESULTS[name]["arms"] if arm["runs"][0]["recipe"]["cell"] != "glstm"]
    return min((arm for arm in arms if welch(errors(arm), errors(gated))[0] <= 0), key=operations)


def test_other_sizes_and_adam_are_as_said():
    text = section(*QUOTING["came out"])
    sizes = arms_of("appD-size")
    for units, words in (("25", "with 25 units"), ("220", "and with 220")):
        gated = sizes[f"glstm-{units}"]
        assert mean(errors(gated)) <= gated["paper"]
        assert f"{words}, {spread(errors(gated))} where it has {percent(gated['paper'])}" in text
    half = {key: f"epoch {learnt(arm):g}" for key, arm in sizes.items()}
    assert f"by {half['glstm-25']} and by {half['glstm-220']}, half of the LSTM's by {half['lstm-25']}" in text
    adam = arms_of("appD-optim")
    counts = [count(adam[f"lstm-adam-{start}"]) for start in ("orthogonal", "xavier")]
    assert counts == [1, 2]
    for start, words in (("orthogonal", "the three end at"), ("xavier", "two from Xavier's, at")):
        ends = [percent(error) for error in errors(adam[f"lstm-adam-{start}"])]
        assert f"{words} {ends[0]}, {ends[1]} and {ends[2]}" in text


def test_what_is_left_without_units_that_never_open_is_as_said():
    text = section(*QUOTING["came out"])
    (arm,) = RESULTS["pruning"]["arms"]
    found = [run["probes"]["pruned"] for run in arm["runs"]]
    average = {name: mean(one[name] for one in found) for name in found[0]}
    closed = average["units"] - average["units_left"]
    assert f"{closed:.0f} of {average['units']:.0f} units never open" in text
    assert f"it has {average['weights_left']:,.0f} of {average['weights']:,.0f} weights, and the same error" in text
    assert [one["error"] for one in found] == errors(arm)


def without_pictures(html: str) -> str:
    """Another version of matplotlib draws other lines."""
    return re.sub("<svg.*?</svg>", "<svg>", html)


def test_the_committed_report_is_that_of_the_committed_results():
    found = load(ROOT / "results", [*EXPERIMENTS])
    written = "run 'glstm report results' again"
    assert (ROOT / "results" / "README.md").read_text() == document(found), written
    assert without_pictures((ROOT / "results" / "report.html").read_text()) == without_pictures(page(found)), written


def test_every_figure_on_the_page_is_one_of_the_json(figures):
    """What the page says in words, and its tables of test errors."""
    text = unescape((ROOT / "results" / "report.html").read_text()).replace("\u00a0", " ")
    shown = text[text.index("</style>") : text.index('<section id="versions">')]
    shown = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", re.sub("<svg.*?</svg>", "", shown)))
    quoted = FIGURE.findall(shown)
    of_the_paper = {"7.50 %", "8.40 %", "41.10 %", "41.80 %", "2.30 %", "3.8e-05", "1.4e-03", "1.3e-03", "1.6e-01"}
    limits = {f"{arm.most_operations / 1e6:g} M" for arm in EXPERIMENTS["frontier"].arms if arm.most_operations}
    assert len(quoted) > 100
    assert set(quoted) - figures - of_the_paper - limits == set()


def test_the_papers_figures_for_what_is_not_repeated_are_those_of_the_experiments():
    from glstm.report.comparisons import PAPER

    for name, quoted in PAPER.items():
        arms = {arm.key: arm for arm in EXPERIMENTS[name].arms}
        forms = [percent if arms[key].recipe.task != "adding" else "{:.1e}".format for key in ("glstm", "lstm")]
        assert quoted == tuple(form(arms[key].paper) for form, key in zip(forms, ("glstm", "lstm"), strict=True))
