"""Curves for TensorBoard, read back with its own reader."""

import csv
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from glstm.training.display import Display
from glstm.training.tensorboard import FOLDER, TensorBoard
from small_runs import SMALL, StopAfter, go_on, start

BATCHES = 5  # in an epoch of SMALL


class Heard(Display):
    def __init__(self):
        self.calls: list[str] = []

    def start(self, settings, task, histories):
        self.calls.append("start")

    def batch(self, epoch, index, count):
        self.calls.append("batch")

    def loss(self, rows):
        self.calls.append("loss")

    def epoch(self, rows):
        self.calls.append("epoch")

    def stop(self):
        self.calls.append("stop")


def read(path: Path) -> EventAccumulator:
    return EventAccumulator(str(path / FOLDER), size_guidance={"scalars": 0, "images": 0}).Reload()


def curve(path: Path, name: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read(path).Scalars(name)]


def metrics(path: Path, name: str) -> list[tuple[int, float]]:
    with (path / "metrics.csv").open() as file:
        return [(int(row["epoch"]), float(row[name])) for row in csv.DictReader(file)]


def check_curves(path: Path) -> None:
    for name in ("train_loss", "mean_k", "seconds"):
        assert curve(path, name) == [(epoch, pytest.approx(value, rel=1e-6)) for epoch, value in metrics(path, name)]


def test_every_figure_of_every_epoch_and_the_gates(tmp_path):
    trainer, heard = start(SMALL, tmp_path / "run"), Heard()
    assert trainer.fit(TensorBoard(trainer.runs, heard))
    check_curves(tmp_path / "run")
    found = read(tmp_path / "run")
    with (tmp_path / "run" / "metrics.csv").open() as file:
        filled = {name for name, value in next(csv.DictReader(file)).items() if value}
    assert set(found.Tags()["scalars"]) == filled - {"epoch", "together"}
    (picture,) = found.Images("gates")
    assert picture.step == SMALL.epochs
    assert picture.encoded_image_string.startswith(b"\x89PNG")
    assert heard.calls.count("epoch") == SMALL.epochs
    assert (heard.calls[0], heard.calls[-1]) == ("start", "stop")
    assert {"batch", "loss"} <= set(heard.calls)


def test_a_network_without_gates_has_no_curve_of_openness(tmp_path):
    trainer = start(SMALL.changed(cell="gru", init=None, forget_bias=None), tmp_path / "run")
    trainer.fit(TensorBoard(trainer.runs))
    tags = read(tmp_path / "run").Tags()
    assert "mean_k" not in tags["scalars"]
    assert tags["images"] == []


def test_a_resumed_run_continues_its_curves(tmp_path):
    trainer = start(SMALL, tmp_path / "run")
    assert not trainer.fit(TensorBoard(trainer.runs), StopAfter(BATCHES + 2))
    trainer = go_on(SMALL, tmp_path / "run")
    assert trainer.fit(TensorBoard(trainer.runs))
    check_curves(tmp_path / "run")
    assert len(list((tmp_path / "run" / FOLDER).iterdir())) == 2


def test_epochs_that_are_trained_again_are_replaced(tmp_path):
    """As after a crash: epochs were written, and the checkpoint is older."""
    trainer = start(SMALL, tmp_path / "run")
    trainer.fit(TensorBoard(trainer.runs), StopAfter(BATCHES))
    checkpoint = tmp_path / "run" / trainer.runs[0].folder.checkpoint.name
    before = checkpoint.read_bytes()
    trainer = go_on(SMALL, tmp_path / "run")
    trainer.fit(TensorBoard(trainer.runs))
    checkpoint.write_bytes(before)
    trainer = go_on(SMALL, tmp_path / "run")
    trainer.fit(TensorBoard(trainer.runs))
    check_curves(tmp_path / "run")
    assert [step for step, _ in curve(tmp_path / "run", "train_loss")] == [1, 2, 3]


def test_epochs_that_were_trained_without_it_are_added(tmp_path):
    trainer = start(SMALL, tmp_path / "run")
    trainer.fit(TensorBoard(trainer.runs), StopAfter(BATCHES))
    trainer = go_on(SMALL, tmp_path / "run")
    trainer.fit(None, StopAfter(BATCHES))
    trainer = go_on(SMALL, tmp_path / "run")
    trainer.fit(TensorBoard(trainer.runs))
    check_curves(tmp_path / "run")


def test_runs_that_train_together_have_curves_of_their_own(tmp_path):
    recipes = [SMALL.changed(seed=seed) for seed in (0, 1)]
    paths = [tmp_path / "0", tmp_path / "1"]
    trainer = start(recipes, paths)
    trainer.fit(TensorBoard(trainer.runs), StopAfter(BATCHES))
    older = (paths[1] / trainer.runs[1].folder.checkpoint.name).read_bytes()
    trainer = go_on(recipes, paths)
    trainer.fit(TensorBoard(trainer.runs), StopAfter(BATCHES))
    (paths[1] / trainer.runs[1].folder.checkpoint.name).write_bytes(older)  # the second must catch up with the first
    trainer = go_on(recipes, paths)
    assert trainer.fit(TensorBoard(trainer.runs))
    for path in paths:
        check_curves(path)
    assert curve(paths[0], "train_loss") != curve(paths[1], "train_loss")
