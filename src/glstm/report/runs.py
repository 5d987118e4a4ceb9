"""Run folders of `glstm train` as their files describe them; runs that differ only in the seed are one network."""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glstm.errors import UserError
from glstm.forms import anything, entries, flag, items, maybe, read_json, text, whole
from glstm.saves import SAVES, current, read_current

CONFIG = "config.json"
LABELS = {"glstm": "g-LSTM", "lstm": "LSTM", "gru": "GRU", "plstm": "Phased LSTM"}  # of cells, if not their names
ARITHMETIC = ("precision", "matmul")  # what of "where" changes the result
MOST_IN_A_NAME = 3  # settings; with more, networks are numbered
SHOWN = 40  # characters of a setting

things = entries({}, others=anything)
_count = whole(0, 2**53)
# Of a config, what is shown: the rest is turned into text, or compared.
CONFIG_FORM = entries(
    {
        "settings": entries({"seed": whole(-(2**63), 2**63), "epochs": _count}, others=anything),
        "task": entries({"name": text, "steps": _count, "inputs": _count, "outputs": _count}, others=anything),
        "where": entries({}, {"devices": maybe(_count), "nodes": maybe(_count)}, others=anything),
    },
    {
        "recipe": maybe(entries({"cell": text}, {"units": maybe(_count)}, others=anything)),
        "model": maybe(
            entries(
                {},
                {"classes": maybe(items(text)), "layer": entries({}, {"hidden_size": _count}, others=anything)},
                others=anything,
            )
        ),
        "about": maybe(
            entries(
                {},
                {"parameters": maybe(_count), "sequences": maybe(entries({}, others=_count)), "as_percent": flag},
                others=anything,
            )
        ),
        "software": entries({}, others=text),
    },
    others=anything,
)


@dataclass(frozen=True)
class Task:
    name: str
    steps: int
    may_be_shorter: bool  # a sequence than so many steps: it is read from a file
    inputs: int
    outputs: int
    classes: list[str] | None
    sequences: dict[str, int]  # of the parts train, validation and test, as far as they are known
    metric: str
    as_percent: bool
    chosen_by: str  # the figure of the validation part that decides between epochs: the metric, or the loss

    def form(self, value: float) -> str:
        return f"{100 * value:.2f} %" if self.as_percent else f"{value:.4g}"


@dataclass(frozen=True)
class Epoch:
    """A row of metrics.csv."""

    epoch: int
    train_loss: float
    test_error: float | None
    validation_error: float | None
    mean_k: float | None
    open_share: float | None
    seconds: float
    together: int

    @property
    def error(self) -> float | None:
        return self.test_error if self.validation_error is None else self.validation_error


@dataclass(frozen=True)
class Outcome:
    """The figures to quote: of the best epoch by validation, or of the last one if there is no validation."""

    epoch: int
    epochs: int
    validation_error: float | None
    test_error: float | None
    mean_k: float | None
    open_share: float | None


@dataclass(frozen=True)
class TrainedRun:
    path: Path
    seed: int
    choices: dict[str, Any]  # everything but the seed that decides what is computed, by name
    cell: str
    units: int | None
    parameters: int | None
    task: Task
    data: str  # equal if the data are the same
    begun_on: str
    software: str
    planned: int  # epochs
    history: list[Epoch]
    outcome: Outcome | None  # None: it is unfinished
    gates: Path | None  # the picture


@dataclass
class Network:
    """Runs that differ only in the seed."""

    runs: list[TrainedRun]
    name: str = ""

    @property
    def first(self) -> TrainedRun:
        return self.runs[0]

    @property
    def outcomes(self) -> list[Outcome]:
        return [run.outcome for run in self.runs if run.outcome is not None]


@dataclass
class Comparison:
    """All networks of one task."""

    networks: list[Network] = field(default_factory=list)

    @property
    def task(self) -> Task:
        return self.networks[0].first.task

    @property
    def has_validation(self) -> bool:
        runs = [run for network in self.networks for run in network.runs]
        return bool(self.task.sequences.get("validation")) or any(
            row.validation_error is not None for run in runs for row in run.history
        )

    def differing(self, networks: Sequence[Network] | None = None) -> list[str]:
        """The names of the settings in which the networks differ."""
        found = [network.first.choices for network in networks or self.networks]
        names = dict.fromkeys(name for choices in found for name in choices)
        return [name for name in names if any(one.get(name) != found[0].get(name) for one in found)]


def is_results(folder: Path) -> bool:
    """Whether it is a folder of `glstm reproduce`'s results, not of runs."""
    return not _config(folder).exists() and any(folder.glob("*.json"))


def load_runs(paths: Sequence[Path]) -> list[Comparison]:
    """The runs in these folders, by task and network; the order is that of the folders."""
    folders = list(dict.fromkeys(folder.resolve() for path in paths for folder in _folders(path)))
    by_task: dict[str, dict[str, Network]] = {}
    for run in map(_read, folders):
        networks = by_task.setdefault(run.data, {})
        network = networks.setdefault(json.dumps(run.choices, sort_keys=True), Network([]))
        if twin := next((one for one in network.runs if one.seed == run.seed), None):
            raise UserError(
                f"{twin.path} and {run.path} are the same network with the same seed, {run.seed}: leave one out"
            )
        network.runs.append(run)
    found = [Comparison([*networks.values()]) for networks in by_task.values()]
    for comparison in found:
        _give_names(comparison)
        for network in comparison.networks:
            network.runs.sort(key=lambda run: run.seed)
    return found


def _folders(path: Path) -> Iterator[Path]:
    """The run in this folder, or those in its folders and in theirs, as --seeds makes them."""
    if not path.is_dir():
        what = "a file" if path.exists() else "not there"
        raise UserError(f"{path} is {what}; a run is a folder that glstm train made")
    if _config(path).exists():
        if not _is_run(path):
            raise UserError(f"{path} is a model folder without a task: a report is of runs, as glstm train makes them")
        yield path
        return
    inside = [one for depth in ("*", "*/*") for one in path.glob(depth) if one.name != SAVES and _config(one).exists()]
    if not (runs := [folder for folder in sorted(inside) if _is_run(folder)]):
        raise UserError(f"there is no run in {path}, nor in its folders: glstm train makes them")
    yield from runs


def _config(folder: Path) -> Path:
    return current(folder) / CONFIG


def _is_run(folder: Path) -> bool:
    return "settings" in read_current(folder, lambda save: _json(save / CONFIG))


def _json(path: Path) -> dict[str, Any]:
    return read_json(path, "a file of a run", things)


def _read(folder: Path) -> TrainedRun:
    return read_current(folder, lambda save: _read_save(folder, save))


def _read_save(folder: Path, save: Path) -> TrainedRun:
    config = read_json(save / CONFIG, "the config of a run", CONFIG_FORM)
    data = _json(folder / "data.json") if (folder / "data.json").exists() else {}
    result = _json(save / "result.json") if (save / "result.json").exists() else None
    try:
        history = _history(save / "metrics.csv")
        return _described(folder, config, data, result, history)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError, csv.Error) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{folder} is not a whole run of glstm train: {error!r:.200}") from None


def _described(
    folder: Path, config: dict[str, Any], data: dict[str, Any], result: dict[str, Any] | None, history: list[Epoch]
) -> TrainedRun:
    settings, recipe, shape = {"on_nan": "stop", **config["settings"]}, config.get("recipe"), config["task"]
    about, model, where = config.get("about") or {}, config.get("model") or {}, config["where"]
    layer = model.get("layer") or model
    sequences = data.get("sequences") or about.get("sequences") or {}
    metric = str(about.get("metric") or (result or {}).get("metric") or "error")
    task = Task(
        str(shape["name"]), int(shape["steps"]), "columns" in shape, int(shape["inputs"]), int(shape["outputs"]),
        model.get("classes"), {part: int(size) for part, size in sequences.items()},
        metric, bool(about.get("as_percent", metric == "error")), str(about.get("chosen_by") or metric),
    )  # fmt: skip
    seed, planned = int(settings.pop("seed")), int(settings["epochs"])
    network = recipe or {"cell": str(layer.get("class", "a network")).rpartition(":")[2], "model": model}
    arithmetic = {name: where[name] for name in ARITHMETIC if name in where}
    cell, units = str(network["cell"]).rpartition(":")[2], network.get("units", layer.get("hidden_size"))
    devices = int(where.get("devices") or 1) * int(where.get("nodes") or 1)
    begun_on = str(about.get("begun_on") or where.get("device") or "")
    gates = folder / "gates.png"
    return TrainedRun(
        path=folder,
        seed=seed,
        choices=dict(_flat({**network, **settings, **arithmetic})),
        cell=LABELS.get(cell, cell),
        units=units,
        parameters=about.get("parameters"),
        task=task,
        data=json.dumps([shape, data, sequences], sort_keys=True),
        begun_on=f"{devices} x {begun_on}" if devices > 1 else begun_on,
        software=", ".join(f"{name} {version}" for name, version in config.get("software", {}).items()),
        planned=planned,
        history=history,
        outcome=_outcome(result, history, planned, bool(sequences.get("validation"))),
        gates=gates if gates.exists() else None,
    )


def _outcome(result: dict[str, Any] | None, history: list[Epoch], planned: int, has_validation: bool) -> Outcome | None:
    """A result that is older than the last epochs belongs to a run that was taken up again and is not at its end."""
    if result is not None:
        names = ("validation_error", "test_error", "mean_k", "open_share")
        found = Outcome(int(result["epoch"]), int(result["epochs"]), *(_number(result[name]) for name in names))
        return found if found.epochs >= len(history) else None
    if has_validation or len(history) < planned or history[-1].validation_error is not None:
        return None
    last = history[-1]
    return Outcome(last.epoch, len(history), None, last.test_error, last.mean_k, last.open_share)


def _history(path: Path) -> list[Epoch]:
    """None before the first epoch is at its end."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            Epoch(
                int(row["epoch"]), float(row["train_loss"]), _number(row["test_error"]),
                _number(row.get("validation_error")), _number(row["mean_k"]), _number(row["open_share"]),
                float(row["seconds"]), int(row.get("together") or 1),
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip


def _number(value: Any) -> float | None:
    return None if value in (None, "") else float(value)


def _flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def shown(value: Any) -> str:
    """A setting, in a table."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case [int() | float() as low, int() | float() as high]:
            return f"{low:g} to {high:g}"
        case _:
            text = str(value)
            return text if len(text) <= SHOWN else f"…{text[-SHOWN:]}"


def _give_names(comparison: Comparison) -> None:
    """The cell, and what tells it from others with the same cell."""
    for network in comparison.networks:
        cell = network.first.cell
        alike = [other for other in comparison.networks if other.first.cell == cell]
        differing = comparison.differing(alike)
        if len(differing) > MOST_IN_A_NAME:
            network.name = f"{cell} {alike.index(network) + 1}"
            continue
        own = network.first.choices
        parts = [f"{name.rpartition('.')[2]} {shown(own[name])}" for name in differing if own.get(name) is not None]
        network.name = ", ".join([cell, *parts])
    for network in comparison.networks:
        alike = [other for other in comparison.networks if other.name == network.name]
        if len(alike) > 1:  # their settings differ by less than is shown
            for number, other in enumerate(alike, 1):
                other.name = f"{other.name} ({number})"
