"""Tables, and what stands below them: seeds that do not learn, choices at the edge of a grid, what is not finished."""

from dataclasses import replace
from html import unescape

import pytest

from glstm.report import figures
from glstm.report.claims import claims
from glstm.report.page import page
from glstm.report.results import TRACKS, Missing, Search, Try
from glstm.report.tables import document
from glstm.report.tables import figures as figures_table
from glstm.report.words import at_an_edge, chosen, five_rows, not_all_learn, not_yet, notes, said, unequal_epochs
from made_up_results import made_up, named


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


def test_a_table_says_where_one_network_was_trained_for_longer():
    results = made_up()
    assert unequal_epochs(results, "paper") == unequal_epochs(results, "best") == ""
    cifar = named(results, "table1-scifar")
    plain, gated = cifar.arm("lstm"), cifar.arm("glstm")
    for run in plain.runs:
        run.recipe["epochs"] *= 2
        for column in run.curve.values():
            column += column
    said = unequal_epochs(results, "paper")
    assert said == (
        "Training lengths differ: validation chose on sequential CIFAR-10 "
        f"{gated.epochs} epochs for the g-LSTM and {2 * gated.epochs} for the LSTM."
    )
    assert said in document(results)


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


def test_what_is_not_finished_is_named_with_its_experiment():
    results = made_up()
    assert "Not finished yet" not in document(results)
    one, *others = results
    waiting = [Missing(key=key, name=key, track="given", search=None) for key in ("Zoneout", "IndRNN, 6 layers")]
    text = document([replace(one, missing=waiting), *others])
    assert f"Not finished yet in '{one.title}': Zoneout; IndRNN, 6 layers." in text


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.05, "0.05"), ((1.0, 20.0), "1 to 20"), ((1, 2, 4), "1, 2, 4"), ([2**n for n in range(8)], "1, 2, 4 ... 128"),
     ("clockwork", "clockwork")],
)  # fmt: skip
def test_values_of_gates_in_words(value, words):
    assert said({"gate": {"period": value}}) == f"period {words}"
