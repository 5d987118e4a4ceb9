"""A series with real timestamps and gaps: the weekly carbon dioxide of Mauna Loa, 1958 to 2001, with its missing weeks.

    python benchmarks/co2.py CO2_CSV --store FOLDER

CO2_CSV is the file co2.csv that the package statsmodels brings along. A sequence is a year, its time the day of the
year, its input the rise since the first week of the year. The target of each step is the rise eight weeks later; it is
missing where nobody measured then. Every network gets the day as an input, too. The best learning rate is chosen by the
mean validation error of five seeds, and the test years are used once. Writes benchmarks/co2.json.
"""

import argparse
import csv
import datetime
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from glstm.bench.machine import describe
from glstm.data import Task

RESULT = Path(__file__).parent / "co2.json"
AHEAD = 56  # days
NEAR = 3  # days: a measurement so close to the day counts as of that day
SEEDS = 5
RATES = ("0.001", "0.003", "0.01")
NETWORKS = {"g-LSTM": "glstm", "LSTM": "lstm"}
OPTIONS = ["--id", "year", "--time", "day", "--target", "later", "--input", "rise", "--input", "day", "--as-they-are"]
SETTINGS = ["--units", "32", "--epochs", "400", "--patience", "60", "--batch", "8", "--seeds", str(SEEDS)]


def write_table(source: Path, path: Path) -> None:
    """One row for each week that was measured."""
    with source.open() as file:
        rows = [
            (datetime.datetime.strptime(row["date"], "%Y%m%d").date(), row["co2"].strip())
            for row in csv.DictReader(file)
        ]
    measured = {date: float(value) for date, value in rows if value}
    years: dict[int, list[datetime.date]] = defaultdict(list)
    for date in measured:
        years[date.year].append(date)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["year", "day", "rise", "later"])
        for year, dates in years.items():
            start = measured[dates[0]]
            for date in dates:
                later = _at(measured, date + datetime.timedelta(days=AHEAD))
                day = (date - datetime.date(year, 1, 1)).days + 1
                target = "" if later is None else round(later - start, 2)
                writer.writerow([year, day, round(measured[date] - start, 2), target])


def _at(measured: dict[datetime.date, float], day: datetime.date) -> float | None:
    for distance in range(NEAR + 1):
        for sign in (1, -1):
            if (found := measured.get(day + datetime.timedelta(days=sign * distance))) is not None:
                return found
    return None


def baselines(table: Path) -> dict[str, float]:
    """Mean absolute test errors of guesses without a network, each year counting the same."""
    task = Task.from_file(table, id="year", time="day", target="later", inputs=("rise", "day"), from_start=False)
    changes: dict[int, list[float]] = defaultdict(list)
    for x, y in zip(task.sequences["train"].x, task.sequences["train"].y or [], strict=True):
        for (rise, day), (later,) in zip(x, y, strict=True):
            if later == later:
                changes[int(day) // 14].append(later - rise)
    usual = {fortnight: statistics.mean(found) for fortnight, found in changes.items()}
    errors: dict[str, list[float]] = {"the same as now": [], "now, and the usual change of the season": []}
    for x, y in zip(task.sequences["test"].x, task.sequences["test"].y or [], strict=True):
        known = [(rise, day, later) for (rise, day), (later,) in zip(x, y, strict=True) if later == later]
        errors["the same as now"].append(statistics.mean(abs(later - rise) for rise, _, later in known))
        errors["now, and the usual change of the season"].append(
            statistics.mean(abs(later - rise - usual.get(int(day) // 14, 0.0)) for rise, day, later in known)
        )
    return {name: statistics.mean(found) for name, found in errors.items()}


def train(table: Path, store: Path, network: str, rate: str) -> list[dict]:
    out = store / network / rate
    if not out.exists():
        command = [
            "train",
            str(table),
            *OPTIONS,
            *SETTINGS,
            "--cell",
            NETWORKS[network],
            "--lr",
            rate,
            "--out",
            str(out),
        ]
        subprocess.run([sys.executable, "-m", "glstm", *command], check=True, capture_output=True)
    return [json.loads(path.read_text()) for path in sorted(out.glob("*/result.json"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--store", type=Path, required=True)
    given = parser.parse_args()
    given.store.mkdir(parents=True, exist_ok=True)
    table = given.store / "co2.csv"
    write_table(given.source, table)
    rows = {}
    for network in NETWORKS:
        found = {rate: train(table, given.store, network, rate) for rate in RATES}
        validation = {rate: statistics.mean(one["validation_error"] for one in runs) for rate, runs in found.items()}
        rate = min(validation, key=lambda one: validation[one])
        errors = [one["test_error"] for one in found[rate]]
        rows[network] = {
            "rate": rate,
            "validation_error": validation,
            "test_error": statistics.mean(errors),
            "deviation": statistics.stdev(errors),
            "open_share": found[rate][0]["open_share"],
            "mean_k": found[rate][0]["mean_k"],
        }
        print(network, json.dumps(rows[network]), flush=True)
    guesses = baselines(table)
    print(guesses)
    protocol = {"options": OPTIONS, "settings": SETTINGS, "rates": RATES, "metric": "mean absolute error, ppm"}
    RESULT.write_text(
        json.dumps({**describe(), "protocol": protocol, "networks": rows, "guesses": guesses}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
