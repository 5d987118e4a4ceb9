"""What documents say of the network without recurrence, and README's table of those that take few operations, computed
again from the JSON."""

from statistics import mean

from test_choosing_figures import closed
from test_quoted_figures import RESULTS, errors, percent, section, spread

ARMS = {arm["key"]: arm for arm in RESULTS["no-recurrence"]["arms"]}
TEXT = section("docs/experiments.md", "**Why not a network without recurrence?**", "**Are the other thrifty")


def millions(arm: dict) -> str:
    return f"{mean(run['operations'] for run in arm['runs']) / 1e6:.3g} M"


def test_every_size_is_in_the_answer():
    assert ARMS
    for arm in ARMS.values():
        units = arm["runs"][0]["recipe"]["units"]
        assert len(arm["runs"]) == 3
        assert arm["runs"][0]["recipe"]["data"] == {"shift": 1}
        assert f"{units} units are at {spread(errors(arm))} with {millions(arm)}" in TEXT
        tries = arm["search"]["tries"]
        assert len(tries) == 4
        assert tries[arm["search"]["chosen"]]["change"]["lr"] == 2e-3
        still = min(one["validation"] for one in tries if not one["change"].get("data"))
        assert f"{units} units {percent(still)}" in TEXT


def test_the_g_lstms_beside_them():
    for arm in RESULTS["frontier"]["arms"]:
        if arm["key"].startswith("moved"):
            assert f"{spread(errors(arm))} with {closed(arm, 'cached_ops') / 1e6:.3g} M" in TEXT


def found(name: str, key: str) -> dict:
    return next(arm for arm in RESULTS[name]["arms"] if arm["key"] == key)


def test_readmes_table_has_each_network_that_takes_few_operations():
    gated = {
        "220 units, weight drop": found("weight-drop", "moved-0.25"),
        "the same, with a larger charge": found("weight-drop", "moved-0.09"),
        "narrow gates, 220 units": found("frontier", "moved-0.25"),
        "narrow gates, 110 units": found("frontier", "moved-0.09"),
    }
    others = {
        "Phased LSTM, 110 units": found("thrifty", "plstm-110"),
        "Clockwork LSTM, 32 units": found("thrifty", "clockwork-32"),
        "pruned LSTM, 110 units, 10 % of the weights": found("thrifty", "pruned-110-90"),
        "Clockwork LSTM, 110 units": found("thrifty", "clockwork-110"),
        "GRU, 64 units": found("small", "gru-64"),
        "LSTM, 64 units": found("small", "lstm-64"),
    }
    apart = {f"{arm['runs'][0]['recipe']['units']} units, weights for each pixel": arm for arm in ARMS.values()}
    rows = {name: f"{closed(arm, 'cached_ops') / 1e6:.3g} M" for name, arm in gated.items()}
    rows |= {name: millions(arm) for name, arm in (others | apart).items()}
    text = section("README.md", "Sequential MNIST, training images", "## Where to go on")
    assert text.count(" M | ") == len(rows)
    for name, arm in (gated | others | apart).items():
        assert {run["recipe"]["data"].get("shift") for run in arm["runs"]} == {1}
        assert f"{name} | {spread(errors(arm))} | {rows[name]} | {len(arm['runs'])} |" in text
