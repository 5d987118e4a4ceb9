"""Commands that are killed (SIGKILL) at their calls that change the disk, and resumed: nothing may be lost.

Each command is run in a fork of this process, where everything is imported already. The n-th call that makes, renames,
removes or syncs a file ends it, before the call. Then what is there must be of one moment, the command that goes on
must end at the same bits as one that was never stopped, and no other files may be left.

`python tests/crash.py` tries every call of every case, and random kills one after the other; tests/test_crash.py some.
"""

import argparse
import csv
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from glstm import plots
from glstm.cli.main import main
from glstm.experiments import EXPERIMENTS
from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.runner import wanted as wanted  # imported before the first fork
from glstm.pretrained import read_json, read_tensors
from glstm.recipes import Recipe
from glstm.training import loop
from glstm.training.run import RunFolder

CHANGING = ("fsync", "link", "mkdir", "rename", "replace", "rmdir", "symlink", "unlink")
TINY = ["--steps", "6", "--units", "3", "--train-size", "8", "--test-size", "4", "--batch", "4", "--epochs", "2",
        "--device", "cpu"]  # fmt: skip
RECIPE = Recipe("adding", data={"steps": 6, "train_size": 8, "test_size": 4}, units=3, batch=4, epochs=2,
                gate={"mu": (1.0, 6.0), "sigma": 2.0}, gate_lr=0.1)  # fmt: skip
TIMES = ("seconds", "test_seconds", "written", "trained", "together")  # what may differ from run to run


@dataclass(frozen=True)
class Case:
    """A command that starts something in a folder, and the one that goes on with it."""

    start: Callable[[Path], list[str]]
    go_on: Callable[[Path], list[str]]


def _train(*options: str) -> Case:
    return Case(
        lambda folder: ["train", "adding", *TINY, *options, "--out", str(folder / "run")],
        lambda folder: ["train", "--resume", str(folder / "run")],
    )


def _reproduce(name: str, seeds: int) -> Case:
    EXPERIMENTS[name] = Experiment(name, name, name, (Arm("g-lstm", "g-LSTM", RECIPE, seeds=tuple(range(seeds))),))

    def command(folder: Path) -> list[str]:
        return ["reproduce", name, "--device", "cpu", "--store", str(folder / "store"), "--out", str(folder / "out")]

    return Case(command, command)


CASES = {
    "train": _train(),
    "train --seeds 2": _train("--seeds", "2"),
    "reproduce one": _reproduce("crash-one", 1),
    "reproduce two": _reproduce("crash-two", 2),
}


EVERY_RENAME = ("train", "reproduce two")  # a rename makes a save the current one


def forked(arguments: list[str], kill_at: int = 0) -> tuple[int, list[str]]:
    """Run a command in a fork, and kill it before its n-th call; returns how it ended, and the names of its calls."""
    reads, writes = os.pipe()
    if not (process := os.fork()):
        try:
            silence = os.open(os.devnull, os.O_RDWR)
            errors = os.open(os.environ.get("CRASH_LOG", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(silence, 1)
            os.dup2(errors, 2)
            _count_calls(writes, kill_at)
            sys.argv = ["glstm", *arguments]
            main()
            os._exit(0)
        except SystemExit as ended:
            os._exit(ended.code if isinstance(ended.code, int) else 1)
        except BaseException:
            traceback.print_exc()
            os._exit(99)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        calls = pipe.read().split()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), calls


def _count_calls(report: int, kill_at: int) -> None:
    counted = 0

    def wrapped(name: str, call: Callable) -> Callable:
        def one(*arguments: Any, **named: Any) -> Any:
            nonlocal counted
            counted += 1
            if counted == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            os.write(report, f"{name}\n".encode())
            return call(*arguments, **named)

        return one

    for name in CHANGING:
        setattr(os, name, wrapped(name, getattr(os, name)))


def complaints(case: Case, folder: Path, expected: Any, kills: list[int]) -> list[str]:
    """What is wrong after these kills, one after the other, and after going on to the end."""
    for number, kill_at in enumerate(kills):
        begun = number > 0 and _has_begun(folder)
        code, _ = forked(case.go_on(folder) if begun else case.start(folder), kill_at)
        if code not in (-signal.SIGKILL, 0):
            return [f"ended with {code}, not killed"]
        if found := _torn(folder):
            return found
    code, _ = forked(case.go_on(folder) if _has_begun(folder) else case.start(folder))
    if code:
        return [f"a dead end: {code}"]
    if found := _torn(folder):
        return found
    now = outcome(folder)
    return [f"{name} differs" for name in sorted({*now, *expected}) if now.get(name) != expected.get(name)]


def _runs(folder: Path) -> list[RunFolder]:
    places = [path for pattern in ("run", "run/*", "store/*") for path in folder.glob(pattern)]
    return [run for run in map(RunFolder, sorted(places)) if run.config.exists()]


def _has_begun(folder: Path) -> bool:
    return bool(_runs(folder))


def _torn(folder: Path) -> list[str]:
    """Every run must be of one moment: its network is that of its checkpoint, and so are its tables."""
    found = []
    for run in _runs(folder):
        if not run.checkpoint.exists():
            continue
        tensors, metadata = read_tensors(run.checkpoint)
        own = run.load_model().state_dict()
        if any(not torch.equal(value, tensors[f"model.{name}"]) for name, value in own.items()):
            found.append(f"{run.path.name}: the network is not the checkpoint's")
        progress = json.loads(metadata["progress"])
        for name, rows in (("metrics.csv", progress["history"]), ("losses.csv", progress["losses"])):
            with (run.checkpoint.parent / name).open() as file:
                if [int(row["epoch"]) for row in csv.DictReader(file)] != [row["epoch"] for row in rows]:
                    found.append(f"{run.path.name}: {name} is not the checkpoint's")
    return found


def outcome(folder: Path) -> dict[str, Any]:
    """Everything at the end that must not depend on kills: bits of networks, figures, and which files there are."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        parts = ["N" if part.isdigit() else part for part in path.relative_to(folder).parts]
        name = "/".join(parts)
        found[name] = "folder" if path.is_dir() else "link" if path.is_symlink() else _content(path)
    return found


def _content(path: Path) -> Any:
    match path.suffix:
        case ".json":
            return _timeless(read_json(path) if path.name != "sessions.json" else {})
        case ".csv":
            with path.open() as file:
                return [_timeless(row) for row in csv.DictReader(file)]
        case ".safetensors":
            tensors, metadata = read_tensors(path)
            progress = _timeless(json.loads(metadata.get("progress", "{}")))
            return {name: value.numpy().tobytes() for name, value in tensors.items()}, progress
        case _:
            return "file"


def _timeless(value: Any) -> Any:
    match value:
        case dict():
            return {name: _timeless(one) for name, one in value.items() if name not in TIMES}
        case list():
            return [_timeless(one) for one in value]
        case _:
            return value


class Trial:
    """A case, with what it leads to if nobody kills it."""

    def __init__(self, name: str):
        self.name, self.case = name, CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            code, self.calls = forked(self.case.start(Path(folder)))
            assert code == 0, f"{name}: {code}"
            self.expected = outcome(Path(folder))

    def try_kills(self, kills: list[int]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            found = complaints(self.case, Path(folder), self.expected, kills)
            return [f"{self.name}, killed at {kills} ({self._called(kills[0])}): {text}" for text in found]

    def _called(self, number: int) -> str:
        return self.calls[number - 1] if number <= len(self.calls) else "after the end"


def ready() -> None:
    """Everything that only the first command of a process does is done before the first fork; every epoch is saved."""
    torch.set_num_threads(1)
    loop.SAVE_GAP = loop.SAVE_SHARE = 0
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:  # the first picture of a process takes long
        plots.save(plots.learning_curve(plots.Curve("", [1, 2], [0.1, 0.2]), metric="mse"), Path(folder) / "one.png")


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="try every N-th call of each case")
    parser.add_argument("--random", type=int, default=100, help="how many random kills, some at a time")
    given = parser.parse_args()
    ready()
    bad: list[str] = []
    tried = 0
    began = time.monotonic()
    trials = [Trial(name) for name in CASES]
    for trial in trials:
        points = [
            number
            for number, call in enumerate(trial.calls, 1)
            if number % given.every == 0 or (call == "rename" and trial.name in EVERY_RENAME)
        ]
        wrong = [text for number in points for text in trial.try_kills([number])]
        print(f"{trial.name}: {len(points)} of {len(trial.calls)} calls tried, {len(wrong)} complaints", flush=True)
        tried, bad = tried + len(points), bad + wrong
    draws, left = random.Random(0), given.random
    while left > 0:
        trial = draws.choice(trials)
        kills = [draws.randint(1, len(trial.calls)) for _ in range(min(left, draws.randint(1, 5)))]
        bad += trial.try_kills(kills)
        left -= len(kills)
    print(f"{tried} kills at a call, {given.random} random ones, {time.monotonic() - began:.0f} s")
    print(*bad, f"{len(bad)} complaints", sep="\n")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(cli())
