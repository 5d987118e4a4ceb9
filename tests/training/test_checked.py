"""Files of a run that somebody else wrote: one sentence that names the file, before anything is made of them."""

import json
import re
import resource
import time

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from glstm.cli.train import load_recipe
from glstm.errors import UserError
from glstm.recipes import Recipe, make_task
from glstm.training.run import RunFolder
from small_runs import SMALL, StopAfter, go_on, start


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The files of a run that was stopped in its second epoch."""
    path = tmp_path_factory.mktemp("runs") / "run"
    start(SMALL, path).fit(should_stop=StopAfter(8))
    return {one.name: one.read_bytes() for one in path.iterdir() if one.is_file()}


@pytest.fixture
def folder(stopped, tmp_path) -> RunFolder:
    for name, content in stopped.items():
        (tmp_path / name).write_bytes(content)
    return RunFolder(tmp_path)


def rewrite(folder: RunFolder, progress=None, tensors=None) -> None:
    with safe_open(folder.checkpoint, "pt") as file:
        metadata, found = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if progress is not None:
        said = json.loads(metadata["progress"])
        metadata["progress"] = progress if isinstance(progress, str) else json.dumps(said | progress)
    for name, value in (tensors or {}).items():
        found[name] = value
        if value is None:
            del found[name]
    save_file(found, folder.checkpoint, metadata)


ROW = {"epoch": 1, "train_loss": 1, "test_loss": 1, "test_error": 1, "mean_k": 1, "open_share": 1, "seconds": 1}
PROGRESS = {
    "no JSON": ("{", "its progress is no JSON"),
    "deep": ("[" * 5000, "nested too deeply"),
    "a list": ("[]", "it should be an object"),
    "half an epoch": ({"epoch": 2.5}, "epoch should be a whole number from 1"),
    "a negative batch": ({"batch": -3}, "batch should be a whole number from 0"),
    "too many batches": ({"batch": 99}, "it is at batch 99 of epoch 2, and there are 5 batches and 3 epochs"),
    "a far epoch": ({"epoch": 10**6}, "it is at batch"),
    "no time": ({"seconds": "long"}, "seconds should be a finite number"),
    "half a row": ({"history": [ROW]}, "history[0] has no test_seconds"),
    "a row twice": ({"history": [ROW | {"test_seconds": 1}] * 2}, "its history is not that of the epochs before"),
    "an unknown column": ({"losses": [{"epoch": 1, "batch": 1, "loss": 1, "a": 1}]}, "losses[0] has 'a'"),
}


@pytest.mark.parametrize("what", PROGRESS)
def test_the_progress_of_a_checkpoint_is_checked(folder, what):
    progress, says = PROGRESS[what]
    rewrite(folder, progress)
    with pytest.raises(UserError, match=r"checkpoint\.safetensors is .*" + re.escape(says)):
        go_on(SMALL, folder.path)


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({"extra.sums": torch.zeros(3, dtype=torch.float64)}, "sums should be float64 (2,)"),
        ({"extra.sums": None}, "sums should be float64 (2,)"),
        ({"extra.gates_before": torch.zeros(2, 6)}, "gates_before should be float32 (12, 6)"),
        ({"extra.best.layer.weight_ih_l0": torch.zeros(1)}, "should be float32"),
        ({"extra.other": torch.zeros(1)}, "'other' is not part of this run"),
        ({"optimizer.mean.weights": torch.zeros(1, dtype=torch.complex64)}, "does not fit the network and the optim"),
    ],
)
def test_the_tensors_of_a_checkpoint_are_checked(folder, tensors, says):
    rewrite(folder, tensors=tensors)
    with pytest.raises(UserError, match=r"checkpoint\.safetensors .*" + re.escape(says)):
        go_on(SMALL, folder.path)


def changed(folder: RunFolder, place: tuple, value: object) -> None:
    config = json.loads(folder.config.read_text())
    inside = config
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    folder.config.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("task",), {}, "is not whole: task has no name"),
        (("task", "steps"), {}, "task.steps should be a whole number"),
        (("task", "times"), [1, 2], "task.times should be as many as task.steps"),
        (("where", "devices"), -1, "where.devices should be a whole number from 1"),
        (("settings", "epochs"), "3", "epochs must be of type int, not '3'"),
        (("recipe", "units"), 2.5, "units must be a whole number of at least 1, not 2.5"),
        (("recipe", "task"), "file", "recipe.data has no path"),
        (("recipe",), [], "recipe should be an object"),
    ],
)
def test_the_config_of_a_run_is_checked(folder, place, value, says):
    changed(folder, place, value)
    with pytest.raises(UserError, match=r"config\.json .*" + re.escape(says)):
        load_recipe(folder)


@pytest.mark.parametrize("place", [("recipe", "units"), ("model", "layer", "hidden_size")])
def test_a_network_that_does_not_fit_is_never_made(folder, place):
    """It took 28 seconds and 2.5 GB to find out."""
    changed(folder, place, 6000)
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=r"config\.json contradicts itself: the recipe has units"):
        folder.check_network()
    changed(folder, ("recipe", "units"), 6000)
    changed(folder, ("model", "layer", "hidden_size"), 6000)
    changed(folder, ("model", "head", "in_features"), 6000)
    with pytest.raises(UserError, match=r"checkpoint\.safetensors does not fit the network that config\.json"):
        folder.check_network()
    assert time.monotonic() - began < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_the_adding_task_has_a_largest_size():
    with pytest.raises(UserError, match=r"30 sequences of the adding task of 99999999 steps take .* GiB, and 4 are"):
        make_task(Recipe("adding", data={"steps": 99_999_999, "train_size": 30, "test_size": 30}))
