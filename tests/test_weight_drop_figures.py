"""What documents say of weight drop, computed again from the JSON."""

from statistics import mean

from test_quoted_figures import RESULTS, errors, percent, section, spread

CAME_OUT = section("docs/experiments.md", "- **Weight drop", "- **A charge prunes")
ARMS = {arm["key"]: arm for arm in (*RESULTS["weight-drop"]["arms"], *RESULTS["weight-drop"]["missing"])}


def operations(key: str) -> str:
    rows = [row for run in ARMS[key]["runs"] for row in run["probes"]["thresholds"] if row["threshold"] == 0.01]
    return f"{mean(row['cached_ops'] for row in rows) / 1e6:.3g} M"


def validation(key: str, **wanted: float) -> str:
    """The error of the try with these changes."""
    (found,) = (
        one["validation"]
        for one in ARMS[key]["search"]["tries"]
        if all(one["change"].get(name) == value for name, value in wanted.items())
    )
    return percent(found)


def chosen(key: str) -> dict:
    return ARMS[key]["search"]["tries"][ARMS[key]["search"]["chosen"]]["change"]


def test_what_was_tested():
    assert chosen("plain-0.25") == chosen("plain-6")
    for key, charge in (("plain-0.1", 10), ("plain-0.25", 3)):
        assert chosen(key)["weight_drop"] == 0.3
        assert chosen(key)["budget"] == charge
        assert len(ARMS[key]["runs"]) == 3
        assert f"{spread(errors(ARMS[key]))} with {operations(key)}" in CAME_OUT


def test_that_it_is_not_the_rate():
    for charge in (1.0, 3.0, 10.0):
        before, rate, both = (
            validation("plain-6", budget=charge, lr=lr, weight_drop=share)
            for lr, share in ((1e-3, 0.0), (2e-3, 0.0), (2e-3, 0.3))
        )
        assert f"| {charge:g} | {before} | {rate} | {both} |" in CAME_OUT


def test_that_it_does_not_help_small_networks():
    for key, name in (("plstm-32", "a Phased LSTM"), ("clockwork-32", "a Clockwork LSTM")):
        assert chosen(key)["weight_drop"] == 0.0
        without, some, much = (validation(key, weight_drop=share) for share in (0.0, 0.1, 0.3))
        assert f"{name} of 32 units {without} without, {some} and {much} with shares of 0.1 and 0.3" in CAME_OUT


def test_readme_has_the_same():
    text = section("README.md", "## Does the paper's result hold?", "## Where to go on")
    assert f"{percent(mean(errors(ARMS['plain-0.25'])))} with {operations('plain-0.25')}" in text
    choosing = section("docs/choosing.md", "- **weight drop**", "- **threshold**")
    rate, both = (validation("plain-6", budget=3.0, lr=2e-3, weight_drop=share) for share in (0.0, 0.3))
    assert f"from {rate} to {both}" in choosing
