"""docs/experiments.md says which networks were not trained on the H200; the JSON files say where each was."""

from test_quoted_figures import RESULTS, section

TEXT = section("docs/experiments.md", "**Machines.**", "## A sceptical reviewer asks")
MOST = "NVIDIA H200"
SAID = {
    "LSTMs of 4, 8 and 16 units": ["small lstm-4", "small lstm-8", "small lstm-16"],
    "GRUs of 4, 8, 16 and 32 units": ["small gru-4", "small gru-8", "small gru-16", "small gru-32"],
    "the pruned LSTM of 16 units": ["thrifty pruned-16-90"],
    "the frontier's point of 0.1 M operations": ["frontier plain-0.1", "frontier plain-0.25", "pruning thrifty"],
    "the two networks of Fig. 1": ["fig1-cells glstm", "fig1-cells lstm"],
    "those without recurrence": ["no-recurrence ff-50", "no-recurrence ff-100"],
    "those with weight drop": [
        "weight-drop plain-0.1",
        "weight-drop plain-0.25",
        "weight-drop plain-6",
        "weight-drop moved-0.25",
        "weight-drop moved-0.09",
        "weight-drop clockwork-32",
    ],
}


def test_networks_of_other_machines_are_named():
    elsewhere = {
        f"{name} {arm['key']}"
        for name, result in RESULTS.items()
        for arm in (*result["arms"], *result["missing"])
        for run in arm.get("runs", ())
        if any(part["machine"]["device"] != MOST for part in run["trained"])
    }
    assert elsewhere == {arm for arms in SAID.values() for arm in arms}
    for words in SAID:
        assert words in TEXT
