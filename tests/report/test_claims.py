"""Verdicts follow from the figures: turn the figures round, and the verdict turns."""

from dataclasses import replace
from html import unescape

import pytest

from glstm.errors import UserError
from glstm.experiments import EXPERIMENTS
from glstm.recipes import Recipe
from glstm.report import figures
from glstm.report.claims import LEARNT, claims
from glstm.report.frontier import operating_points
from glstm.report.page import page
from glstm.report.results import Arm, Result, Run
from glstm.report.tables import document

NEVER = 10_000
MACHINE = {"device": "a device", "commit": "0123456789abcdef", "software": {"torch": "2"}}
GAUSSIAN = {"before": {"mu": [1.0], "sigma": [1.0]}, "after": {"mu": [11.0], "sigma": [4.0]}}
PHASED = {when: {"tau": [9.0], "s": [1.0], "r": [0.1]} for when in ("before", "after")}


def made_up(gated_learns_at: int, plain_learns_at: int, closed_error: float) -> list[Result]:
    """Every experiment, its networks learning their task at the epoch given; budgets end at `closed_error`."""
    results = []
    for one in EXPERIMENTS.values():
        arms = []
        for arm in one.arms:
            times = gated_learns_at, plain_learns_at, closed_error
            runs = [Run(network(recipe, arm.probes, one.thresholds, *times)) for recipe in arm.recipes()]
            arms.append(Arm(arm.key, arm.name, arm.twin, arm.paper, arm.at_epoch, arm.at_threshold, runs))
        results.append(Result(one.name, one.title, one.question, False, arms, []))
    return results


def network(recipe: Recipe, probes, thresholds, gated_learns_at, plain_learns_at, closed_error) -> dict:
    gated = recipe.cell != "lstm"
    level, learnt = LEARNT[recipe.task], gated_learns_at if gated else plain_learns_at
    end = (0.1 if gated else 0.2) * level
    epochs = list(range(1, recipe.epochs + 1))
    open_share = 0.1 if recipe.budget else 0.4
    error = closed_error if recipe.budget else 0.02
    closed = {"error": error, "open_share": open_share, "paper_ops": 8e6, "cached_ops": 1e6, "lstm_ops": 79e6}
    found = {
        "gates": PHASED if recipe.cell == "plstm" else GAUSSIAN,
        "thresholds": [{"threshold": v_t, **closed} for v_t in thresholds],
        "gradient flow": [2.0 if gated else 1.0] * 784,
        "as an LSTM": {"error": end},
    }
    return {
        "recipe": recipe.as_dict(),
        "steps": 784,
        "metric": "error",
        "as_percent": recipe.task != "adding",
        "curve": {
            "epoch": epochs,
            "test_error": [2 * level if epoch < learnt else end for epoch in epochs],
            "mean_k": [open_share for _ in epochs],
        },
        "probes": {name: found[name] for name in probes},
        "trained": [{"machine": MACHINE, "epochs": recipe.epochs, "seconds": 1.0}],
    }


def test_figures_that_bear_the_claims_out():
    found = claims(made_up(10, 80, closed_error=0.022))
    assert [claim.verdict.split(":")[0] for claim in found] == ["Holds"] * 4
    first, second, third, fourth = (claim.verdict for claim in found)
    assert "8.0 times fewer" in first
    assert "2 times (after epoch 1) and 2 times (after epoch 11)" in first
    assert "learnt from 5 of 5 starts, which end at mean squared errors from 1.0e-03 to 1.0e-03" in second
    assert "starts differ by a factor of 1, no more than seeds of one start" in second
    assert "10.0 % of the updates are left at an error of 2.20 %" in third
    assert "at an error of 50.00 % after 10 epochs, the plain LSTM after 80" in fourth
    moved = found[1].evidence[1]
    assert moved[-2:] == ["10", "3"]


@pytest.mark.parametrize(
    ("gated", "plain", "closed", "verdicts"),
    [
        (80, 10, 0.03, ["Does not hold", "Holds", "Does not hold", "Does not hold"]),
        (NEVER, 10, 0.02, ["Does not hold", "Does not hold", "Holds", "Does not hold"]),
        (10, NEVER, 0.02, ["Holds", "Holds", "Holds", "Holds"]),
    ],
)
def test_figures_that_do_not(gated, plain, closed, verdicts):
    found = claims(made_up(gated, plain, closed))
    assert [claim.verdict.split(":")[0] for claim in found] == verdicts


def test_a_curriculum_that_does_not_make_a_better_lstm_holds_in_part():
    results = made_up(10, 80, closed_error=0.022)
    taught = next(result for result in results if result.name == "curriculum").arm("curriculum")
    for run in taught.runs:
        run.summary["probes"]["as an LSTM"]["error"] = 0.45
    assert claims(results)[3].verdict.startswith("Holds in part: behind its narrow gates")


def test_an_lstm_that_needs_another_recipe_to_be_first_is_named():
    results = made_up(10, 80, closed_error=0.022)
    assert "the first to learn is an LSTM's in none." in claims(results)[0].verdict
    adding = next(result for result in results if result.name == "table1-adding2000")
    for run in adding.arm("lstm-chrono").runs:  # no g-LSTM is its twin
        run.curve["test_error"][4:] = [1e-5] * (len(run.curve["test_error"]) - 4)
    found = claims(results)[0]
    assert found.verdict.startswith("Holds:")
    assert "the first to learn is an LSTM's in table1-adding2000." in found.verdict
    row = next(row for row in found.evidence if row[0] == "table1-adding2000, the soonest of each")
    assert row[2:4] == ["10", "5"]
    assert row[-1] == "1.0e-05"


def test_names_are_only_shown():
    """Claims find networks by their keys: other names change no figure and no verdict."""
    results = made_up(10, 80, closed_error=0.022)
    renamed = [
        replace(result, arms=[replace(arm, name=f"g-LSTM, {number}") for number, arm in enumerate(result.arms)])
        for result in results
    ]
    for before, after in zip(claims(results), claims(renamed), strict=True):
        assert after.verdict == before.verdict
        assert [row[1:] for row in after.evidence] == [row[1:] for row in before.evidence]


def test_an_arm_that_is_not_there_is_named():
    result = made_up(10, 80, closed_error=0.022)[0]
    with pytest.raises(UserError, match=r"table1-adding1000 has no arm with the key 'plstm', only glstm, lstm, "):
        result.arm("plstm")


def test_many_recipes_are_points_in_one_figure():
    frontier = next(result for result in made_up(10, 80, closed_error=0.022) if result.name == "frontier")
    ((caption, html),) = figures.of(frontier)
    assert "each point a recipe" in caption
    assert html.count("<use") == len(frontier.arms) + 2  # and the paper's, and the best of all, here one
    assert "images that move" in html


def test_the_cheapest_network_at_each_error_is_found():
    frontier = next(result for result in made_up(10, 80, closed_error=0.022) if result.name == "frontier")
    head, *rows = operating_points(frontier)
    assert [row[1] for row in rows] == ["none that good"] * 3 + ["1.000 M"] * 2
    cheap, cheaper = frontier.arms[3], frontier.arms[-1]
    for arm, threshold, error, operations in ((cheap, 0.01, 0.0225, 5e5), (cheaper, 0.1, 0.0235, 2e5)):
        for run in arm.runs:
            run.at_threshold(threshold).update(error=error, cached_ops=operations)
    head, *rows = operating_points(frontier)
    found = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert found["2.30 %"]["operations"] == "0.500 M"
    assert found["2.30 %"]["of an LSTM's of its size"] == "1 / 158"
    assert found["2.30 %"]["recipe"] == cheap.name
    assert [row[4] for row in rows if row[0] == "3.00 %"] == ["3", "1"]  # one seed is shown beside three, if cheaper
    assert found["3.00 %"]["error"] == "2.35 %"
    assert found["3.00 %"]["v_T"] == "0.1"
    for text in (document([frontier]), page([frontier])):
        assert "0.500 M" in text
        assert "0.200 M" in text


def test_the_gradient_of_the_first_steps_is_in_the_table():
    flow = next(result for result in made_up(10, 80, closed_error=0.022) if result.name == "gradflow")
    flow.arms[1].runs[0].summary["probes"]["gradient flow"][:100] = [1e-7] * 100
    text = document([flow])
    assert "| Gamma, first 100 steps |" in text
    assert "| LSTM, after epoch 1 | 10.00 % ± 0.00 % | 3 | 10.00 % | 1 | 0.400 | 1.0e-07 to 1.0e+00 |" in text


def test_claims_stand_in_the_table_and_on_the_page():
    results = made_up(10, 80, closed_error=0.022)
    for text in (document(results), page(results)):
        assert all(claim.verdict in unescape(text) for claim in claims(results))


def test_a_claim_without_its_experiments_is_left_out():
    results = [result for result in made_up(10, 80, 0.02) if result.name in ("curriculum", "budget")]
    assert [claim.says.split()[1] for claim in claims(results)] == ["temporal"]
