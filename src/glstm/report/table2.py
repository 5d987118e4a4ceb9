"""Table 2 of the paper: each network's figure there beside ours, as far as it was trained here."""

from glstm.report.comparisons import Results
from glstm.report.published import ERRORS
from glstm.report.results import Rows, percent

TITLE = "Table 2: rivals by their own papers' recipes, in fewer epochs; g-LSTM and LSTM as in Table 1"
# The experiments with a task's g-LSTM and LSTM, and with its rivals.
COLUMNS = {
    "sequential MNIST": ("table1-smnist", "table2-rivals-smnist"),
    "permuted MNIST": ("table2-pmnist", "table2-rivals-pmnist"),
    "sequential CIFAR-10": ("table1-scifar", ""),
}
KEYS = {
    "g-LSTM": "glstm", "LSTM": "lstm", "r-LSTM": "r-lstm", "Zoneout": "zoneout", "IndRNN, 6 layers": "indrnn",
}  # fmt: skip
NOT_RUN = "not run"


def table2_rows(results: Results) -> Rows:
    rows: Rows = [["", *(f"{task}{whose}" for task in COLUMNS for whose in (": Table 2", ": ours"))]]
    for name, errors in ERRORS.items():
        row = [name]
        for error, experiments in zip(errors, COLUMNS.values(), strict=True):
            ours = _ours(results, experiments, KEYS.get(name, ""))
            row += ["" if error is None else percent(error), ours or (NOT_RUN if error is not None else "")]
        rows.append(row)
    return rows


def _ours(results: Results, experiments: tuple[str, ...], key: str) -> str:
    """Its mean and spread, and how long it was trained; empty: it is not finished."""
    for result in (results[name] for name in experiments if name in results):
        if (arm := result.find(key)) and arm.errors:
            return f"{result.spread(arm.errors)} ({len(arm.finished)} seeds, {arm.epochs} epochs)"
    return ""
