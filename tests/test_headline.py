"""The table 'In figures' of README.md: each row is computed again, from the JSON of results and benchmarks alone."""

import json
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from glstm.bench.markdown import cells_of, milliseconds
from glstm.experiments import EXPERIMENTS
from test_quoted_figures import cheapest_as_good, errors, operations, spread

ROOT = Path(__file__).parents[1]
SAME = "the same"  # command as in the row before
V_T = 0.01
NUMBERS = {3: "three", 5: "five", 10: "ten"}


class Row(NamedTuple):
    what: str
    ours: str
    peer: str
    rests_on: list[str]  # what the fourth cell must say, among other words
    command: str


def figures(name: str) -> dict:
    return json.loads((ROOT / name).read_text())


def error_rows() -> list[Row]:
    arms = {arm["key"]: arm for arm in figures("results/table1-smnist.json")["arms"]}
    found = []
    for what, gated, plain, command in (
        ("test error, each network at its best", "glstm-best", "lstm-best", "`glstm reproduce table1-smnist`"),
        ("test error by the paper's recipe", "glstm", "lstm", SAME),
    ):
        ours, peer = (errors(arms[key]) for key in (gated, plain))
        assert len(ours) == len(peer)
        moved = arms[gated]["runs"][0]["recipe"]["data"] == {"shift": 1}
        rests_on = [f"{NUMBERS[len(ours)]} seeds", "training images move by a pixel" if moved else "no augmentation"]
        found.append(Row(what, spread(ours), f"LSTM {spread(peer)}", rests_on, command))
    return found


def operations_row() -> Row:
    """The fewest operations of the frontier's networks, beside the cheapest other networks that are as good: of all
    that were tested, and of LSTMs and GRUs with all their weights."""
    tested = [(arm, closed(arm)) for arm in figures("results/frontier.json")["arms"]]
    arm, rows = min(tested, key=lambda one: mean(row["cached_ops"] for row in one[1]))
    ours = [row["error"] for row in rows]
    plain = ("small", "table1-smnist")
    peers = (cheapest_as_good(arm, (*plain, "thrifty")), cheapest_as_good(arm, plain))
    recipe = arm["runs"][0]["recipe"]
    rests_on = [
        f"{NUMBERS[len(rows)]} seeds", f"lambda = {recipe['budget']:g}", augmentation(recipe), "exact count",
        *(f"{peer['runs'][0]['recipe']['units']} units" for peer in peers), "three seeds each",
    ]  # fmt: skip
    assert {len(peer["runs"]) for peer in peers} == {3}
    count = mean(row["cached_ops"] for row in rows) / 1e6
    return Row(
        "operations of a sequence",
        f"{count:.3g} M, at {spread(ours)}",
        "; ".join(
            f"{peer['name'].partition(',')[0]} {operations(peer) / 1e6:.3g} M, at {spread(errors(peer))}"
            for peer in peers
        ),
        rests_on,
        "`glstm reproduce frontier thrifty small`",
    )


def closed(arm: dict) -> list[dict]:
    """What was measured with units at k <= V_T closed, of each seed."""
    return [row for run in arm["runs"] for row in run["probes"]["thresholds"] if row["threshold"] == V_T]


def augmentation(recipe: dict) -> str:
    return "training images move by a pixel" if recipe.get("data") == {"shift": 1} else "no augmentation"


def times(ratio: float) -> str:
    return f"{ratio:.0f} times" if ratio >= 10 else f"{ratio:.1f} times"


def cpu_rows() -> list[Row]:
    found = figures("benchmarks/cpu.json")
    cases = {one["name"]: one for one in found["results"]}
    step = "training, B = 100, 8.2 % open"
    with_outputs = times(cases[f"{step}, all outputs"]["ratios"]["nn.LSTM"])
    rows = (
        (step, "training step on a CPU", ["batch 100", "8.2 % open", f"with all outputs {with_outputs}"]),
        ("training, B = 100, fully open", "the same, all units open", ["nothing to skip"]),
        ("inference, B = 1, 8.2 % open", "one sequence on a CPU", ["8.2 % open"]),
    )
    made = []
    for number, (name, what, rests_on) in enumerate(rows):
        seconds = {who: timing["seconds"] for who, timing in cases[name]["timings"].items()}
        peer = min(("nn.LSTM", "ONNX Runtime"), key=lambda who: seconds.get(who, float("inf")))
        ratio = times(cases[name]["ratios"][peer])
        in_words = f"{'`nn.LSTM`' if peer == 'nn.LSTM' else peer} {milliseconds(seconds[peer])}: {ratio}"
        machine = [found["machine"].replace("2 cores", "two cores")] if number == 0 else []
        command = SAME if number else "`glstm bench cpu`"
        made.append(Row(what, milliseconds(seconds["glstm"]), in_words, [*rests_on, *machine], command))
    return made


def gpu_row() -> Row:
    found = figures("benchmarks/gpu.json")
    (case,) = (one for one in found["results"] if one["name"] == "H = 110, B = 128, T = 784, D = 1, 'high'")
    assert case["open_share"] == 1
    ours, peer = (milliseconds(case["seconds"][who]) for who in ("GLSTM", "cuDNN nn.LSTM"))
    in_words = f"cuDNN's LSTM {peer}: {times(case['ratios']['cuDNN nn.LSTM'])}"
    rests_on = ["batch 128", "all units open", "all outputs", "TF32", found["device"]]
    return Row("training step on a GPU", ours, in_words, rests_on, "`glstm bench gpu`")


def board_row() -> Row:
    found = figures("benchmarks/cortex-m4.json")
    ours, peer = found["this, all int8"], found["LSTM, all int8"]

    def in_words(one: dict) -> str:
        return f"{one['instructions'] / 1e6:.3g} M instructions, {one['flash'] / 1e3:.0f} kB"

    fewer = times(peer["instructions"] / ours["instructions"])
    rests_on = [f"{100 * found['openness']:.1f} % open", "int8 weights and states", "emulated"]
    return Row(
        "a sequence on a Cortex-M4",
        in_words(ours),
        f"LSTM {in_words(peer)}: {fewer}",
        rests_on,
        "`glstm bench cortex-m4 RUN`",
    )


def shown() -> list[list[str]]:
    section = (ROOT / "README.md").read_text().split("\n## In figures\n")[1].split("\n## ")[0]
    rows = [line.replace("**", "") for line in section.splitlines() if line.startswith("|")][2:]
    return [cells_of(row) for row in rows]


def test_each_row_has_the_figures_that_were_measured():
    expected = [*error_rows(), operations_row(), *cpu_rows(), gpu_row(), board_row()]
    assert [cells[:3] for cells in shown()] == [[row.what, row.ours, row.peer] for row in expected]
    for cells, row in zip(shown(), expected, strict=True):
        assert cells[4] == row.command
        for words in row.rests_on:
            assert words in cells[3], row.what


def test_what_it_says_to_reproduce_is_an_experiment():
    named = [name for cells in shown() if "reproduce" in cells[4] for name in cells[4].strip("`").split()[2:]]
    assert named
    assert set(named) <= set(EXPERIMENTS)


def test_what_is_said_below_the_table():
    text = " ".join((ROOT / "README.md").read_text().split())
    gru, clocks = (
        next(arm for arm in figures(f"results/{name}.json")["arms"] if arm["key"] == key)
        for name, key in (("small", "gru-110"), ("thrifty", "clockwork-110"))
    )
    words = f"a GRU of 110 units is at {spread(errors(gru))} and a Clockwork LSTM of 110 at {spread(errors(clocks))}"
    assert words in text
    (half,) = (arm for arm in figures("results/small.json")["arms"] if arm["key"] == "lstm-64")
    assert half["runs"][0]["recipe"]["lr"] == 2e-3
    assert f"an LSTM of 64 units is at {spread(errors(half))}" in text
    for key in ("glstm-best", "lstm-best"):
        (arm,) = (one for one in figures("results/table1-smnist.json")["arms"] if one["key"] == key)
        assert max(one["change"]["lr"] for one in arm["search"]["tries"]) == 1e-3
    cases = {one["name"]: one["timings"] for one in figures("benchmarks/cpu.json")["results"]}
    same = [timings["nn.LSTM"]["seconds"] for name, timings in cases.items() if name.startswith("training, B = 100")]
    assert f"between {1e3 * min(same):.0f} and {1e3 * max(same):.0f} ms for the same work" in text
    first = cases["training, B = 100, 8.2 % open"]["glstm"]["seconds"]
    assert f"with {1e3 * min(same):.0f} ms the first ratio of a CPU is {min(same) / first:.0f}" in text
