"""What a verb works on: a run with the task it was trained on, or any model folder with what the user names."""

import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from glstm.cli.options import option, require_folder
from glstm.cli.train import is_file, load_recipe
from glstm.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from glstm.data import Sequences, Task

FOLDER = "Any model folder"


@dataclass(frozen=True)
class ReadingOptions:
    """How a file of sequences is read."""

    id: Annotated[str | None, option("Tables: the column that says which sequence a row is part of.", FOLDER)] = None
    time: Annotated[str | None, option("Tables: the column with the time of a row.", FOLDER)] = None
    input: Annotated[list[str] | None, option("Tables: an input; repeat it, in the network's order.", FOLDER)] = None
    from_start: Annotated[
        bool | None,
        option(
            "Times count from each sequence's first step, or are as they are.", FOLDER, "--from-start/--as-they-are"
        ),
    ] = None
    times: Annotated[
        str | None,
        option("The times of the steps, of all sequences: numbers with commas between, or a file of them.", FOLDER),
    ] = None


@dataclass(frozen=True)
class TestOptions(ReadingOptions):
    """Sequences to test on. Given for a run, they take the place of the run's own."""

    test: Annotated[
        str | None,
        option("What to test on: a file of sequences with targets, or a task by name, such as smnist.", FOLDER),
    ] = None
    target: Annotated[list[str] | None, option("Tables: the column that was learned. Repeat it.", FOLDER)] = None
    values: Annotated[
        bool | None, option("The targets are numbers, not classes, though they are whole.", FOLDER, "--values")
    ] = None


@dataclass(frozen=True)
class ScheduleOptions(TestOptions):
    steps: Annotated[
        int | None, option("How many steps a sequence has, at the times 1, 2, ...; or say --times.", FOLDER)
    ] = None


@dataclass(frozen=True)
class Subject:
    """A network, and what it is tested on: a task, or nothing."""

    path: Path
    model: Any
    task: "Task | None"
    given: TestOptions
    times: "Tensor | None"  # that the user gave
    choosable: bool = False  # whether the task has sequences besides those of the test, to choose something on
    known: "int | Tensor | None" = None  # a run's schedule, if its task was not asked for

    def schedule(self) -> "int | Tensor":
        """What `glstm.deploy` takes, as the options say, the task, or the times that the network has seen."""
        steps = getattr(self.given, "steps", None)
        if steps is not None and self.times is not None:
            raise UserError("--steps counts the steps, --times says when they are: give one of them")
        asked = steps if self.times is None else self.times
        if asked is None and (self.task is not None or self.known is not None):
            return self.task.schedule() if self.known is None else self.known  # pyright: ignore[reportOptionalMemberAccess]
        if asked is None and (seen := getattr(self.model.layer, "seen", None)) is not None and seen.counted:
            return seen.steps
        if asked is None:
            raise UserError(
                f"{self.path} does not say how long its sequences are: give --steps N, for the times 1 to N, or the "
                "times of the steps by --times"
            )
        count = asked if isinstance(asked, int) else len(asked)
        if self.task is not None and self.task.steps > count:
            said = f"--times has {count}" if steps is None else f"--steps says {count}"
            raise UserError(f"{self.task.name} has a sequence of {self.task.steps} steps, and {said}")
        if isinstance(asked, int) and asked < 1:
            raise UserError(f"--steps must be at least 1, not {asked}")
        return asked


def load(
    path: Path,
    given: TestOptions,
    data: Path | None = None,
    device: Any = "cpu",
    *,
    last: bool = False,
    with_task: bool = True,
    scheduled: bool = True,
) -> Subject:
    """A run with its own task; with the sequences that the user names; or without any. `with_task`: whether a run's
    own task is needed, and so its data; `scheduled`: whether the times of its steps must be known without it."""
    from glstm.recipes import make_task
    from glstm.training.run import RunFolder

    require_folder(data)
    folder = RunFolder(path)
    run = is_run(path)
    if given.test is None:
        alone = ("times", "steps") if isinstance(given, ScheduleOptions) else ()
        for name, value in asdict(given).items():
            if value is not None and name not in alone:
                raise UserError(f"--{name.replace('_', '-')} says how the file of --test is read: give --test")
    model = folder.load_model(last) if run else _model(path)
    model = model.to(device)
    if run and not _any(given):
        if not with_task and not scheduled:
            return Subject(path, model, None, given, None)
        if not with_task:
            times = folder.shared_times()
            return Subject(path, model, None, given, None, known=folder.steps() if times is None else times)
        task = make_task(load_recipe(folder), data or folder.data(), device, again=True)
        folder.check_artifacts(task)
        return Subject(path, model, task, given, None, True)
    times = None if given.times is None else parse_times(given.times)
    if given.test is None:
        return Subject(path, model, None, given, times)
    known = folder.columns() if run else {}
    task, choosable = _task(path, model, given, times, data, device, known)
    return Subject(path, model, task, given, times, choosable)


def _any(given: TestOptions) -> bool:
    return any(value is not None for value in asdict(given).values())


def is_run(path: Path) -> bool:
    """Whatever is no model folder is a run, or a run's folder says what is wrong with it."""
    from glstm.pretrained import CONFIG, read_config
    from glstm.saves import current

    return not (current(path) / CONFIG).is_file() or "settings" in read_config(path)


def _model(path: Path) -> "nn.Module":
    from glstm.pretrained import from_pretrained

    return from_pretrained(path)


def parse_times(text: str) -> "Tensor":
    """0,0.5,1 or a file of numbers: .npy, or text with spaces, commas or lines between."""
    import torch

    path = Path(text)
    numbers: Any = None
    try:
        if path.suffix == ".npy":
            numbers = np.load(path, allow_pickle=False)
        else:
            words = path.read_text() if path.is_file() else text
            numbers = [float(word) for word in re.split(r"[\s,;]+", words.strip())]
    except FileNotFoundError:
        raise UserError(f"--times: there is no file {path}") from None
    except (ValueError, OSError, TypeError, SyntaxError, EOFError, TokenError, MemoryError, OverflowError):
        where = f"the file {path} holds something else" if path.is_file() else f"{text!r:.50} is neither"
        raise UserError(f"--times takes numbers, such as 0,0.5,1, or a file of them, and {where}") from None
    times = np.asarray(numbers)
    if times.dtype.kind not in "iuf" or times.ndim != 1 or not len(times) or not np.isfinite(times).all():
        raise UserError(f"--times takes one row of finite numbers, and {text!r:.50} is none")
    if (np.diff(times.astype(np.float64)) <= 0).any():
        raise UserError("--times must increase: they are the times of the steps, one after the other")
    return torch.from_numpy(times.astype(np.float64))


def _task(
    path: Path, model: Any, given: TestOptions, times: Any, data: Path | None, device: Any, known: dict[str, Any]
) -> "tuple[Task, bool]":
    from glstm.models import SequenceModel
    from glstm.recipes import Recipe, make_task

    assert given.test is not None
    if not isinstance(model, SequenceModel):
        raise UserError(f"{path} holds a {type(model).__name__}: only a SequenceModel, a layer and its head, is tested")
    if not is_file(given.test):
        if extra := [name for name in ("id", "time", "target", "input", "values") if getattr(given, name) is not None]:
            raise UserError(f"--{extra[0]} is for files, and {given.test} is a task")
        task = make_task(Recipe(given.test), data, device, again=True)
        if not task.test_size:
            raise UserError(f"{task.name} has no test part")
        _require_alike(task.name, model, task.inputs, task.outputs, task.per_step)
        return task, True
    return _file_task(Path(given.test), model, given, times, device, known)


def _require_alike(name: str, model: Any, inputs: int, outputs: int, per_step: bool) -> None:
    """The network must take these sequences and answer as they ask."""
    takes, gives = _inputs(model), _outputs(model)
    if takes is not None and inputs != takes:
        raise UserError(f"{name} has {inputs} input{'s' * (inputs != 1)}, and the network takes {takes}")
    if per_step != (model.reads == "every"):
        targets = "each step" if per_step else "each sequence"
        raise UserError(f"{name} has a target for {targets}, and the network's head reads {model.reads!r}")
    if outputs != gives:
        raise UserError(f"{name} asks for {outputs} output{'s' * (outputs != 1)}, and the network has {gives}")


def _inputs(model: Any) -> int | None:
    return getattr(model.layer, "input_size", None) if model.inputs is None else getattr(model.inputs, "size", None)


def _outputs(model: Any) -> int:
    """Of any head."""
    import torch

    from glstm.models import width_of

    value = next(model.parameters())
    rows = (1, 1) if model.reads == "every" else (1,)
    with torch.no_grad():
        return model.head(value.new_zeros(*rows, width_of(model.layer))).shape[-1]


def _file_task(
    path: Path, model: Any, given: TestOptions, times: Any, device: Any, known: dict[str, Any]
) -> "tuple[Task, bool]":
    """Of a file: its test part, or all of it. Other parts, if it has some, are there to choose and calibrate on."""
    from glstm.data import ArrayTask, read
    from glstm.data.reading import options_for
    from glstm.gated import GatedLSTM

    width = _outputs(model)
    of_values = bool(given.values) or (model.classes is None and (model.outputs is not None or width == 1))
    asked = {"id": given.id, "time": given.time, "target": as_tuple(given.target), "inputs": as_tuple(given.input)}
    asked = {name: value for name, value in asked.items() if value is not None}
    usual = options_for(path, **known | ({"classes": False} if of_values else {}))
    parts = read(path, **usual | asked)
    parts = {name: _fitted(path, part, model, width, times) for name, part in parts.items()}
    test = parts.get("test") or parts.get("all") or next(iter(parts.values()))
    others = {name: part for name, part in parts.items() if part is not test}
    task = ArrayTask(
        others.get("train", test), test=test, validation=others.get("validation", 0), standardize=False,
        missing=getattr(model.inputs, "missing", "refuse"), from_start=given.from_start, name=path.stem, device=device,
    )  # fmt: skip
    _require_alike(path.name, model, task.inputs, task.outputs, task.per_step)
    if isinstance(model.layer, GatedLSTM):
        model.layer.warn_of_new_times(task.sequences["test"].times or ())
    return task, bool(others)


def as_tuple(values: list[str] | None) -> tuple[str, ...] | None:
    return tuple(values) if values else None


def _fitted(path: Path, part: "Sequences", model: Any, width: int, times: Any) -> "Sequences":
    """With the network's classes, and the times that the user gave."""
    if part.y is None:
        raise UserError(f"{path} has no targets to compare with: of a table, name the column by --target")
    part = at_their_times(path, replace(part, doubts=()), model, times)
    if getattr(model.inputs, "missing", "refuse") == "refuse" and any(np.isnan(one).any() for one in part.x):
        raise UserError(f"{path} has missing values, NaN, and the network was trained without any")
    return part if part.classes is None else _with_classes(path, part, model.classes, width)


def at_their_times(path: Path, part: "Sequences", model: Any, times: "Tensor | None") -> "Sequences":
    """With the times that the user gave. A network that was trained at times needs some."""
    if times is not None:
        if part.times is not None:
            raise UserError(f"{path} has times of its own: leave out --times")
        if (longest := max(map(len, part.x))) > len(times):
            raise UserError(f"{path} has a sequence of {longest} steps, and --times has {len(times)}")
        part = replace(part, times=[times.numpy()[: len(one)] for one in part.x])
    seen = getattr(model.layer, "seen", None)
    if part.times is None and seen is not None and not seen.counted and model.layer.gate.names:
        raise UserError(
            f"{path} has no times, and the network was trained at times from {seen.in_words}: of a table, name their "
            "column by --time, or give the same for all sequences by --times"
        )
    return part


def _with_classes(path: Path, part: "Sequences", names: tuple[str, ...] | None, width: int) -> "Sequences":
    """Labels are names of the network's classes, or count them from 0."""
    known = names or tuple(map(str, range(width)))
    found = part.classes or ()
    if set(found) <= set(known):
        return replace(part, classes=known)
    numbers = {str(number): name for number, name in enumerate(known)}
    if not set(found) <= set(numbers):
        unknown = next(name for name in found if name not in known)
        if names is None:
            raise UserError(
                f"{path} has the class {unknown!r:.50}, and the network, which has no names of classes, counts them "
                f"from 0 to {width - 1}: give it classes=, or number the targets; if they are values, add --values"
            )
        raise UserError(f"{path} has the class {unknown!r:.50}, and the network knows {', '.join(known)}")

    def renamed(labels: Any) -> Any:
        return np.array([numbers.get(str(label), "") for label in labels], dtype=np.str_)

    y: Any = part.y
    return replace(part, y=[renamed(one) for one in y] if isinstance(y, list) else renamed(y), classes=known)


def require_test(subject: Subject) -> "Task":
    """The task, of which something is measured on the test part."""
    if subject.task is None:
        raise UserError(f"{subject.path} is a model folder without a task: say what to test it on by --test")
    if not subject.task.test_size:
        raise UserError(f"{subject.task.name} has no test part, on which this is measured: train with --test")
    return subject.task
