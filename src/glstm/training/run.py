"""A run folder: the settings, the results, and what is needed to resume the run.

config.json             settings, the names task and model were made from, the model's description, where it ran, and
                        what a report says about it
metrics.csv, losses.csv a row an epoch, and about ten an epoch
model.safetensors       the network; with config.json it is a model folder
checkpoint.safetensors  the state of training
last.safetensors        with a validation set: model.safetensors is the best epoch's network, this is the last one's
result.json             with a validation set: the best epoch, and its network on the test set

These are always of one save (see `glstm.saves`). A run that has a config.json and no checkpoint was stopped before its
first update. Besides them:

data.npz                of a task that was made from arrays in memory: its parts, so that every command finds them
learning_curve.png, gates.png
"""

import csv
import io
import json
import platform
import shlex
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import glstm
from glstm import plots
from glstm.data.arrays import ArrayTask
from glstm.data.npz_writer import npz_bytes, npz_size
from glstm.data.task import Task
from glstm.describe import describe
from glstm.errors import UserError
from glstm.layers import gated_layers
from glstm.pretrained import CONFIG, FORMAT, WEIGHTS, load_model, read_config, read_json
from glstm.saves import current, number_of, require_current, tidy, write_save
from glstm.storage import LOCK, is_locked_here, lock, write_atomically, write_json
from glstm.training.best import chosen_by_loss
from glstm.training.checked import check_config, check_network
from glstm.training.display import EpochRow, LossRow
from glstm.training.evaluate import openness_in_use
from glstm.training.settings import Settings

MOST_KEPT = 2**30  # bytes of data that a run keeps in its folder
LABELS = {"GLSTM": "g-LSTM"}  # a cell's label in pictures, if it is not the name of its class
CHECKPOINT, LAST, RESULT = "checkpoint.safetensors", "last.safetensors", "result.json"
METRICS, LOSSES = "metrics.csv", "losses.csv"
TOGETHER = "together.json"  # only before the first checkpoint: the runs that begin with this one
SAVED = (CONFIG, CHECKPOINT, WEIGHTS, LAST, METRICS, LOSSES, RESULT)  # what a save consists of


class RunFolder:
    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.data_file = self.path / "data.npz"
        self.number: int | None = None  # of the save that was read or written last; None: none was

    @property
    def config(self) -> Path:
        return current(self.path) / CONFIG

    @property
    def checkpoint(self) -> Path:
        return current(self.path) / CHECKPOINT

    @property
    def model(self) -> Path:
        return current(self.path) / WEIGHTS

    def create(
        self,
        settings: Settings,
        task: Task,
        model: nn.Module,
        where: dict[str, object],
        recipe: dict[str, Any] | None = None,
        together: dict[str, int] | None = None,
    ) -> None:
        """Start a new run here. A folder that holds a run already is an error, and is not changed.

        `together` are the folders beside this one in which runs begin with it, and their seeds.
        """
        self.require_unused()
        self.write_artifacts(task)
        software = {"glstm": glstm.__version__, "torch": torch.__version__, "python": platform.python_version()}
        shape = {"name": task.name, "steps": task.steps, "inputs": task.inputs, "outputs": task.outputs}
        if task.times is not None:
            shape["times"] = task.times.tolist()
        if task.own_times:
            shape["own_times"] = True
        shape |= task.reading()
        config: dict[str, Any] = {
            "format": FORMAT, "settings": settings.settings_as_dict(), "recipe": recipe, "task": shape, "where": where,
            "software": software, "about": _about(task, model),
        }  # fmt: skip
        try:
            config["model"] = describe(model)
        except UserError as error:  # it can be trained and resumed anyway, by code that has the model
            config |= {"model": None, "model_cannot_be_described": str(error)}
        self.save({CONFIG: _json_bytes(config)} | ({TOGETHER: _json_bytes(together)} if together else {}))

    def begin_anew(self, task: Task, model: nn.Module) -> None:
        """Where a run has a folder and no state yet: it begins here, on the machine that this is."""
        self.write_artifacts(task)
        config, about = self._read_config(), _about(task, model)
        if config.get("about") != about:
            beside = current(self.path) / TOGETHER
            self.save({CONFIG: _json_bytes({**config, "about": about})}, keep=[TOGETHER] if beside.exists() else [])

    def write_artifacts(self, task: Task) -> None:
        for name, value in task.artifacts().items():
            write_json(self.path / name, value)

    def save(self, files: dict[str, bytes], keep: Iterable[str] = ()) -> None:
        """A new save, of these files and of those to keep; only on top of the save that this object knows."""
        if self.number is not None:
            require_current(self.path, self.number)
        self.number = write_save(self.path, files, keep)

    def take_up(self) -> None:
        """What is there now is known: saves go on from it."""
        self.number = number_of(self.path)

    def tidy(self) -> None:
        tidy(self.path)

    def keep_data(self, task: ArrayTask) -> dict[str, Any] | None:
        """Write the data of a task that was made in memory into this folder, before the run begins.

        Returns the options of `file_task` that make the task again. None: they are too large, which is said.
        """
        self.require_unused()
        if (size := npz_size(task.sequences)) > MOST_KEPT:
            warnings.warn(
                f"the data of {task.name} are {size / 2**30:.1f} GiB and are not kept in {self.path}, so no command "
                "can test, deploy, export or resume the run: save them as a file and train on that, by Task.from_file",
                stacklevel=4,
            )
            return None
        content = npz_bytes(task.sequences)
        if not self.data_file.exists():
            write_atomically(self.data_file, content)
        elif self.data_file.read_bytes() != content:  # the same may be there from a process that was killed
            raise UserError(f"{self.data_file} is there, and the run's own data go there: choose another folder")
        none = {part: 0.0 for part in ("validation", "test") if part not in task.sequences}
        return {
            "path": self.data_file.name, "name": task.name, "missing": task.missing, "standardize": task.standardize,
            "from_start": task.from_start, **none,
        }  # fmt: skip

    def require_unused(self) -> None:
        """No run may be in this folder, nor in one inside or around it: a folder holds one run, or folders of runs."""
        above = RunFolder(self.path.parent)
        holder = self if self.config.exists() or _inside(self.path) else above if above.config.exists() else None
        if holder:
            raise UserError(
                f"{holder.path} already holds a run: go on with it by --resume {holder.path}, or choose another --out"
            )

    def update_settings(self, settings: Settings) -> None:
        config, now = self._read_config(), settings.settings_as_dict()
        if config["settings"] != now:
            self.save({CONFIG: _json_bytes({**config, "settings": now})}, keep=SAVED)

    def settings(self) -> Settings:
        try:
            return Settings.from_dict(self._read_config()["settings"])
        except UserError as error:
            raise UserError(f"{self.config} holds settings of no run: {error}") from None

    def check_network(self) -> None:
        """Whether what the files of the run say about its network agrees, before the recipe's is made."""
        check_network(self.path, self._read_config(), self.checkpoint)

    def recipe(self) -> dict[str, Any]:
        """The names that task and model were made from."""
        recipe = self._read_config().get("recipe")
        if not isinstance(recipe, dict):
            raise UserError(
                f"{self.path} was begun from Python with a task that no recipe names, so no command can make it again: "
                "use it there, by SequenceModel.from_pretrained, glstm.deploy or Trainer(...).resume()"
            )
        if recipe.get("task") == "file":  # data that are kept in the run's own folder go with it when it is moved
            data = recipe["data"]
            recipe["data"] = data | {"path": str((self.path / data["path"]).resolve())}
        return recipe

    def steps(self) -> int:
        """The length of its sequences."""
        return self._read_config()["task"]["steps"]

    def shared_times(self) -> Tensor | None:
        """The times of its steps, which all sequences have; None: steps are counted."""
        task = self._read_config()["task"]
        if task.get("own_times"):
            raise UserError(
                f"each sequence of {task['name']} has its own times, and this needs times that are known beforehand: "
                "export c takes --tick instead, and export onnx --times-as-input"
            )
        return None if task.get("times") is None else torch.tensor(task["times"], dtype=torch.float64)

    def reading(self) -> dict[str, Any]:
        """How further files are read as those for training were; see `ArrayTask.reading`."""
        task = self._read_config()["task"]
        if "columns" not in task:
            raise UserError(f"{self.path} was trained on {task['name']}, which is not read from a file of sequences")
        return task

    def columns(self) -> dict[str, Any]:
        """Options by which the files for training were read; none, if it was not trained on files."""
        return dict(self._read_config()["task"].get("columns") or {})

    def epochs_done(self) -> int:
        """How many epochs its last save has."""
        try:
            return max(0, (current(self.path) / METRICS).read_text().count("\n") - 1)
        except OSError:  # it has none, or another process has just replaced it
            return 0

    def where(self) -> dict[str, Any]:
        """Device, devices, nodes, precision, matmul and data folder of the run."""
        return self._read_config()["where"]

    def data(self) -> Path | None:
        """The data folder that the run used; None: none was named. One that is gone is an error: other data, which may
        be found elsewhere or fetched, need not be the same."""
        folder = self.where().get("data")
        if folder and not Path(folder).is_dir():
            raise UserError(
                f"{folder}, the data folder of {self.path}, is not there any more: name the one to use by --data"
            )
        return Path(folder) if folder else None

    def check_artifacts(self, task: Task) -> None:
        """The task's artifacts, such as a permutation, must be the same as when this run was trained."""
        for name, value in task.artifacts().items():
            if read_json(self.path / name) != value:
                raise UserError(f"{self.path / name} differs from what this version of glstm would use")

    def load_model(self, last: bool = False) -> nn.Module:
        """The trained network, in evaluation mode; with a validation set it is the best epoch's, or the last one's."""
        self._read_config()
        return load_model(self.path, LAST if last else WEIGHTS)

    def save_state(
        self, checkpoint: bytes, model: bytes, last: bytes | None, history: list[EpochRow], losses: list[LossRow]
    ) -> None:
        """All of a run as it is now. A result of an earlier end is not kept."""
        files = {CHECKPOINT: checkpoint, WEIGHTS: model} | ({} if last is None else {LAST: last})
        tables = {METRICS: _table(EpochRow, history), LOSSES: _table(LossRow, losses)}
        self.save(files | tables, keep=[CONFIG])

    def save_result(self, result: dict[str, Any], model: bytes | None = None) -> None:
        """`model`: in place of the network that was saved before."""
        content = _json_bytes(result)
        path = current(self.path) / RESULT
        if model is None and path.exists() and path.read_bytes() == content:
            return
        self.save({RESULT: content} | ({} if model is None else {WEIGHTS: model}), keep=SAVED)

    def draw(self, task: Task, model: nn.Module, gates_before: Tensor | None, history: list[EpochRow]) -> None:
        """The run's pictures: its learning curve and, if it has gates, the gates before and after training."""
        if history:
            kind = type(getattr(model, "layer", model)).__name__
            errors = [row.error for row in history if row.error is not None]
            metric = f"{history[-1].seen_on} {task.metric}" if errors else "training loss"
            heights = errors or [row.train_loss for row in history]
            curve = plots.Curve(LABELS.get(kind, kind), [row.epoch for row in history], heights)
            picture = plots.learning_curve(curve, metric=metric, percent=task.as_percent and bool(errors))
            plots.save(picture, self.path / "learning_curve.png")
        if gates_before is not None:
            layer = next(layer for layer in gated_layers(model) if layer.gate.names)
            times = task.grid()
            ends = None if task.times is None and not task.own_times else (float(times[0]), float(times[-1]))
            after = openness_in_use(layer, times)[0].float()
            plots.save(plots.gates(gates_before.numpy(), after.numpy(), ends), self.path / "gates.png")

    def _read_config(self) -> dict[str, Any]:
        if not self.config.exists():
            self._say_what_is_here()
        config = read_config(self.path)
        if "settings" not in config and "model" in config:
            raise UserError(
                f"{self.path} is a model folder without a task: this needs a run's, as glstm train makes it"
            )
        check_config(self.config, config)
        return config

    def _say_what_is_here(self) -> None:
        if not self.path.is_dir():
            what = "a file" if self.path.exists() else "not there"
            raise UserError(f"{self.path} is {what}; a run is a folder that glstm train made")
        if inside := _inside(self.path):
            names = ", ".join(folder.path.name for folder in inside)
            raise UserError(f"{self.path} holds the folders of several runs: say which, {names}")
        raise UserError(f"{self.path} is not a run folder: there is no {CONFIG} in it")


def _about(task: Task, model: nn.Module) -> dict[str, Any]:
    """What a report of the run says and only task and model know: a report imports neither."""
    parameters = list(model.parameters())
    device = parameters[0].device if parameters else task.device
    begun_on = device.type.upper()
    if device.type == "cuda":
        begun_on = torch.cuda.get_device_name(device)
    elif device.type == "cpu":
        threads = torch.get_num_threads()
        begun_on += f", {threads} thread{'s' * (threads > 1)}"
    return {
        "metric": task.metric,
        "as_percent": task.as_percent,
        "chosen_by": "loss" if chosen_by_loss(task) else task.metric,
        "sequences": {"train": task.train_size, "validation": task.validation_size, "test": task.test_size},
        "parameters": sum(one.numel() for one in parameters),
        "begun_on": begun_on,
    }


def _json_bytes(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _table(kind: type[EpochRow | LossRow], rows: list[Any]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(kind)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(vars, rows))
    return text.getvalue().encode()


@contextmanager
def locked(folders: Iterable[RunFolder]) -> Iterator[None]:
    """No other process trains in these folders until the end of the block; what this one has locked stays locked."""
    with ExitStack() as held:
        for folder in folders:
            path = folder.path / LOCK
            if not is_locked_here(path) and not lock(path, held):
                raise UserError(f"another process is training in {folder.path}: wait for it to end, or stop it")
        yield


def resume_options(paths: Iterable[Path]) -> str:
    """What a command that goes on with these runs is given."""
    return " ".join(f"--resume {shlex.quote(str(path))}" for path in paths)


def runs_in(path: Path | str) -> list[RunFolder]:
    """The run in this folder, or the runs in its folders, by their seeds."""
    path = Path(path)
    if not RunFolder(path).config.exists():
        _begin_missing(path)
        _begin_missing(path.parent)
    if not path.is_dir():
        raise UserError(
            f"{path} is {'a file' if path.exists() else 'not there'}; a run is a folder that glstm train made"
        )
    if not RunFolder(path).config.exists() and (inside := _inside(path)):
        return sorted(inside, key=lambda folder: folder.settings().seed)
    return [RunFolder(path)]


def _begin_missing(path: Path) -> None:
    """Begin the runs in this folder that were to begin together with others and did not: the process was killed."""
    for folder in _inside(path):
        if folder.checkpoint.exists():
            continue
        beside = current(folder.path) / TOGETHER
        config = read_config(folder.path)
        for name, seed in (read_json(beside) if beside.exists() else {}).items():
            missing = RunFolder(path / name)
            if not missing.config.exists():
                with locked([missing]):
                    missing.save({CONFIG: _json_bytes({**config, "settings": {**config["settings"], "seed": seed}})})


def _inside(path: Path) -> list[RunFolder]:
    folders = sorted(path.iterdir()) if path.is_dir() else []
    return [run for run in map(RunFolder, folders) if run.config.exists()]
