"""Data that other people published: from a file to a trained, chosen, tested and deployed network, by commands alone.

    python benchmarks/own_data.py train --series FOLDER --store FOLDER [--device cuda] [--parallel 4] [SET ...]
    python benchmarks/own_data.py table --series FOLDER --store FOLDER

FOLDER holds NAME_TRAIN.ts and NAME_TEST.ts of every set, as the packages sktime and aeon bring them along. `train`
calls `glstm train` for every set, network, reading and learning rate, and goes on with what was begun. `table` takes,
for every network, the reading and the learning rate with the lowest mean validation error of its seeds. It writes
benchmarks/own_data.json: test figures of these runs alone, operations, and the time of one sequence on this machine.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from glstm.bench.machine import describe
from glstm.data import Batch, Task
from glstm.gated import GatedLSTM
from glstm.runtime import deploy
from glstm.runtime.threshold import largest_threshold
from glstm.training.evaluate import evaluating, mean_cost, predict_deployed, predict_with, sums_of, threshold_at
from glstm.training.run import RunFolder

RESULT = Path(__file__).parent / "own_data.json"
STEPS = {"PLAID": 1344, "ACSF1": 1460, "PickupGestureWiimoteZ": 361, "BasicMotions": 100, "JapaneseVowels": 29}
SEEDS = 5
# Of each network the same choices: equal effort.
CHOICES = [f"{reads}-{rate}" for reads in ("last", "mean") for rate in ("0.001", "0.003", "0.01")]
COMMON = ("--seeds", str(SEEDS), "--epochs", "300", "--patience", "60")
NETWORKS = {
    "g-LSTM": ("--cell", "glstm"),
    "g-LSTM, budget 0.3": ("--cell", "glstm", "--budget", "0.3"),
    "LSTM": ("--cell", "lstm"),
    "LSTM, chrono": ("--cell", "lstm", "--chrono", "{steps}"),
    "GRU": ("--cell", "gru"),
}
ALLOWED = 0.01  # more validation loss, as a share, for a larger threshold
GRU_SHARE = 3 / 4  # of an LSTM's operations: three gates where it has four


def folder_of(store: Path, name: str, network: str, choice: str) -> Path:
    return store / name / network.replace(" ", "").replace(",", "-") / choice


def train(series: Path, store: Path, sets: list[str], device: str, parallel: int) -> None:
    jobs = [(name, network, choice) for name in sets for network in NETWORKS for choice in CHOICES]

    def run(job: tuple[str, str, str]) -> None:
        name, network, choice = job
        reads, rate = choice.split("-")
        out = folder_of(store, *job)
        options = [option.format(steps=STEPS[name]) for option in NETWORKS[network]]
        files = [str(series / f"{name}_TRAIN.ts"), "--test", str(series / f"{name}_TEST.ts")]
        command = [
            "train",
            *files,
            *options,
            *COMMON,
            "--reads",
            reads,
            "--lr",
            rate,
            "--device",
            device,
            "--out",
            str(out),
        ]
        if (out / "seed0").exists():
            command = ["train", "--resume", str(out), "--device", device]
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "glstm", *command], capture_output=True, text=True)
        words = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()[-1:]
        print(f"{time.monotonic() - began:6.1f} s  {name}, {network}, {choice}: {' '.join(words)}", flush=True)

    with ThreadPoolExecutor(parallel) as pool:
        list(pool.map(run, jobs))


def table(series: Path, store: Path, sets: list[str]) -> None:
    found = {}
    for name in sets:
        task = Task.from_file(series / f"{name}_TRAIN.ts", test=series / f"{name}_TEST.ts")
        rows = {network: chosen(store, task, name, network) for network in NETWORKS}
        found[name] = {"data": task.summary(), "networks": rows}
        for network, row in rows.items():
            print(name, network, json.dumps(row), flush=True)
    protocol = {
        "seeds": SEEDS, "choices": CHOICES, "settings": COMMON, "networks": NETWORKS,
        "chosen": "reading and learning rate by the mean validation error of the seeds, then the loss; epoch likewise",
        "threshold": f"the largest at which the validation loss is at most {ALLOWED:.0%} larger",
    }  # fmt: skip
    RESULT.write_text(json.dumps({**describe(), "protocol": protocol, "sets": found}, indent=2) + "\n")


def chosen(store: Path, task: Task, name: str, network: str) -> dict:
    validation = {}
    for choice in CHOICES:
        folder = folder_of(store, name, network, choice)
        results = [json.loads(path.read_text()) for path in sorted(folder.glob("*/result.json"))]
        if len(results) != SEEDS:
            raise SystemExit(f"{folder} has {len(results)} finished runs, not {SEEDS}: train again")
        validation[choice] = [
            statistics.mean(one[key] for one in results) for key in ("validation_error", "validation_loss")
        ]
    choice = min(validation, key=lambda one: validation[one])  # of equal errors, the smaller loss
    runs = sorted(folder_of(store, name, network, choice).glob("seed*"))
    results = [json.loads((run / "result.json").read_text()) for run in runs]
    accuracies = [1 - one["test_error"] for one in results]
    row = {
        "choice": choice,
        "validation": validation,
        "accuracy": statistics.mean(accuracies),
        "deviation": statistics.stdev(accuracies),
        "best_epochs": [one["epoch"] for one in results],
        "open_share": results[0]["open_share"],
    }
    costs = [in_use(RunFolder(run).load_model(), task) for run in runs]
    return row | {key: statistics.mean(one[key] for one in costs) for key in costs[0]}


def in_use(model: torch.nn.Module, task: Task) -> dict[str, float]:
    """What the network costs when it is used, one sequence at a time, and how right it is then."""
    sequences = [one(task, number) for number in range(task.test_size)]
    if not isinstance(model.layer, GatedLSTM):
        with evaluating(model), torch.no_grad():
            taken = timed(lambda x: model(x), sequences)
        hidden, inputs = model.layer.hidden_size, model.layer.input_size
        steps = statistics.mean(len(x) for x in sequences)
        ops = GRU_SHARE * steps * hidden * (8 * inputs + 8 * hidden + 29)
        return {
            "milliseconds": taken,
            "operations": ops,
            "threshold": 0.0,
            "accuracy_in_use": accuracy(predict_with(model), model, task),
        }
    batches = [Batch(*batch) for batch in task.held_out(task.validation_size, 500)[0]]

    def loss_at(threshold: float) -> float:
        with torch.no_grad(), evaluating(model), threshold_at(model.layer, threshold):
            return sum(float(task.losses(predict_with(model)(batch), batch.y).sum()) for batch in batches)

    gated = bool(model.layer.gate.names)
    # Not by the error: of ten validation sequences, none may change its class while the network gets worse.
    threshold = largest_threshold(loss_at, ALLOWED * loss_at(0.0)) if gated else 0.0
    runtime = deploy(model, task.schedule(), threshold)
    with threshold_at(model.layer, threshold):
        cost = mean_cost(model.layer, task)
    return {
        "milliseconds": timed(runtime, sequences),
        "operations": cost.cached_ops if gated else cost.lstm_ops,
        "threshold": threshold,
        "open_in_use": cost.open_share,
        "accuracy_in_use": accuracy(predict_deployed(runtime), model, task),
    }


def accuracy(predict, model: torch.nn.Module, task: Task) -> float:
    with evaluating(model):
        return 1 - float(sums_of(predict, task)[1]) / task.test_size


def one(task: Task, number: int) -> torch.Tensor:
    """x (T, 1, D) of a test sequence, without padding."""
    return Batch(*task.test_samples(slice(number, number + 1))).x.contiguous()


def timed(call, sequences: list[torch.Tensor], runs: int = 3) -> float:
    """Milliseconds a sequence: the best of some rounds over all sequences."""
    found = []
    for _ in range(runs):
        began = time.perf_counter()
        for x in sequences:
            call(x)
        found.append(time.perf_counter() - began)
    return 1000 * min(found) / len(sequences)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("train", "table"))
    parser.add_argument("sets", nargs="*", default=list(STEPS))
    parser.add_argument("--series", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--parallel", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.stage == "train":
        train(given.series, given.store, given.sets, given.device, given.parallel)
    else:
        table(given.series, given.store, given.sets)
