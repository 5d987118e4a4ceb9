"""Recipes: a task, a network and how to train it, all as names and numbers, for JSON and the command line.

The modules that this one imports know objects only, no names. Names are looked up in the tables `TASKS`, `CELLS`,
`GATES` and `HEADS`, or imported: `package.module:name` works everywhere a short name does.
"""

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from glstm import init, registry
from glstm.cells import CELLS
from glstm.data import TASKS, ArrayTask, Sequences
from glstm.data.reading import READERS
from glstm.data.task import Task
from glstm.errors import UserError
from glstm.gated import GatedLSTM
from glstm.gates import GATES, WIDE, Gate, Gaussian, Phased
from glstm.layers import GLSTM, PLSTM
from glstm.models import HEADS, READS, SequenceModel, width_of
from glstm.training.best import check_patience
from glstm.training.settings import Settings

Options = dict[str, Any]

INITIALISERS = {"orthogonal": init.orthogonal_, "xavier": init.xavier_}
USUAL_GATES: dict[Any, type[Gate]] = {GLSTM: Gaussian, PLSTM: Phased}  # of cells that always have the same


@dataclass(frozen=True)
class Recipe(Settings):
    """Every value that decides what a training run computes, as names and numbers: those of `Settings`, and these.

    Attributes:
        task: A name from the table `TASKS`, or `package.module:name`.
        data: What the task is made with.
        cell: A name from the table `CELLS`, or `package.module:name`.
        units: H, in each layer.
        layers: How many.
        gate: The gate's values by name; "kind", if it is not the cell's usual one.
        options: What else the cell is made with, such as threshold.
        head: A name from the table `HEADS`, or `package.module:name`.
        reads: What the head reads; None: every step if each has a target, else the last.
        segment: Steps between stored states; None: everything is stored for the backward pass.
        init: "orthogonal" or "xavier"; None: the cell's own initial values.
        forget_bias: The forget gate's bias at the start, or a GRU's update gate's; None: the cell's own.
        chrono: T_max of chrono biases, which replace the forget bias.
    """

    task: str
    data: Options = field(default_factory=dict, hash=False)

    cell: str = "glstm"
    units: int = 110
    layers: int = 1
    gate: Options = field(default_factory=dict, hash=False)
    options: Options = field(default_factory=dict, hash=False)
    head: str = "linear"
    reads: str | None = None
    segment: int | None = None

    init: str | None = None
    forget_bias: float | None = None
    chrono: float | None = None

    def __post_init__(self):
        super().__post_init__()
        for name in ("units", "layers", "segment"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise UserError(f"{name} must be a whole number of at least 1, not {value!r:.50}")
        for name in ("data", "gate", "options"):
            if not isinstance(getattr(self, name), dict):
                raise UserError(f"{name} must be names with values, not {getattr(self, name)!r:.50}")
        for name, value in (
            ("task", self.task),
            ("cell", self.cell),
            ("head", self.head),
            ("kind", self.gate.get("kind", "")),
        ):
            if not isinstance(value, str):
                raise UserError(f"{name} must be a name, not {value!r:.50}")
        if self.reads is not None and self.reads not in READS:
            raise UserError(f"reads must be one of {', '.join(READS)}, not {self.reads!r:.50}")
        if self.init is not None and self.init not in INITIALISERS:
            raise UserError(f"init must be one of {', '.join(INITIALISERS)}, not {self.init!r:.50}")
        for name in ("forget_bias", "chrono"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
                raise UserError(f"{name} must be a finite number, not {value!r:.50}")
        if self.chrono is not None and not self.chrono > 2:
            raise UserError(f"chrono is a T_max above 2 steps, not {self.chrono}")

    def changed(self, **values: Any) -> Self:
        """A copy with these changes. In data, gate and options only the entries given change, and None removes one.

        With another cell, this one's gate and threshold are dropped; if it is neither an LSTM nor a GRU, or has its own
        start, the initial values, too.
        """
        merged = dict(values)
        usual = self._without_cell(values["cell"]) if values.get("cell", self.cell) != self.cell else self
        for name in ("data", "gate", "options"):
            if name in values:
                entries = {**getattr(usual, name), **values[name]}
                merged[name] = {key: _as_tuple(value) for key, value in entries.items() if value is not None}
        return replace(usual, **merged)

    def _without_cell(self, other: str) -> Self:
        is_lstm = _is_lstm(other)
        options = {name: value for name, value in self.options.items() if is_lstm and name == "candidate"}
        start = {} if _takes_a_start(other) else {"init": None, "forget_bias": None, "chrono": None}
        return replace(self, gate={}, options=options, segment=self.segment if is_lstm else None, **start)

    @property
    def gate_class(self) -> type[Gate] | None:
        """The kind of its gates; None if there are no gates with values."""
        if "kind" in self.gate:
            return find_gate(self.gate["kind"])
        return USUAL_GATES.get(registry.find(self.cell, CELLS, "cell"))

    def cell_takes(self) -> list[str]:
        """Names of the options that its cell is made with."""
        return registry.accepted(registry.find(self.cell, CELLS, "cell"))

    def at_length(self, steps: int) -> Self:
        """The same recipe for sequences of another length: the gates' times are scaled with it."""
        before = self.data.get("steps")
        if before is None or (kind := self.gate_class) is None:
            return self.changed(data={"steps": steps})  # the task checks them
        own = {name: self.gate.get(name, getattr(kind, name, None)) for name in kind.in_time}
        stretched = {name: _times(steps / before, value) for name, value in own.items() if value is not None}
        return self.changed(data={"steps": steps}, gate=stretched)

    def as_dict(self) -> dict[str, Any]:
        """In a form that JSON keeps."""
        return asdict(self)

    def names_as_dict(self) -> dict[str, Any]:
        """All but the settings, in a form that JSON keeps."""
        settings = self.settings_as_dict()
        return {name: value for name, value in asdict(self).items() if name not in settings}

    def code(self) -> list[str]:
        """The names in it that are imported, as package.module:name."""
        return [name for name in names_in(self.as_dict()) if ":" in name]

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """What `as_dict` returned, as a recipe again."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise UserError(f"the recipe has entries this version does not know: {', '.join(unknown)}")
        try:
            return cls(**{name: _from_json(value) for name, value in values.items()})
        except TypeError as error:
            raise UserError(f"the recipe is not whole, or holds a value of the wrong kind: {error}") from None


NAMING = ("task", "cell", "head", "kind", "gate.kind")  # entries that may stand for somebody's code


def names_in(table: Any) -> list[str]:
    """Every name of a task, a cell, a head or a gate in a table of a recipe, a plan or a grid, however deep it lies."""
    if isinstance(table, list | tuple):
        return [name for one in table for name in names_in(one)]
    if not isinstance(table, dict):
        return []
    said = [one for key in NAMING if key in table for one in _listed(table[key]) if isinstance(one, str)]
    return said + [name for one in table.values() for name in names_in(one)]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _from_json(value: Any) -> Any:
    """JSON has no tuples."""
    if isinstance(value, dict):
        return {name: _from_json(one) for name, one in value.items()}
    return _as_tuple(value)


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _times(share: float, value: Any) -> Any:
    return tuple(share * one for one in value) if isinstance(value, tuple) else share * value


def _is_lstm(cell: str) -> bool:
    return _is_made_by(cell, GatedLSTM, nn.LSTM)


def _takes_a_start(cell: str) -> bool:
    """Whether a recipe says how it starts."""
    made = _is_lstm(cell) or _is_made_by(cell, nn.GRU)
    return made and not getattr(registry.find(cell, CELLS, "cell"), "own_start", False)


def _is_made_by(cell: str, *kinds: type) -> bool:
    maker = registry.find(cell, CELLS, "cell")
    return isinstance(maker, type) and issubclass(maker, kinds)


def _find_task(name: str) -> Callable[..., Any]:
    if name not in TASKS and ":" not in name:
        known = ", ".join(task for task in TASKS if task != "file")
        raise UserError(
            f"there is no task {name!r:.80}; there are {known}, and your own as package.module:name, or as a file that "
            f"ends in {', '.join(READERS)}"
        )
    return registry.find(name, TASKS, "task")


def make_task(
    recipe: Recipe, folder: Path | str | None = None, device: torch.device | str = "cpu", *, again: bool = False
) -> Task:
    """The recipe's task. The folder and the device are passed only to tasks that take them. `again`: doubts about the
    data were said when the run began."""
    maker = _find_task(recipe.task)
    takes = registry.accepted(maker)
    where: dict[str, Any] = {"folder": folder, "device": device} | ({"doubts": False} if again else {})
    where = {name: value for name, value in where.items() if name in takes}
    if twice := sorted(set(where) & set(recipe.data) - {"folder"}):
        raise UserError(f"{twice[0]} is said for the whole run, not as an option of the task: leave it out")
    where = {name: value for name, value in where.items() if name not in recipe.data}
    task = registry.call(maker, f"the task {recipe.task}", **recipe.data, **where)
    if isinstance(task, Sequences | tuple | dict):  # your own data, of which a task can be made
        task = _task_of(task, recipe.task, device)
    if not isinstance(task, Task):
        raise UserError(f"{recipe.task} made a {type(task).__name__}, not a task: that is derived from glstm.data.Task")
    if task.device.type != torch.device(device).type:
        raise UserError(f"{recipe.task} lies on {task.device}, and {device} was asked for: let it take a device")
    return task


def _task_of(found: Any, path: str, device: torch.device | str) -> Task:
    options = {"name": path.rpartition(":")[2], "device": device}
    match found:
        case Sequences():
            return ArrayTask(found, **options)
        case tuple() if len(found) == 2:
            return ArrayTask(*found, **options)
        case dict() if "x" in found:
            known = [name for name in registry.accepted(ArrayTask) if name not in options]
            if unknown := [name for name in found if name not in known]:
                raise UserError(
                    f"{path} made a dictionary with the key {unknown[0]!r:.50}, which is not known; known are "
                    f"{', '.join(known)}"
                )
            return registry.call(ArrayTask, f"the task {path}", **options, **found)
        case _:
            raise UserError(f"{path} made a {type(found).__name__}, not a task, nor Sequences, (x, y) or a dictionary")


def find_gate(kind: str) -> type[Gate]:
    found = registry.find(kind, GATES, "gate")
    if not (isinstance(found, type) and issubclass(found, Gate)):
        raise UserError(f"{kind} is not a gate: that is a class derived from glstm.Gate")
    return found


def make_gate(kind: str, **values: Any) -> Gate:
    return registry.call(find_gate(kind), f"the gate {kind}", **values)


def model_maker(recipe: Recipe, task: Task) -> Callable[[], nn.Module]:
    """A function that makes the recipe's network for this task, with weights drawn from torch's generator."""
    return lambda: make_model(recipe, task)


def make_model(recipe: Recipe, task: Task) -> SequenceModel:
    layer = _layer(recipe, task)
    if recipe.init is not None or recipe.forget_bias is not None or recipe.chrono is not None:
        _start(recipe, layer)
    if recipe.segment is not None:
        if not isinstance(layer, GatedLSTM):
            raise UserError(f"segment is for gated layers, and {recipe.cell} is none: leave it out")
        layer.segment = recipe.segment
    head = registry.find(recipe.head, HEADS, "head")
    reads = recipe.reads or ("every" if task.per_step else "last")
    if (reads == "every") != task.per_step:
        targets = "each step" if task.per_step else "each sequence"
        raise UserError(f"{task.name} has a target for {targets}, so the head cannot read {reads!r}")
    return SequenceModel(
        layer,
        registry.call(head, "the head", inputs=width_of(layer), outputs=task.outputs),
        reads=reads,
        inputs=task.make_inputs(),
        outputs=task.make_outputs(),
        classes=task.classes,
    )


def _layer(recipe: Recipe, task: Task) -> nn.Module:
    cell = registry.find(recipe.cell, CELLS, "cell")
    inputs = getattr(task.make_inputs(), "outputs", task.inputs)
    shape = {"input_size": inputs, "hidden_size": recipe.units, "num_layers": recipe.layers}
    if task.clock != (0.0, 1.0) and "origin" in registry.accepted(cell):
        shape |= dict(zip(("origin", "unit"), task.clock, strict=True))
    if "t_max" in registry.accepted(cell) and "t_max" not in recipe.options:
        shape["t_max"] = task.steps
    gate = _usual_values(recipe.gate_class, task) | recipe.gate
    takes_gate = "gate" in registry.accepted(cell)
    if "kind" in gate:
        if not takes_gate:
            raise UserError(f"the cell {recipe.cell} does not take a gate of your choice: use the cell gated")
        gate = {"gate": make_gate(**gate)}
    elif takes_gate and not recipe.options.get("gate"):
        raise UserError(
            f"the cell {recipe.cell} needs a kind of gate: {', '.join(GATES)}, or your own as package.module:Gate"
        )
    layer = registry.call(cell, f"the cell {recipe.cell}", **shape, **gate, **recipe.options)
    if not isinstance(layer, nn.Module):
        raise UserError(f"the cell {recipe.cell} made a {type(layer).__name__}, not a torch module")
    return layer


def _usual_values(kind: type[Gate] | None, task: Task) -> Options:
    """Values that fit the task's times, where a recipe does not say."""
    first, span = task.first_time, task.span
    if kind is Gaussian:
        return {"mu": (first, task.last_time), "sigma": WIDE * span}
    if kind is Phased and isinstance(task, ArrayTask):  # as the paper's for 1000 steps
        return {"tau": span, "s": (first + 0.25 * span, first + 0.65 * span)}
    return {}


def _start(recipe: Recipe, layer: nn.Module) -> None:
    weight = getattr(layer, "weight_hh_l0", None)
    known = isinstance(layer, nn.GRU) or (weight is not None and len(weight) == 4 * recipe.units)
    if not known or getattr(layer, "own_start", False):
        raise UserError(
            f"init, forget_bias and chrono are starts of an LSTM or a GRU, and {recipe.cell} has its own: leave them "
            "out"
        )
    if recipe.init is not None:
        INITIALISERS[recipe.init](layer)
    if recipe.chrono is not None:
        init.chrono_(layer, recipe.chrono)
    elif recipe.forget_bias is not None:
        init.forget_bias_(layer, recipe.forget_bias)


def _paper(task: str, gate: Options, **values: Any) -> Recipe:
    return Recipe(task, gate=gate, init="orthogonal", forget_bias=1.0, **values)


_ADDING = _paper("adding", {"mu": (300.0, 700.0), "sigma": 40.0}, optimizer="adam", gate_lr=1.0, epochs=700)
_SMNIST = _paper("smnist", {"mu": (1.0, 784.0), "sigma": 250.0}, decay=0.5, epochs=120)
_SCIFAR = _paper(
    "scifar", {"mu": (1.0, 1024.0), "sigma": 650.0}, units=128, head="deep", decay=0.9, epochs=100
)  # fmt: skip
_ADDING_1000 = _ADDING.changed(data={"steps": 1000})

# For data that nobody has tried before: rates in shares of a sequence's length, and an end that validation decides.
OWN_DATA: Options = {
    "units": 64, "optimizer": "adam", "lr": 2e-3, "gate_lr": None, "open_sigma": None, "batch": 32, "epochs": 300,
    "patience": 50, "init": "orthogonal", "forget_bias": 1.0,
}  # fmt: skip

# The first preset of a task is its default. The LSTM of each table is the same recipe with cell="lstm".
PRESETS: dict[str, Recipe] = {
    "adding-1000": _ADDING_1000,  # Table 1, Fig. 2a
    "adding-2000": _ADDING.changed(data={"steps": 2000}, gate={"mu": (500.0, 1500.0)}),  # Table 1, Fig. 2b
    "adding-mu500": _ADDING_1000.changed(gate={"mu": 500.0}),  # Fig. 3
    "adding-a1": _ADDING_1000.changed(gate={"sigma": 1.0}),  # Appendix B
    "adding-a2": _ADDING_1000.changed(gate={"mu": (0.0, 400.0)}),
    "adding-a3": _ADDING_1000.changed(gate={"mu": (600.0, 1000.0)}),
    "adding-plstm": _ADDING_1000.changed(
        cell="plstm", gate={"tau": 1000.0, "s": (250.0, 650.0), "r": 0.1}, epochs=500
    ),  # Appendix C
    "smnist": _SMNIST,  # Table 1, Fig. 2c
    "smnist-budget": _SMNIST.changed(gate={"sigma": 50.0}, budget=1.0),  # Figs. 4 and 5
    "pmnist": _SMNIST.changed(task="pmnist"),  # Table 2
    "scifar": _SCIFAR,  # Table 1, Fig. 2d
    "scifar-curriculum": _SCIFAR.changed(units=110, gate={"sigma": 50.0}, gate_lr=0.0, curriculum=True),  # Fig. 6
}
# As the paper of each cell trains it, where it says how.
PRESETS |= {
    f"smnist-{name}": _SMNIST.changed(cell=name, **getattr(cell, "recipe"))  # noqa: B009
    for name, cell in CELLS.items()
    if hasattr(cell, "recipe")
}


def own_recipe(task: str = "arrays", **values: Any) -> Recipe:
    """The recipe for a task of your own, with these changes."""
    known = [field.name for field in fields(Recipe)]
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else "gate values go into gate={'mu': ..., 'sigma': ...}"
            raise UserError(f"there is no value {name!r:.50} to train with; {hint}")
    return Recipe(task, **OWN_DATA).changed(**values)


def with_its_patience(recipe: Recipe, task: Task, asked: bool) -> Recipe:
    """Patience waits for validation. A task without that part trains for all epochs; patience that was asked for is an
    error then."""
    if not task.validation_size and not asked:
        return recipe.changed(patience=0)
    check_patience(task, recipe)
    return recipe


def own_data(path: Path | str, **data: Any) -> Recipe:
    """The recipe for a file of your own; `data` are options of `glstm.data.file_task`."""
    return own_recipe("file", data={"path": str(path), **data})


def preset(task: str, name: str | None = None) -> Recipe:
    """The named preset, which must be one of this task's; without a name, the task's first, or a plain recipe."""
    _find_task(task)
    own = {key: recipe for key, recipe in PRESETS.items() if recipe.task == task}
    if name is None:
        return next(iter(own.values()), None) or Recipe(task, **OWN_DATA)
    if name not in own:
        has = f"it has {', '.join(own)}" if own else "it has none"
        raise UserError(f"{task} has no preset {name!r}; {has}")
    return own[name]


def check_same_task(recipes: Sequence[Recipe]) -> None:
    """Networks that train together see one task."""
    for recipe in recipes[1:]:
        for name in ("task", "data"):
            ours, theirs = getattr(recipes[0], name), getattr(recipe, name)
            if ours != theirs:
                raise UserError(f"networks that train together have the same {name}, not {ours} and {theirs}")
