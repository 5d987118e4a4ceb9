"""Files of networks, runs, experiments and streams: small valid ones, made by the code that writes them."""

import json
import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import glstm
from fuzz.format import Format
from fuzz.mutators import damaged_json, damaged_tensors
from glstm.bench.markdown import rivals_table, rivals_that_failed
from glstm.bench.rivals import Case, Result, joined
from glstm.cells import CELLS
from glstm.cli.bench import _figures_in
from glstm.cli.folders import TestOptions, load
from glstm.cli.train import load_recipe
from glstm.experiments.runner import Wanted, _own, trained
from glstm.experiments.store import Store
from glstm.models import SequenceModel
from glstm.pretrained import load_model, save_pretrained
from glstm.report import page as results_page
from glstm.report import reading, tables
from glstm.report.run_page import runs_page
from glstm.report.runs import load_runs
from glstm.saves import SAVES
from glstm.scaling import Rescale, Standardize
from glstm.storage import LOCK
from glstm.training.evaluate import error_sums
from glstm.training.run import RunFolder
from small_runs import SMALL, StopAfter, go_on, start

STEPS = 6
RARELY = 0.02  # for what draws pictures ...
PICTURES = 3.0  # ... which takes so many seconds at most
IN_A_RUN = {"config.json": damaged_json, "model.safetensors": damaged_tensors}


def formats() -> Iterator[Format]:
    for name, model in networks().items():
        files = written(lambda folder, own=model: save_pretrained(own, folder))
        yield Format(f"model folder, {name}", files, use_model, other=IN_A_RUN, share=2)
    run = written(lambda folder: start(SMALL, folder).fit(should_stop=StopAfter(8)))
    run = {name: content for name, content in run.items() if not name.endswith(".png")}
    pictures = {"result.json": damaged_json, "data.json": damaged_json}
    checkpoint = ("config.json", "model.safetensors", "metrics.csv", "losses.csv")
    yield Format("checkpoint", run, resume, damaged_tensors, kept=checkpoint)
    yield Format("run folder", run, use_run, other=IN_A_RUN, kept=("checkpoint.safetensors",))
    finished = {"epoch": 1, "epochs": 1, "metric": "error", "validation_error": 0.5, "test_error": 0.5, "mean_k": 0.5,
                "open_share": 1.0, "validation_loss": 1.0, "test_loss": 1.0}  # fmt: skip
    shown = {name: content for name, content in run.items() if not name.endswith("tensors")}
    shown |= {"result.json": json.dumps(finished).encode(), "data.json": b'{"sequences": {"train": 5, "test": 2}}'}
    yield Format("report of a run", shown, report_run, other=IN_A_RUN | pictures, seconds=PICTURES)
    for name, content in experiments().items():
        yield Format(f"results, {name}", {"one.json": content}, report_results, damaged_json, seconds=PICTURES, share=3)
    summary = json.dumps(summary_of({**SMALL.as_dict(), "epochs": 3})).encode()
    sessions = [{"from_epoch": epoch, "machine": MACHINE, "sharing": 1} for epoch in (1, 3)]
    name = Store(Path()).folder(SMALL).path.name
    stored = {f"{name}/summary.json": summary, f"{name}/sessions.json": json.dumps(sessions).encode()}
    yield Format("store", stored, use_store, damaged_json)
    cases = [Case(name, 4, 1, {}, "w") for name in ("lstm", "gru")]
    figures = [Result(case, 5, 6.0, 1e-3, True, 1e-3, 1e-2, {"a": "b"}) for case in cases]
    rivals = json.dumps({"device": "d", "results": [one.as_json() for one in figures]}).encode()
    yield Format("figures of rivals", {"rivals.json": rivals}, use_figures, damaged_json)
    for steps in (STEPS, None):
        made = stream_of(steps)
        made.step(np.ones(2, np.float32), *(() if steps else (0.5,)))
        files = written(lambda folder, one=made: one.save(folder / "s"))
        yield Format(f"stream, {'known' if steps else 'any'} times", files,
                     lambda folder, _, steps=steps: use_stream(folder, steps), damaged_tensors)  # fmt: skip


def written(write: Any) -> dict[str, bytes]:
    """The files that this writes into a folder. Of a run, those of its current save, without the folder of saves: a
    folder without one is read, too."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "made"
        write(folder)
        files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not {LOCK, SAVES} & {*path.parts}]
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def networks() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    layer = glstm.GLSTM(2, 4, num_layers=2, mu=(1.0, 6.0), sigma=2.0, batch_first=True, dropout=0.1)
    deep = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), glstm.models.DropConnect(5, 3))
    made: dict[str, nn.Module] = {
        "two layers": SequenceModel(layer, nn.Linear(4, 3), classes=("a", "b", "c"), inputs=Standardize(2, "carry")),
        "both ways": SequenceModel(glstm.PLSTM(2, 4, bidirectional=True), deep, reads="mean"),
        "values": SequenceModel(glstm.LSTM(2, 4), nn.Linear(4, 2), reads="every", outputs=Rescale(2)),
        "GRU": SequenceModel(nn.GRU(2, 4), nn.Linear(4, 1)),
    }
    for name in CELLS:
        if not isinstance(CELLS[name], type) or not issubclass(CELLS[name], glstm.GatedLSTM | nn.RNNBase):
            made[name] = SequenceModel(CELLS[name](input_size=2, hidden_size=8), nn.Linear(8, 2))
    with torch.no_grad():
        for model in made.values():
            model(torch.zeros(3, STEPS, 2))
    return made


def use_model(folder: Path, draw: random.Random) -> None:
    model = load_model(folder)
    if not isinstance(model, SequenceModel):
        return
    subject = load(folder, TestOptions())
    with torch.no_grad():
        width = getattr(model.layer, "input_size", 2)
        if width <= 100:
            subject.model(torch.zeros(STEPS, STEPS, width))
    if draw.random() < 0.5 and isinstance(model.layer, glstm.GLSTM):
        glstm.deploy(model, STEPS)(torch.zeros(STEPS, STEPS, width))


def use_run(folder: Path, draw: random.Random) -> None:
    run = RunFolder(folder)
    for ask in (run.steps, run.shared_times, run.where, run.columns, run.data):
        ask()
    load_recipe(run)
    run.check_network()
    subject = load(folder, TestOptions())
    error_sums(subject.model, subject.task)


def resume(folder: Path, draw: random.Random) -> None:
    trainer = go_on(SMALL, folder)
    if draw.random() < 0.2:
        trainer.fit()


def report_run(folder: Path, draw: random.Random) -> None:
    found = load_runs([folder])
    if draw.random() < RARELY:
        runs_page(found, {})


def report_results(folder: Path, draw: random.Random) -> None:
    found = reading.load(folder, [])
    tables.document(found)
    if draw.random() < RARELY:
        results_page.page(found)


def use_store(folder: Path, _: random.Random) -> None:
    store = Store(folder)
    summary = store.summary(SMALL)
    wanted = Wanted(SMALL, {"thresholds"}, {0.0})
    if summary is not None and not wanted.missing(summary):
        _own(summary, ["thresholds"], [0.0])
    trained([], store.sessions(SMALL))
    store.begin_session(SMALL, 2, {"device": "d"}, 1)


def use_figures(folder: Path, _: random.Random) -> None:
    here = [replace(Result(Case("lstm", 4, 1, {}, "w")), failed={"x": "y"}).as_json()]
    found = joined(here, _figures_in(folder / "rivals.json")["results"])
    rivals_table(found)
    rivals_that_failed(found)


def stream_of(steps: int | None) -> Any:
    torch.manual_seed(1)
    gate = glstm.Periodic(mu=0.5, sigma=1.0, tau=4.0) if steps is None else glstm.Gaussian(mu=(1, 6), sigma=2.0)
    layer = glstm.GatedLSTM(2, 4, gate=gate)
    return glstm.deploy(SequenceModel(layer, nn.Linear(4, 1)).eval(), steps).stream()


def use_stream(folder: Path, steps: int | None) -> None:
    stream = stream_of(steps)
    stream.load(folder / "s")
    stream.step(np.ones(2, np.float32), *(() if steps else (1e9,)))


MACHINE = {"device": "a device", "commit": "0123456789abcdef", "software": {"torch": "2"}, "machine": "m"}


def summary_of(recipe: dict[str, Any], probes: dict[str, Any] | None = None) -> dict[str, Any]:
    rows = [
        {"threshold": level, "loss": 1.0, "error": 0.1 + level, "open_share": 0.1 - level, "mean_k": 0.5,
         "cached_ops": 1e6, "lstm_ops": 4e6, "paper_ops": 2e6}
        for level in (0.0, 0.01)
    ]  # fmt: skip
    gates = {"mu": [1.0, 7.0], "sigma": [1.0, -5.0]}
    usual = {"thresholds": rows, "gates": {"before": gates, "after": gates}, "gradient flow": [1.0, 0.1, 0.0]}
    return {
        "recipe": recipe, "steps": 12, "metric": "error", "as_percent": True,
        "diverged": False, "operations": 1e6,
        "curve": {"epoch": [1, 2, 3], "test_error": [0.5, 0.2, 0.02], "mean_k": [1.0, 0.5, 0.25], "seconds": [1, 1, 1]},
        "probes": usual if probes is None else probes,
        "trained": [{"machine": MACHINE, "epochs": 3, "seconds": 30.0}],
    }  # fmt: skip


def experiments() -> dict[str, bytes]:
    recipe = {"task": "smnist", "epochs": 3, "seed": 0, "cell": "glstm", "units": 4, "data": {"shift": 1}}

    found = {"change": {"lr": 0.1}, "diverged": False, "validation": 0.1, "operations": 1e6}
    search = {"chosen": 0, "seeds": [100], "tries": [found, {**found, "diverged": True, "validation": None}]}

    def arm(key: str, twin: str | None, at: float | None, count: int, probes: Any = None, epoch: Any = None) -> Any:
        runs = [summary_of({**recipe, "seed": seed}, probes) for seed in range(count)]
        return {"key": key, "name": key, "twin": twin, "paper": 0.01, "at_epoch": epoch, "at_threshold": at,
                "track": "best", "search": search, "most_operations": None, "seeds": [0, 1], "runs": runs}  # fmt: skip

    lstm = arm("l", None, None, 1, {"as an LSTM": {"loss": 1.0, "error": 0.5}}, 2)
    made = {
        "curriculum": [arm("g", "l", 0.01, 2), lstm],
        "frontier": [arm(f"a{number}", None, 0.01, 1 + number % 2) for number in range(11)],
    }
    about = {"title": "T", "question": "?", "small": False, "written": "2026-01-01",
             "missing": [{"key": "x", "name": "X", "track": "best", "search": search | {"chosen": None}}]}  # fmt: skip
    return {name: json.dumps({"name": name, **about, "arms": arms}).encode() for name, arms in made.items()}
