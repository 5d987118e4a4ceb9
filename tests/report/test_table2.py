"""Table 2: the paper's figures beside ours, whether or not a network is trained here."""

from glstm.experiments import EXPERIMENTS
from glstm.report.published import ERRORS
from glstm.report.table2 import COLUMNS, KEYS, NOT_RUN, table2_rows
from made_up_results import made_up


def by_name(results) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in table2_rows({result.name: result for result in results})[1:]}


def test_every_network_of_the_table_is_there_with_ours_beside_it():
    found = by_name(made_up())
    assert found["r-LSTM"][:4] == [
        "1.60 %", "0.51 ± 0.01 % (3 seeds, 120 epochs)", "4.80 %", "1.21 ± 0.01 % (3 seeds, 120 epochs)",
    ]  # fmt: skip
    assert found["IndRNN, 6 layers"][1].endswith("(3 seeds, 40 epochs)")
    assert found["LSTM"][5].endswith("(10 seeds, 50 epochs)")
    assert found["BN-LSTM"] == ["1.00 %", NOT_RUN, "4.60 %", NOT_RUN, "", ""]
    assert found["Skip LSTM"] == ["2.70 %", NOT_RUN, "", "", "", ""]


def test_what_is_missing_is_said():
    found = by_name([result for result in made_up() if not result.name.startswith("table2")])
    assert found["Zoneout"] == ["1.30 %", NOT_RUN, "6.90 %", NOT_RUN, "", ""]
    assert found["g-LSTM"][3] == NOT_RUN
    assert by_name([])["LSTM"] == ["1.80 %", NOT_RUN, "8.40 %", NOT_RUN, "41.80 %", NOT_RUN]


def test_the_experiments_have_the_figures_of_the_table():
    for place, names in enumerate(COLUMNS.values()):
        arms = {arm.key: arm.paper for name in names if name for arm in EXPERIMENTS[name].arms}
        for name, key in KEYS.items():
            if key in arms:
                assert arms[key] == ERRORS[name][place], (name, place)
