"""Badges follow from the figures: turn the figures round, and the badge turns."""

from dataclasses import replace
from html import unescape

import pytest

from glstm.errors import UserError
from glstm.experiments import EXPERIMENTS
from glstm.recipes import Recipe
from glstm.report import figures
from glstm.report.claims import claims
from glstm.report.frontier import cheapest, is_beaten, points, searched, unbeaten
from glstm.report.frontier_figure import frontier_chart
from glstm.report.page import page
from glstm.report.results import LEARNT, TRACKS, Arm, Missing, Result, Run, Search, Try
from glstm.report.tables import document
from glstm.report.tables import figures as figures_table
from glstm.report.words import answer, at_an_edge, chosen, five_rows, not_all_learn, not_yet, notes

NEVER = 10_000
MACHINE = {"device": "a device", "commit": "0123456789abcdef", "software": {"torch": "2"}}
GAUSSIAN = {
    "before": {"mu": [1.0, 50.0], "sigma": [1.0, 1.0]},
    "after": {"mu": [11.0, 60.4], "sigma": [4.0, 0.01]},  # the second is at k < 0.01 at every step
}
PHASED = {when: {"tau": [9.0], "s": [1.0], "r": [0.1]} for when in ("before", "after")}
SIX = ["converges", "ends", "adapt", "charge", "curriculum", "given error"]  # a word of each claim


def made_up(gated_learns_at: int = 10, plain_learns_at: int = 20, closed_error: float = 0.002) -> list[Result]:
    """Every experiment, its networks learning their task at the epoch given; budgets end at `closed_error`."""
    results = []
    for one in EXPERIMENTS.values():
        arms = []
        for arm in one.arms:
            times = gated_learns_at, plain_learns_at, closed_error
            recipes = arm.recipes(arm.tries[0] if arm.tries else None)
            runs = [
                Run(network(recipe, arm.probes, one.thresholds, number, *times))
                for number, recipe in enumerate(recipes)
            ]
            search = Search([Try(change, False, 0.02, 1e6) for change in arm.tries], 0) if arm.tries else None
            figures_of = arm.paper, arm.at_epoch, arm.at_threshold
            arms.append(Arm(arm.key, arm.name, arm.twin, *figures_of, runs, arm.track, search, arm.most_operations))
        metric = ("mse", False) if one.arms[0].recipe.task == "adding" else ("error", True)
        results.append(Result(one.name, one.title, one.question, False, arms, [], *metric))
    return results


def network(recipe: Recipe, probes, thresholds, number, gated_learns_at, plain_learns_at, closed_error) -> dict:
    gated = recipe.cell != "lstm"
    level, learnt = LEARNT[recipe.task], gated_learns_at if gated else plain_learns_at
    end = (0.1 if gated else 0.2) * level * (1 + 0.01 * number)
    epochs = list(range(1, recipe.epochs + 1))
    open_share = 0.1 if recipe.budget else 0.4
    closed = {"error": closed_error, "open_share": open_share, "paper_ops": 8e6, "cached_ops": 1e6, "lstm_ops": 79e6}
    found = {
        "gates": PHASED if recipe.cell == "plstm" else GAUSSIAN,
        "thresholds": [{"threshold": v_t, **closed} for v_t in thresholds],
        "gradient flow": [2.0 if gated else 1.0] * 784,
        "as an LSTM": {"error": end},
        "one sequence": {"x": [0.0, 1.0], "units": [{"unit": 0, "k": [0.0, 1.0], "c": [0.0, 0.5], "h": [0.0, 0.1]}]},
        "pruned": {"units": 110, "units_left": 90, "weights": 1000, "weights_left": 700, "error": closed_error},
    }
    return {
        "recipe": recipe.as_dict(),
        "steps": recipe.data.get("steps", 784),
        "metric": "error",
        "as_percent": recipe.task != "adding",
        "diverged": False,
        "operations": 79e6 * recipe.units / 110,
        "curve": {
            "epoch": epochs,
            "test_error": [2 * level if epoch < learnt else end for epoch in epochs],
            "mean_k": [open_share for _ in epochs],
        },
        "probes": {name: found[name] for name in probes},
        "trained": [{"machine": MACHINE, "epochs": recipe.epochs, "seconds": 1.0}],
    }


def named(results: list[Result], name: str) -> Result:
    return next(result for result in results if result.name == name)


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
    assert thrift.startswith("8 of 8 g-LSTMs with units closed are beaten by no LSTM")


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


def unfinished(result: Result, *keys: str) -> Result:
    """These arms have only searches, of which the last of the tries is not trained."""
    gone = []
    for arm in result.arms:
        if arm.key in keys and arm.search:
            *first, last = arm.search.tries
            tries = [*first, replace(last, validation=None, operations=None)]
            gone.append(Missing(arm.key, arm.name, arm.track, Search(tries, None)))
    return replace(result, arms=[arm for arm in result.arms if arm.key not in keys], missing=gone)


def test_searches_alone_are_shown_as_what_they_are():
    results = [
        unfinished(result, *(arm.key for arm in result.arms)) if result.name in ("frontier", "small") else result
        for result in made_up()
    ]
    claim = claims(results)[-1]
    assert claim.badge == "not judged yet"
    assert "the searches (validation error, one seed) have" in claim.sentence
    chart = frontier_chart({result.name: result for result in results})
    assert any(curve.hollow and curve.name.endswith(": validation, one seed") for curve in chart.curves)
    assert "of 8 tries are trained" in document(results)
    assert "not trained yet" in page([named(results, "small")])


def test_seeds_that_are_finished_are_shown_though_others_are_not():
    whole = named(made_up(), "table1-adding1000")
    arm = whole.arm("glstm")
    part = Missing(arm.key, arm.name, arm.track, arm.search, seeds=10, runs=arm.runs[:8])
    result = replace(whole, arms=[one for one in whole.arms if one is not arm], missing=[part])
    assert "g-LSTM (8 of 10 seeds are, at 1.0e-03 ± " in not_yet(result, "paper")
    first, *_ = five_rows([result], "paper")[1:]
    assert first[3].startswith("1.0e-03 ± ")
    assert first[3].endswith(" (8 of 10 seeds)")
    assert not first[4].endswith("seeds)")  # the LSTM is finished
    assert [*five_rows([result], "best")[1]][3:5] == [*five_rows([whole], "best")[1]][3:5]


def test_a_choice_at_the_edge_of_a_grid_or_worse_than_the_papers_is_noted():
    table = named(made_up(), "table1-smnist")
    assert notes(table, "best") == notes(table, "paper") == []
    own = table.arm("lstm-best")
    *rest, last = own.search.tries
    better = replace(own, search=Search([*rest, replace(last, validation=0.021)], len(rest)))
    changed = replace(table, arms=[better if arm is own else arm for arm in table.arms])
    assert notes(changed, "best") == [
        "LSTM: the rate chosen is the largest of the grid, so a larger one may be better.",
        "LSTM: in the searches its validation error was lower by the paper's recipe (2.00 %) than in this grid "
        "(2.10 %).",
    ]
    assert notes(changed, "paper") == []
    assert all(line in document([changed]) for line in notes(changed, "best"))
    cifar = named(made_up(), "table1-scifar")
    own = cifar.arm("lstm")
    longest = max(range(len(own.search.tries)), key=lambda number: own.search.tries[number].change["epochs"])
    longer = replace(own, search=replace(own.search, chosen=longest))
    changed = replace(cifar, arms=[longer if arm is own else arm for arm in cifar.arms])
    (line,) = notes(changed, "paper")
    assert line == "LSTM: the number of epochs chosen is the largest of the grid, so a larger one may be better."


def test_searches_of_different_length_are_not_compared_and_each_says_its_own():
    table = named(made_up(), "table1-smnist")
    paper, own = (replace(table.arm(key), search=None) for key in ("lstm", "lstm-best"))
    worse, better = (Search([Try({"lr": 1e-3}, False, error, 1e6)], 0, 120) for error in (0.03, 0.02))
    arms = [replace(paper, search=better), replace(own, search=worse)]
    assert "lower by the paper's recipe (2.00 %)" in notes(replace(table, arms=arms), "best")[0]
    arms[1] = replace(own, search=replace(worse, epochs=40))
    assert notes(replace(table, arms=arms), "best") == []
    adding = replace(own, search=replace(worse, epochs=150, steps=1000))
    assert chosen(replace(table, arms=[adding]), "best") == [
        "LSTM: rate 0.001 (validation error 3.00 % after 150 epochs of 1000 steps, of 1 tries)."
    ]


def test_the_edge_of_a_grid_is_said_below_the_table():
    results = made_up()
    assert at_an_edge(results, "best") == at_an_edge(results, "paper") == ""
    for name in ("table1-smnist", "table2-pmnist"):
        table = named(results, name)
        for key in ("glstm-best", "lstm-best"):
            own = table.arm(key)
            changed = replace(own, search=replace(own.search, chosen=len(own.search.tries) - 1))
            table.arms[table.arms.index(own)] = changed
    said = at_an_edge(results, "best")
    assert said == (
        "The largest value that was tried was chosen, so a larger one may be better: the rate of both networks on "
        "sequential MNIST, permuted MNIST."
    )
    assert said in document(results)
    assert at_an_edge(results, "paper") == ""
    cifar = named(results, "table1-scifar")
    own = cifar.arm("lstm-best")
    last = replace(own, search=replace(own.search, chosen=len(own.search.tries) - 1))
    cifar.arms[cifar.arms.index(own)] = last
    assert at_an_edge(results, "best").endswith("; the rate of the LSTM on sequential CIFAR-10.")


def test_a_table_says_where_not_every_seed_learns():
    results = made_up()
    assert not_all_learn(results, "paper") == not_all_learn(results, "best") == ""
    plain = named(results, "table1-scifar").arm("lstm")
    for run in plain.runs[:7]:
        run.curve["test_error"][:] = [0.6] * len(run.curve["test_error"])
    said = not_all_learn(results, "paper")
    assert said == (
        "Not every seed learns its task: on sequential CIFAR-10 only 3 of the LSTM's 10 seeds reached 50 % in "
        f"{plain.epochs} epochs (median at the end: 60.00 %). Networks that have not settled do not say where they "
        "would end."
    )
    assert said in document(results)
    assert said in unescape(page(results)).replace("\u00a0", " ")
    assert not_all_learn(results, "best") == ""


def test_an_arm_beside_the_claims_may_be_missing():
    results = [unfinished(result, "lstm-longer") for result in made_up()]
    assert badges(results) == ["holds"] * 6


def test_an_lstm_that_is_as_cheap_and_as_good_beats_a_g_lstm():
    results = made_up()
    found = {result.name: result for result in results}
    tested = points(found)
    assert {point.arm.cell for point in tested} == {"glstm", "lstm"}
    assert len({(point.arm.recipes, point.arm.at_threshold) for point in tested}) == len(tested)
    small = named(results, "small").arm("lstm-4")
    for run in small.runs:
        run.summary["operations"] = 5e5
        run.curve["test_error"][-1] = 0.001
    assert claims(results)[-1].badge == "does not hold"
    thrifty = next(point for point in points(found) if point.arm.most_operations)
    assert is_beaten(thrifty, [point for point in points(found) if point.arm is small])
    assert not searched(found)  # searches are shown only of points that are not tested


def test_the_frontier_shows_seeds_means_and_the_paper():
    results = made_up()
    chart = frontier_chart({result.name: result for result in results})
    names = [curve.name for curve in chart.curves]
    assert "g-LSTM, images as they are" in names
    assert "LSTM, images as they are" in names
    assert names[-1] == "the paper, 2.30 %"
    assert [*chart.curves[-1].x, *chart.curves[-1].y] == [0.92, 0.023]  # by the same count as all others
    seeds = next(curve for curve in chart.curves if not curve.name and not curve.line)
    assert len(seeds.x) >= 10
    lines = [curve for curve in chart.curves if curve.line]
    assert lines
    for line in lines:  # the more operations, the lower the error
        assert list(line.x) == sorted(line.x)
        assert list(line.y) == sorted(line.y, reverse=True)


def test_the_first_screen_has_the_points_whose_limits_were_set_beforehand():
    results = made_up()
    for run in named(results, "frontier").arm("moved-0.25").runs:  # another network than that of the lower limit
        run.summary["recipe"]["units"] = 220
        for row in run.summary["probes"]["thresholds"]:
            row |= {"error": 0.001, "cached_ops": 2e6}
    *_, cheaper = answer(results)
    assert cheaper == (
        "Cheaper? By the paper's recipe a charge for openness leaves 1 M of 79 M operations, and the error is 0.20 % "
        "instead of 0.52 %. Trained for few operations, with units closed, g-LSTMs are at 0.20 % with 1 M and at "
        "0.10 % with 2 M operations a sequence, with training images shifted at random by a pixel; of LSTMs with 4, 8, "
        "16, 32, 64, 110 units, to reach 0.20 %, none is good enough, and to reach 0.10 %, none is good enough."
    )
    for run in named(results, "small").arm("lstm-64").runs:
        run.curve["test_error"][-1] = 0.0015
    *_, cheaper = answer(results)
    assert cheaper.endswith("0.20 %, one needs 46 M (64 units, 0.15 %), and to reach 0.10 %, none is good enough.")
    plain = [arm for arm in named(results, "frontier").arms if not arm.moved]
    results = [replace(one, arms=plain) if one.name == "frontier" else one for one in results]
    *_, cheaper = answer([unfinished(one, "lstm-4", "lstm-8") if one.name == "small" else one for one in results])
    assert "a sequence, without augmentation; of" in cheaper
    assert cheaper.endswith(". LSTMs of 4 units, 8 units are not tested yet.")
    *_, cheaper = answer([one for one in results if one.name not in ("frontier", "small")])
    assert "g-LSTMs are at 0.20 % with 1 M operations a sequence, " in cheaper
    assert cheaper.endswith(". LSTMs of fewer units are not tested yet.")


def test_an_lstm_that_is_not_worse_by_more_than_chance_is_as_good():
    results = made_up()
    small = named(results, "small").arm("lstm-16")
    found = {result.name: result for result in results}
    wanted = next(point for point in points(found) if point.arm.most_operations)

    def rival(*ends: float) -> object:
        for run, end in zip(small.runs, ends, strict=True):
            run.curve["test_error"][-1] = end
        return cheapest([point for point in points(found) if point.arm is small], wanted)

    assert rival(0.001, 0.001, 0.001) is not None  # lower
    assert rival(0.003, 0.0031, 0.0032) is None
    assert rival(0.001, 0.003, 0.005) is not None  # higher in the mean, but by chance


def test_of_equal_points_one_is_shown_as_unbeaten():
    every = points({result.name: result for result in made_up()})
    best = unbeaten([*every, *every])
    assert len({id(point) for point in best}) == len(best)
    assert len(best) == len({point.error for point in best}) == len({point.operations for point in best})
    for point in every:
        assert point in best or is_beaten(point, best)


def test_tracks_are_tables_of_their_own():
    results = made_up()
    for track in ("paper", "best"):
        rows = five_rows(results, track)[1:]
        assert len(rows) == 5
        gated = five_rows(results, track)[0].index("g-LSTM")
        assert all(row[gated].count("±") == 1 for row in rows)
    assert five_rows([], "paper")[3] == ["sequential MNIST", "1.30 %", "1.80 %", *["not repeated yet"] * 2, "", ""]
    assert five_rows(results, "paper")[3][1:3] == ["1.30 %", "1.80 %"]  # as the experiments have it
    # The paper's figures are of its own recipe, and stand beside no other.
    evidence = dict(claims(results)[1].evidence)
    assert ["paper: g-LSTM" in evidence[TRACKS[track]][0] for track in ("paper", "best")] == [True, False]
    rows = [figures_table(named(results, "table1-smnist"), track) for track in ("paper", "best")]
    assert ["paper" in table[0] for table in rows] == [True, False]
    assert five_rows(results, "best")[0] == ["", "g-LSTM", "LSTM", "seeds", "difference, 95 % interval"]
    assert five_rows([], "best")[3] == ["sequential MNIST", *["not repeated yet"] * 2, "", ""]


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


def test_the_gradient_of_the_first_steps_is_in_the_table():
    flow = named(made_up(), "gradflow")
    flow.arms[1].runs[0].summary["probes"]["gradient flow"][:100] = [1e-7] * 100
    text = document([flow])
    assert "| Gamma, first 100 steps |" in text
    row = next(line for line in text.splitlines() if line.startswith("| LSTM, after epoch 1 |"))
    assert row.endswith("| 1.0e-07 to 1.0e+00 |")


def test_what_is_left_without_units_that_never_open_is_in_the_table():
    text = document([named(made_up(), "pruning")])
    assert "| units that ever open | weights without the others | error without them |" in text
    assert "| 90 of 110 | 700 of 1,000 | 0.20 ± 0.00 % |" in text


def test_what_units_hold_is_drawn_below_the_sequence():
    cells = named(made_up(), "fig1-cells")
    assert figures.keys(cells)[0] == "cells"
    caption, html = figures.of(cells)[0]
    assert "pixel by pixel" in caption
    assert html.count("unit 1") == 2  # one of each network


def test_many_lengths_are_one_figure():
    lengths = named(made_up(), "adding-lengths")
    assert figures.keys(lengths) == ["lengths"]
    caption, html = figures.of(lengths)[0]
    assert "half of the seeds" in caption
    assert "g-LSTM, xavier" in html


def test_the_earlier_protocol_is_named_while_something_is_missing():
    results = made_up()
    assert "results/earlier/" not in document(results)
    assert "results/earlier/" in document([result for result in results if result.name != "table1-adding1000"])


def test_claims_stand_in_the_table_and_on_the_page():
    results = made_up()
    shown = unescape(page(results)).replace("\u00a0", " ")
    for claim in claims(results):
        assert claim.sentence in document(results)
        assert claim.sentence in shown
    assert shown.count('class="badge holds"') == 6
