"""One run of those that train together: its network, its folder, and the record of its epochs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from glstm.errors import UserError
from glstm.training.best import Rule, best_of, is_over, last_is_best, values_of
from glstm.training.display import EpochRow, LossRow
from glstm.training.run import RunFolder, resume_options
from glstm.training.settings import Settings

Place = tuple[int, int]  # epoch, and batch in it, to train on next
MAY_CHANGE = ("epochs", "on_nan")  # settings of a run that is resumed


@dataclass(eq=False)
class Run:
    """One member of the population, with its folder and its records."""

    settings: Settings
    folder: RunFolder
    model: Any  # a module of any class
    gates_before: Tensor | None  # k (T, H) of the first gated layer, on the CPU
    rule: Rule  # which epoch is the best
    resumed_at: Place = (1, 0)  # the place of the checkpoint from which it went on
    saved_at: Place = (1, 0)  # and of the last one
    failure: str = ""  # where and how its numbers stopped being finite
    history: list[EpochRow] = field(default_factory=list)
    losses: list[LossRow] = field(default_factory=list)
    result: dict[str, Any] | None = None  # of the best epoch, once training is at its end
    best: dict[str, Tensor] | None = None  # the network's values after the best epoch; None: there is no validation

    @property
    def best_row(self) -> EpochRow:
        return best_of(self.history, self.rule)

    @property
    def is_done(self) -> bool:
        """Whether its patience is at an end."""
        return is_over(self.history, self.rule, self.settings.patience)

    def keep_if_best(self) -> None:
        """After a new line in the history."""
        if last_is_best(self.history, self.rule):
            self.best = values_of(self.model)

    @contextmanager
    def at_its_best(self) -> Iterator[None]:
        """Inside it, the network has the values of its best epoch."""
        if self.best is None:
            yield
            return
        last = values_of(self.model)
        self.model.load_state_dict(self.best)
        try:
            yield
        finally:
            self.model.load_state_dict(last)

    def check_settings(self, before: Settings) -> None:
        """Of settings that go on, only the number of epochs may have changed, and what to do about nan."""
        now, then, path = self.settings.settings_as_dict(), before.settings_as_dict(), self.folder.path
        for name in now:
            if name not in MAY_CHANGE and now[name] != then[name]:
                raise UserError(
                    f"{path} was trained with {name} {then[name]}, and goes on with it, not with {now[name]}"
                )

    def check_epochs(self, before: Settings, done: int) -> None:
        """And not always that."""
        epochs, path = self.settings.epochs, self.folder.path
        if epochs < done:
            raise UserError(f"{path} has been trained for {done} epochs already: --epochs {epochs} is less")
        if epochs == before.epochs:
            return
        if before.curriculum and done > before.epochs - before.open_epochs:
            raise UserError(f"the curriculum of {path} has opened its gates: its epochs cannot change now")
        if before.sparsity and done:
            raise UserError(f"the epochs of {path} decide when it is pruned: they cannot change now")
        if before.schedule != "constant" and done:
            raise UserError(f"the {before.schedule} schedule of {path} has begun: its epochs cannot change now")


def divergence(lost: list[Run], others: list[Run], over: bool) -> str:
    """A sentence about runs whose numbers are no longer finite. `over`: the others have trained to the end."""
    names = "; ".join(f"{run.folder.path} (seed {run.settings.seed}): {run.failure}" for run in lost)
    text = f"{names}: training diverged; lower lr or gate_lr, or clip harder"
    if all(run.best is not None for run in lost):
        text += "; the best epoch before that is kept"
    (epoch, batch), again = lost[0].saved_at, resume_options(run.folder.path for run in lost)
    text += f"; what was saved before epoch {epoch}, batch {batch + 1} is intact"
    if any(run.settings.on_nan == "stop" for run in lost):
        text += f", and {again} --on-nan skip goes on from there without such updates"
    if others and over:
        text += f"; the other {len(others)} are finished"
    elif others:
        text += f"; the others go on with {resume_options(run.folder.path for run in others)}"
    return text
