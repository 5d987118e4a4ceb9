"""How to train, whatever the task and the network are."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

import torch

from glstm.errors import UserError
from glstm.training.optimizers import OPTIMIZERS

SCHEDULES = ("constant", "linear", "cosine")
ON_NAN = ("stop", "skip")

# What networks that train together have in common; everything else may differ between them.
SHARED = ("optimizer", "batch", "epochs")

MAY_BE_NONE = ("gate_lr", "open_sigma")  # because it depends on the task
LARGEST = torch.finfo(torch.float32).max
MOST_DROPPED = 0.99  # of the recurrent weights: those that are kept are then a hundred times as large
OPEN_SPANS = 6.0  # sigma in lengths of a sequence at the end of a curriculum; the paper's 5000 of 784 steps is 6.4


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every value that decides how a network learns: the same values, task and initial network give the same result.

    Gates have a learning rate of their own. A budget, a curriculum and the gates' rate need a network with gates.

    Attributes:
        optimizer: "rmsprop", "adam" or "sgd".
        lr: The learning rate of the weights.
        decay: RMSProp's; Adam and SGD do not use it.
        gate_lr: The gates' rate, in the unit of the task's times; None: lr times the length of a sequence.
        schedule: How lr and gate_lr fall to 0 over the epochs: "constant" (not at all), "linear" or "cosine".
        clip: The largest norm of the weights' gradient; 0: no clipping.
        batch: Sequences in a batch.
        epochs: How many at most.
        patience: Stop so many epochs after the best by validation; 0: do not.
        budget: lambda, the charge for mean openness.
        budget_epochs: lambda rises to `budget` over so many epochs; 0: it is constant.
        on_nan: What to do when a loss or a value becomes nan or infinite: "stop", or "skip" that update.
        sparsity: The share of a gated layer's weights that are set to 0 in training, the smallest; 0: none
            (`glstm.training.pruning`).
        prune_from: After which share of the epochs that begins.
        prune_until: After which share of the epochs no more are; with those left the network trains on.
        weight_drop: The share of the weights from state to state, matrices named weight_hh in any part of the network,
            that each update leaves out, drawn at random; 0: none (`glstm.training.weight_drop`).
        curriculum: Whether a `TemporalCurriculum` widens the gates.
        alpha: By which share the curriculum widens a gate in an epoch.
        rho: The share of units that it widens.
        open_epochs: At the end of a curriculum, so many with every gate at `open_sigma`.
        open_sigma: The width of open gates; None: six times the length of a sequence.
        seed: Of everything that is drawn.
    """

    optimizer: str = "rmsprop"
    lr: float = 1e-3
    decay: float = 0.9
    gate_lr: float | None = 0.1
    schedule: str = "constant"
    clip: float = 1.0
    batch: int = 100
    epochs: int = 100
    patience: int = 0
    budget: float = 0.0
    budget_epochs: int = 0
    on_nan: str = "stop"

    sparsity: float = 0.0
    prune_from: float = 0.2
    prune_until: float = 0.6

    weight_drop: float = 0.0

    curriculum: bool = False
    alpha: float = 1 / 6
    rho: float = 0.15
    open_epochs: int = 10
    open_sigma: float | None = 5000.0

    seed: int = 0

    def __post_init__(self):
        for field in fields(Settings):
            if not (field.name in MAY_BE_NONE and getattr(self, field.name) is None):
                self._check_type(field.name, type(field.default))
        for name, choices in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES), ("on_nan", ON_NAN)):
            if getattr(self, name) not in choices:
                raise UserError(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r:.50}")
        if not -(2**63) <= self.seed < 2**63:
            raise UserError(f"seed must fit 64 bits, but {self.seed} does not")
        for name in ("batch", "epochs"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("gate_lr", "clip", "budget", "budget_epochs", "open_epochs", "patience"):
            if not (getattr(self, name) or 0) >= 0:
                raise UserError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.budget_epochs > self.epochs:
            raise UserError(f"budget_epochs is at most epochs, {self.epochs} here, not {self.budget_epochs}")
        if self.budget_epochs and not self.budget:
            raise UserError(f"budget_epochs is how long a budget takes to rise, but budget is {self.budget}")
        for name in ("lr", "gate_lr"):
            if (getattr(self, name) or 0) > LARGEST:
                raise UserError(f"{name} must be at most {LARGEST:.2g}, the largest float32, not {getattr(self, name)}")
        for name in ("lr", "alpha"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be above 0, not {getattr(self, name)}")
        if not 0 <= self.sparsity < 1:
            raise UserError(f"sparsity is a share of the weights, at least 0 and below 1, not {self.sparsity}")
        if not 0 <= self.weight_drop <= MOST_DROPPED:
            raise UserError(f"weight_drop is a share of the weights, from 0 to {MOST_DROPPED}, not {self.weight_drop}")
        if not 0 <= self.prune_from <= self.prune_until <= 1:
            raise UserError(
                "prune_from and prune_until are shares of the epochs, from 0 to 1, and the first is not the larger: "
                f"not {self.prune_from} and {self.prune_until}"
            )
        if not 0 < self.rho <= 1:
            raise UserError(f"rho must be above 0 and at most 1, not {self.rho}")
        if not 0 <= self.decay < 1:
            raise UserError(f"decay must be at least 0 and below 1, not {self.decay}")

    def _check_type(self, name: str, kind: type) -> None:
        """JSON and callers may pass anything. A whole number is accepted for a float."""
        value = getattr(self, name)
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise UserError(f"{name} must be of type {kind.__name__}, not {value!r:.50}")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{name} must be finite, not {value!r}")

    @property
    def trains_gates(self) -> bool:
        """Whether the optimiser changes the gates' values; with a curriculum, the curriculum changes them."""
        return self.gate_lr != 0 and not self.curriculum

    def rate_share(self, epoch: int) -> float:
        """The schedule's factor for lr and gate_lr in this epoch, counted from 1."""
        done = (epoch - 1) / self.epochs
        match self.schedule:
            case "linear":
                return 1 - done
            case "cosine":
                return (1 + math.cos(math.pi * done)) / 2
            case _:
                return 1.0

    def gate_rate(self, span: float) -> float:
        """The gates' rate for sequences of this length in time."""
        return self.lr * span if self.gate_lr is None else self.gate_lr

    def check_rate(self, span: float, unit: float = 1.0) -> None:
        """Whether the gates' rate can be used for sequences of this length, by gates that count time in this unit."""
        if not self.curriculum and self.gate_rate(span) > LARGEST * unit:
            of = f"lr, {self.lr:g}, times the length of a sequence, {span:g}," if self.gate_lr is None else "gate_lr"
            in_unit = "" if unit == 1 else f" in the layer's unit of {unit:g}"
            raise UserError(f"{of} is the gates' rate{in_unit} and too large for float32: choose a smaller one")

    def sigma_of_open(self, span: float) -> float:
        """The sigma of open gates, for sequences of this length in time."""
        return OPEN_SPANS * span if self.open_sigma is None else self.open_sigma

    def budget_in(self, epoch: int) -> float:
        """lambda in this epoch, counted from 1."""
        return self.budget * min(1.0, epoch / self.budget_epochs) if self.budget_epochs else self.budget

    @property
    def pruned_in(self) -> int:
        """The first epoch in which no weight is left to be pruned; 1 if none ever is."""
        return max(1, math.ceil(self.prune_until * self.epochs)) if self.sparsity else 1

    def sparsity_in(self, epoch: int) -> float:
        """The share of weights that are 0 in this epoch, counted from 1."""
        if epoch >= self.pruned_in:
            return self.sparsity
        first, last = self.prune_from * self.epochs, self.prune_until * self.epochs
        left = (last - epoch) / (last - first) if epoch > first else 1.0
        return self.sparsity * (1 - left**3)

    def changed(self, **values: Any) -> Self:
        """A copy with these changes."""
        return replace(self, **values)

    def settings_as_dict(self) -> dict[str, Any]:
        """Only the fields of Settings, also from a Recipe."""
        own = {field.name for field in fields(Settings)}
        return {name: value for name, value in asdict(self).items() if name in own}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """From JSON."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise UserError(f"there are entries this version does not know: {', '.join(unknown)}")
        return cls(**values)


def check_together(settings: Sequence[Settings], names: Sequence[object] = ()) -> None:
    """Whether networks with these settings can train together; `names` are their names in error messages."""
    if not settings:
        raise UserError("a population needs at least one network")
    for name in SHARED:
        for number, other in enumerate(settings):
            ours, theirs = getattr(settings[0], name), getattr(other, name)
            if ours != theirs:
                who = f" ({names[0]} and {names[number]})" if names else ""
                hint = "; --epochs gives all of them the same" if names and name == "epochs" else ""
                raise UserError(
                    f"networks that train together have the same {name}, not {ours} and {theirs}{who}{hint}"
                )
