"""What documents say of weight drop, computed again from the JSON."""

from statistics import mean

from test_choosing_figures import closed
from test_quoted_figures import RESULTS, errors, percent, section, spread

CAME_OUT = section("docs/experiments.md", "- **Weight drop", "- **A charge prunes")
ARMS = {arm["key"]: arm for arm in (*RESULTS["weight-drop"]["arms"], *RESULTS["weight-drop"]["missing"])}


def operations(key: str) -> str:
    return f"{closed(ARMS[key], 'cached_ops') / 1e6:.3g} M"


def validation(key: str, **wanted: float) -> str:
    """The error of the try with these changes."""
    return percent(tried(key, **wanted)["validation"])


def tried(key: str, **wanted: float) -> dict:
    tries = ARMS[key]["search"]["tries"]
    (found,) = (one for one in tries if all(one["change"].get(name) == value for name, value in wanted.items()))
    return found


def chosen(key: str) -> dict:
    return ARMS[key]["search"]["tries"][ARMS[key]["search"]["chosen"]]["change"]


def test_what_was_tested():
    assert chosen("plain-0.25") == chosen("plain-6")
    for key, charge in (("plain-0.1", 10), ("plain-0.25", 3)):
        assert chosen(key)["weight_drop"] == 0.3
        assert chosen(key)["budget"] == charge
        assert len(ARMS[key]["runs"]) == 3
        assert f"{spread(errors(ARMS[key]))} with {operations(key)}" in CAME_OUT


def test_the_frontiers_networks_have_as_many_operations_or_more_and_higher_errors():
    frontier = {arm["key"]: arm for arm in RESULTS["frontier"]["arms"]}
    for ours, theirs in (("plain-0.1", "plain-0.1"), ("plain-6", "plain-6")):
        assert closed(ARMS[ours], "cached_ops") <= closed(frontier[theirs], "cached_ops")
        assert max(errors(ARMS[ours])) < min(errors(frontier[theirs]))
    assert f"{spread(errors(frontier['plain-0.1']))} and {spread(errors(frontier['plain-6']))}" in CAME_OUT


def test_that_a_rate_alone_does_not_help():
    of_the_frontier = {
        name for one in RESULTS["frontier"]["arms"] for t in one["search"]["tries"] for name in t["networks"]
    }
    for charge in (1.0, 3.0, 10.0):
        before, rate, both = (
            tried("plain-6", budget=charge, lr=lr, weight_drop=share)
            for lr, share in ((1e-3, 0.0), (2e-3, 0.0), (2e-3, 0.3))
        )
        assert set(before["networks"]) <= of_the_frontier
        assert not set(rate["networks"] + both["networks"]) & of_the_frontier
        cells = [f"{percent(one['validation'])}, {one['operations'] / 1e6:.3g} M" for one in (before, rate, both)]
        assert f"| {charge:g} | {' | '.join(cells)} |" in CAME_OUT


def test_small_networks_have_the_recipe_that_was_chosen_with_images_as_they_are():
    for key in ("plstm-32", "clockwork-32"):
        (arm,) = (one for one in RESULTS["thrifty"]["arms"] if one["key"] == key)
        plain = [one for one in arm["search"]["tries"] if not one["change"].get("data")]
        best = min(plain, key=lambda one: one["validation"])
        assert tried(key, weight_drop=0.0)["networks"] == best["networks"]


def test_that_it_does_not_help_small_networks():
    for key, name in (("plstm-32", "a Phased LSTM"), ("clockwork-32", "a Clockwork LSTM")):
        assert chosen(key)["weight_drop"] == 0.0
        without, some, much = (validation(key, weight_drop=share) for share in (0.0, 0.1, 0.3))
        assert (
            f"{spread(errors(ARMS[key]))} with {mean(run['operations'] for run in ARMS[key]['runs']) / 1e6:.3g} M"
            in CAME_OUT
        )
        assert f"{name} of 32 units {without} without, {some} and {much} with shares of 0.1 and 0.3" in CAME_OUT


def test_where_images_move():
    frontier = {arm["key"]: arm for arm in RESULTS["frontier"]["arms"]}
    for key, charge, share in (("moved-0.25", 3, 0.3), ("moved-0.09", 15, 0.1)):
        assert (chosen(key)["budget"], chosen(key)["weight_drop"], chosen(key)["lr"]) == (charge, share, 2e-3)
        assert len(ARMS[key]["runs"]) == 10
        assert closed(ARMS[key], "cached_ops") < ARMS[key]["most_operations"]
        assert f"{spread(errors(ARMS[key]))} with {operations(key)}" in CAME_OUT
        assert max(errors(ARMS[key])) < mean(errors(frontier[key]))
    both = (spread(errors(frontier[key])) for key in ("moved-0.25", "moved-0.09"))
    assert f"The frontier's, without it, are at {' and at '.join(both)}" in CAME_OUT


def test_what_was_tried_where_images_move():
    for charge in (3.0, 5.0, 10.0, 15.0):
        pairs = ((1e-3, 0.0), (2e-3, 0.1), (2e-3, 0.3))
        tries = [
            tried("moved-0.09", budget=charge, units=220, lr=lr, weight_drop=share)
            for lr, share in pairs[charge > 10 :]
        ]
        cells = [f"{percent(one['validation'])}, {one['operations'] / 1e6:.3g} M" for one in tries]
        assert f"| {charge:g} | {' | '.join([''] * (charge > 10) + cells)} |".replace("|  |", "| |") in CAME_OUT
    nine = [one for one in ARMS["moved-0.09"]["search"]["tries"] if one["change"]["budget"] <= 10][:9]
    assert min(one["operations"] for one in nine) > 0.09e6


def test_readme_has_the_same():
    text = section("README.md", "## Does the paper's result hold?", "## Where to go on")
    assert f"{spread(errors(ARMS['plain-0.25']))} with {operations('plain-0.25')}, three seeds" in text
    for key in ("moved-0.09", "moved-0.25"):
        assert f"{spread(errors(ARMS[key]))} with {operations(key)}" in text
    choosing = section("docs/choosing.md", "- **weight drop**", "- **threshold**")
    rate, both = (validation("plain-6", budget=3.0, lr=2e-3, weight_drop=share) for share in (0.0, 0.3))
    assert f"from {rate} to {both}" in choosing
