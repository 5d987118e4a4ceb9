"""Badges follow from the figures: turn the figures round, and the badge turns."""

from dataclasses import replace
from html import unescape

import pytest

from glstm.errors import UserError
from glstm.experiments import EXPERIMENTS
from glstm.report.claims import claims
from glstm.report.page import page
from glstm.report.results import Result
from glstm.report.tables import document
from glstm.report.words import answer, verdict
from made_up_results import made_up, named, unfinished

NEVER = 10_000
SIX = ["converges", "ends", "adapt", "charge", "curriculum", "given error"]  # a word of each claim


def badges(results: list[Result]) -> list[str]:
    return [claim.badge for claim in claims(results)]


def test_figures_that_bear_the_claims_out():
    found = claims(made_up())
    for claim, word in zip(found, SIX, strict=True):
        assert word in claim.says
    assert [claim.badge for claim in found] == ["holds"] * 6
    sooner, lower, adapts, charge, curriculum, thrift = (claim.sentence for claim in found)
    assert sooner.startswith(
        "By the paper's recipe the g-LSTM learns sooner on 5 of 5 tasks; each network at its best, "
    )
    assert "up to 500 steps and in 6 of 6 beyond" in sooner
    assert "lower by more than chance on 5 of 5 tasks" in lower
    assert "every seed learns to add from 5 of 5 starts of the gates, with mean errors from 1.0e-03" in adapts
    assert "leaves 10.0 % of the updates and 1 M of 79 M operations" in charge
    assert charge.endswith("; 1 of 110 units never open.")
    assert "under 50 % by epoch 10, of the plain LSTM's by epoch 20" in curriculum
    assert thrift.startswith("For 8 of 8 g-LSTMs with narrow gates no LSTM, GRU or other recurrent network")


def test_the_evidence_is_of_one_track_each():
    for claim in claims(made_up()):
        names = [name for name, _ in claim.evidence]
        assert len(names) == len(set(names)) > 0
    sooner = claims(made_up())[0]
    assert sooner.evidence[0][1][3] == ["sequential MNIST", "5 %", "10 of 10 seeds", "10", "10 of 10 seeds", "20"]
    moves = claims(made_up())[2].evidence[0][1][1]
    assert moves[-2:] == ["10", "2"]
    charged = claims(made_up())[3].evidence[0][1][1]
    assert charged[-1] == "1 of 110"  # closed for good


@pytest.mark.parametrize(
    ("gated", "plain", "closed", "expected"),
    [
        (20, 10, 0.03, ["does not hold", "holds", "holds", "holds in part", "does not hold", "holds"]),
        (NEVER, 10, 0.002, ["does not hold", "does not hold", "does not hold", "holds", "does not hold", "holds"]),
        (10, NEVER, 0.002, ["holds"] * 6),
    ],
)
def test_figures_that_do_not(gated, plain, closed, expected):
    assert badges(made_up(gated, plain, closed)) == expected


def test_a_task_that_is_lost_is_named():
    results = made_up()
    for arm in named(results, "table1-scifar").arms:
        if arm.cell == "glstm" and arm.track == "paper":
            for run in arm.runs:
                run.curve["test_error"][:] = [0.6] * (len(run.curve["test_error"]) - 1) + [0.45]
    sooner, lower, *_ = claims(results)
    assert [sooner.badge, lower.badge] == ["holds in part"] * 2
    assert "sooner on 4 of 5 tasks (not on sequential CIFAR-10)" in sooner.sentence
    assert "on 4 of 5 tasks (not on sequential CIFAR-10), and higher on sequential CIFAR-10; each" in lower.sentence


def test_never_is_said_only_where_no_seed_learns():
    results = made_up(10, NEVER)
    arm = named(results, "table1-adding1000").arm("lstm")
    assert arm.learnt_count == "never (10 seeds)"
    arm.runs[3].curve["test_error"][400:] = [1e-5] * 300
    assert arm.learnt_count == "1 of 10 seeds"
    assert arm.learnt_typically == float("inf")
    assert "| adding, 1000 steps" in document(results)
    assert claims(results)[0].evidence[0][1][1][-2:] == ["1 of 10 seeds", "not in 700"]


def test_a_network_that_diverged_is_counted_and_spoils_the_interval():
    results = made_up()
    table = named(results, "table1-smnist")
    arm = table.arm("lstm")
    arm.runs[0].summary.update(diverged=True, curve={"epoch": [], "test_error": [], "mean_k": []}, operations=None)
    assert arm.learnt_count == "9 of 10 seeds"
    assert len(arm.errors) == 9
    assert table.arm("glstm").minus(arm) is None
    assert claims(results)[1].badge == "holds in part"  # without an interval nothing is said to be lower
    assert "| 10, 1 diverged |" in document(results)
    for run in arm.runs:
        run.summary.update(diverged=True, curve={"epoch": [], "test_error": [], "mean_k": []}, operations=None)
    assert "| LSTM | 1.80 % | diverged | 10, 10 diverged |" in document(results)
    assert "10, 10 diverged" in page([table])


def test_equal_errors_are_not_lower():
    results = made_up()
    for result in results:
        for gated, plain in result.twins():
            for one, other in zip(gated.runs, plain.runs, strict=False):
                one.curve["test_error"][-1] = other.curve["test_error"][-1]
    assert claims(results)[1].badge == "does not hold"


@pytest.mark.parametrize("left_out", [*EXPERIMENTS])
def test_any_experiment_may_be_left_out(left_out):
    """Claims that need it are not judged, others as before."""
    results = [result for result in made_up() if result.name != left_out]
    for claim in claims(results):
        assert claim.badge in ("holds", "not judged yet")
        assert (claim.badge == "not judged yet") == claim.sentence.startswith(("So far: ", "No network"))
    assert len(document(results)) > 1000


@pytest.mark.parametrize("kept", [*EXPERIMENTS])
def test_one_experiment_alone_makes_a_report(kept):
    results = [result for result in made_up() if result.name == kept]
    assert "holds" in badges(results) if kept == "curriculum" else set(badges(results)) == {"not judged yet"}
    assert f'id="{kept}"' in page(results)
    assert 2 <= len(answer(results)) <= 3


def test_an_arm_beside_the_claims_may_be_missing():
    results = [unfinished(result, "lstm-longer") for result in made_up()]
    assert badges(results) == ["holds"] * 6


def test_names_are_only_shown():
    """Claims find networks by their keys: other names change no badge."""
    results = made_up()
    renamed = [
        replace(result, arms=[replace(arm, name=f"g-LSTM, {number}") for number, arm in enumerate(result.arms)])
        for result in results
    ]
    assert [claim.sentence for claim in claims(renamed)] == [claim.sentence for claim in claims(results)]


def test_an_arm_that_is_not_there_is_named():
    with pytest.raises(UserError, match=r"table1-adding1000 has no arm with the key 'plstm', only glstm, lstm, "):
        named(made_up(), "table1-adding1000").arm("plstm")


def test_claims_stand_in_the_table_and_on_the_page():
    results = made_up()
    shown = unescape(page(results)).replace("\u00a0", " ")
    for claim in claims(results):
        assert claim.sentence in document(results)
        assert claim.sentence in shown
    assert shown.count('class="badge holds"') == 6


def test_the_first_words_count_the_papers_claims():
    assert verdict(made_up()) == "Yes. Of the paper's 5 claims, 5 hold."
    slow = made_up(gated_learns_at=30, plain_learns_at=20)
    assert verdict(slow) == "In part. Of the paper's 5 claims, 3 hold and 2 do not hold."
    assert verdict(slow) in document(slow)
    assert verdict(slow) in unescape(page(slow))
    some = [result for result in made_up() if result.name != "budget"]
    assert verdict(some) == "Not fully known yet. Of the paper's 5 claims, 4 hold and 1 is not judged yet."
    assert verdict([]) == "Not known yet. Of the paper's 5 claims, 5 are not judged yet."
