"""A recipe: every value that decides what a training run computes, and the paper's own recipes by name."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from glstm.data import TASKS
from glstm.errors import UserError
from glstm.gates import Gaussian, Phased
from glstm.ops import CANDIDATES

Spread = float | tuple[float, float]  # one number for all units, or a range to draw from

CELLS = ("glstm", "plstm", "lstm")
OPTIMIZERS = ("adam", "rmsprop", "sgd")
INITIALISERS = ("orthogonal", "xavier", "torch")
HEADS = ("linear", "deep")
SCHEDULES = ("constant", "linear", "cosine")

# What networks that train together have in common; everything else in a recipe may differ between them.
SHARED = (
    "task", "steps", "train_size", "test_size", "shift", "units", "layers", "head", "candidate", "optimizer", "batch",
    "segment", "epochs",
)  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    task: str
    steps: int | None = None  # None: the task's own length
    train_size: int | None = None  # None: all there is
    test_size: int | None = None
    shift: int = 0  # pixels by which a training image may move, anew in every epoch

    cell: str = "glstm"
    units: int = 110
    layers: int = 1
    head: str = "linear"
    candidate: str = "tanh"
    mu: Spread = (1.0, 784.0)
    sigma: Spread = 250.0
    tau: Spread = 1000.0
    s: Spread = (250.0, 650.0)
    r: Spread = 0.1
    threshold: float = 0.0  # v_T while training

    init: str = "orthogonal"
    forget_bias: float = 1.0
    chrono: float | None = None  # T_max; replaces the forget bias

    optimizer: str = "rmsprop"
    lr: float = 1e-3
    decay: float = 0.9  # RMSProp's; Adam and SGD do not use it
    gate_lr: float = 0.1
    schedule: str = "constant"  # how lr and gate_lr fall to 0 over the epochs
    clip: float = 1.0  # norm of the weights' gradient; 0: no clipping
    batch: int = 100
    segment: int | None = None  # steps between kept states; None: everything is kept for the backward pass
    epochs: int = 100
    budget: float = 0.0  # lambda
    budget_epochs: int = 0  # over which lambda rises to that; 0: at once

    curriculum: bool = False
    alpha: float = 1 / 6
    rho: float = 0.15
    open_epochs: int = 10  # at the end of a curriculum, with every gate at open_sigma
    open_sigma: float = 5000.0

    seed: int = 0

    def __post_init__(self):
        for name, choices in (
            ("task", TASKS),
            ("cell", CELLS),
            ("optimizer", OPTIMIZERS),
            ("init", INITIALISERS),
            ("head", HEADS),
            ("candidate", CANDIDATES),
            ("schedule", SCHEDULES),
        ):
            if getattr(self, name) not in choices:
                raise UserError(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}")
        for field in fields(self):
            value = getattr(self, field.name)
            numbers = value if isinstance(value, tuple) else (value,)
            if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
                raise UserError(f"{field.name} must be finite, not {value!r}")
        if not -(2**63) <= self.seed < 2**63:
            raise UserError(f"seed must fit 64 bits, but {self.seed} does not")
        for name in ("units", "layers", "batch", "segment", "epochs", "steps", "train_size", "test_size"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise UserError(f"{name} must be at least 1, not {value}")
        for name in ("shift", "gate_lr", "clip", "budget", "budget_epochs", "open_epochs"):
            if not getattr(self, name) >= 0:
                raise UserError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.budget_epochs > self.epochs:
            raise UserError(f"budget_epochs is at most epochs, {self.epochs} here, not {self.budget_epochs}")
        if not self.lr > 0:
            raise UserError(f"lr must be above 0, not {self.lr}")
        if not self.alpha > 0:
            raise UserError(f"alpha must be above 0, not {self.alpha}")
        if not 0 < self.rho <= 1:
            raise UserError(f"rho must be above 0 and at most 1, not {self.rho}")
        if not 0 <= self.decay < 1:
            raise UserError(f"decay must be at least 0 and below 1, not {self.decay}")
        if not 0 <= self.threshold < 1:
            raise UserError(f"threshold must be at least 0 and below 1, not {self.threshold}")
        for name in (*Gaussian.names, *Phased.names):
            value = getattr(self, name)
            if isinstance(value, tuple) and not (len(value) == 2 and value[0] <= value[1]):
                raise UserError(f"{name} as a range must be (low, high) with low <= high, not {value}")
        if self.chrono is not None and not self.chrono > 2:
            raise UserError(f"chrono is a T_max above 2 steps, not {self.chrono}")
        if self.curriculum and self.cell != "glstm":
            raise UserError(f"a temporal curriculum widens Gaussian gates, so it needs cell=glstm, not {self.cell}")
        if self.budget and self.cell == "lstm":
            raise UserError("a budget charges for openness, and the lstm cell is always open: use glstm or plstm")

        if self.budget_epochs and not self.budget:
            raise UserError(f"budget_epochs is how long a budget takes to rise, but budget is {self.budget}")

    def rate_share(self, epoch: int) -> float:
        """Of lr and gate_lr, as the schedule has it in this epoch, counted from 1."""
        done = (epoch - 1) / self.epochs
        match self.schedule:
            case "linear":
                return 1 - done
            case "cosine":
                return (1 + math.cos(math.pi * done)) / 2
            case _:
                return 1.0

    def budget_in(self, epoch: int) -> float:
        """lambda in this epoch, counted from 1."""
        return self.budget * min(1.0, epoch / self.budget_epochs) if self.budget_epochs else self.budget

    def changed(self, **values: Any) -> "Recipe":
        return replace(self, **values)

    def at_length(self, steps: int) -> "Recipe":
        """The same recipe for sequences of another length: the gates' times are stretched along."""
        if self.steps is None:
            return self.changed(steps=steps)  # which the task will judge

        def stretched(value: Spread) -> Spread:
            share = steps / self.steps if self.steps else 1.0
            return (share * value[0], share * value[1]) if isinstance(value, tuple) else share * value

        times = {name: stretched(getattr(self, name)) for name in ("mu", "sigma", "tau", "s")}
        return self.changed(steps=steps, **times)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Recipe":
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise UserError(f"the recipe has entries this version does not know: {', '.join(unknown)}")
        # JSON has no tuples
        as_given: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
        }
        try:
            return cls(**as_given)
        except TypeError as error:  # 'x' where a number belongs
            raise UserError(f"the recipe holds a value of the wrong kind: {error}") from None


_ADDING = Recipe("adding", optimizer="adam", gate_lr=1.0, mu=(300.0, 700.0), sigma=40.0, epochs=700)
_SMNIST = Recipe("smnist", decay=0.5, mu=(1.0, 784.0), sigma=250.0, epochs=120)
_SCIFAR = Recipe("scifar", units=128, head="deep", decay=0.9, mu=(1.0, 1024.0), sigma=650.0, epochs=100)

# The first preset of a task is its default. The LSTM of each table is the same recipe with cell="lstm".
PRESETS: dict[str, Recipe] = {
    "adding-1000": _ADDING.changed(steps=1000),  # Table 1, Fig. 2a
    "adding-2000": _ADDING.changed(steps=2000, mu=(500.0, 1500.0)),  # Table 1, Fig. 2b
    "adding-mu500": _ADDING.changed(steps=1000, mu=500.0),  # Fig. 3
    "adding-a1": _ADDING.changed(steps=1000, sigma=1.0),  # Appendix B
    "adding-a2": _ADDING.changed(steps=1000, mu=(0.0, 400.0)),
    "adding-a3": _ADDING.changed(steps=1000, mu=(600.0, 1000.0)),
    "adding-plstm": _ADDING.changed(steps=1000, cell="plstm", epochs=500),  # Appendix C
    "smnist": _SMNIST,  # Table 1, Fig. 2c
    "smnist-budget": _SMNIST.changed(sigma=50.0, budget=1.0),  # Figs. 4 and 5
    "pmnist": _SMNIST.changed(task="pmnist"),  # Table 2
    "scifar": _SCIFAR,  # Table 1, Fig. 2d
    "scifar-curriculum": _SCIFAR.changed(units=110, sigma=50.0, gate_lr=0.0, curriculum=True),  # Fig. 6
}


def check_together(recipes: Sequence[Recipe], names: Sequence[object] = ()) -> None:
    """Whether these can train together; `names` are what their owner calls them."""
    if not recipes:
        raise UserError("a population needs at least one recipe")
    for name in SHARED:
        for number, recipe in enumerate(recipes):
            one, other = getattr(recipes[0], name), getattr(recipe, name)
            if one != other:
                who = f" ({names[0]} and {names[number]})" if names else ""
                hint = "; --epochs gives all of them the same" if names and name == "epochs" else ""
                raise UserError(f"networks that train together have the same {name}, not {one} and {other}{who}{hint}")


def preset(task: str, name: str | None = None) -> Recipe:
    """The named preset, which must be one of this task's; without a name, the task's first."""
    if task not in TASKS:
        raise UserError(f"there is no task {task!r}; the tasks are {', '.join(TASKS)}")
    own = {key: recipe for key, recipe in PRESETS.items() if recipe.task == task}
    if name is None:
        return next(iter(own.values()))
    if name not in own:
        raise UserError(f"{task} has no preset {name!r}; it has {', '.join(own)}")
    return own[name]
