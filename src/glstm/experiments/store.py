"""Trained networks, stored by their recipe: a recipe is trained once, even if several experiments need it.

A network's folder is a run folder while it trains. When it is finished, `summary.json` in it holds everything that
experiments measure; the rest of the folder is then needed only for new measurements. A folder may hold nothing but what
results say of a network that was trained elsewhere (`known.py`): its summary, or the verdict of validation on it.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from glstm.errors import UserError
from glstm.forms import anything, entries, flag, items, maybe, number, read_json, whole
from glstm.recipes import Recipe
from glstm.report import result_form
from glstm.storage import LOCK, lock, write_json
from glstm.training.run import RunFolder

SESSIONS = items(
    entries({"from_epoch": whole(1), "machine": result_form.machine, "sharing": whole(1)}, others=anything)
)
VERDICT = entries({"validation": maybe(number()), "operations": maybe(number(0)), "diverged": flag})


class Store:
    def __init__(self, path: Path | str):
        self.path = Path(path)

    def folder(self, recipe: Recipe) -> RunFolder:
        return RunFolder(self.path / name_of(recipe))

    def has_begun(self, recipe: Recipe) -> bool:
        """Whether it was trained here, if only in part."""
        return self.folder(recipe).config.exists()

    @contextmanager
    def claim(self, recipes: Iterable[Recipe]) -> Iterator[list[Recipe]]:
        """The networks that no other process has locked: this process has locked them until the end of the block."""
        with ExitStack() as held:
            yield [recipe for recipe in recipes if lock(self.folder(recipe).path / LOCK, held)]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other process is in such a block, so that no other writes between a read and a write here."""
        with ExitStack() as held:
            lock(self.path / LOCK, held, wait=True)
            yield

    def begin_session(self, recipe: Recipe, epoch: int, machine: dict[str, Any], sharing: int) -> None:
        """Record which machine trains this network from this epoch on: another machine or version may continue it."""
        so_far, own = self.sessions(recipe), {"machine": machine, "sharing": sharing}
        if not so_far or {name: so_far[-1][name] for name in own} != own:
            write_json(self._sessions(recipe), [*so_far, {"from_epoch": epoch, **own}])

    def sessions(self, recipe: Recipe) -> list[dict[str, Any]]:
        path = self._sessions(recipe)
        if not path.is_file():
            return []
        advice = "remove it, and where the network was trained is not known"
        return read_json(path, "a list of the sessions of training", SESSIONS, advice)

    def summary(self, recipe: Recipe) -> dict[str, Any] | None:
        """Of a finished network; None: it is not finished."""
        path = self._summary(recipe)
        if not path.is_file():
            return None
        advice = "remove it, and the network is measured again"
        summary = read_json(path, "the summary of a network", result_form.summary, advice)
        own = recipe.as_dict()
        own = json.loads(json.dumps(own))  # JSON has no tuples
        differing = [name for name, value in summary["recipe"].items() if own.get(name) != value]
        if differing:  # the folder's name holds only what was not a default then
            raise UserError(
                f"{path} is of a network with another {differing[0]}: keep it elsewhere, or use another store"
            )
        return summary

    def write_summary(self, recipe: Recipe, summary: dict[str, Any]) -> None:
        write_json(self._summary(recipe), summary)

    def forget(self, recipe: Recipe) -> None:
        """It is trained again: what was known of it is of another training."""
        self._summary(recipe).unlink(missing_ok=True)

    def verdict(self, recipe: Recipe) -> dict[str, Any] | None:
        """What validation said of a network that was trained elsewhere; None: nothing is known."""
        path = self._verdict(recipe)
        advice = "remove it, and the network is trained"
        return read_json(path, "a verdict on a network", VERDICT, advice) if path.is_file() else None

    def write_verdict(self, recipe: Recipe, verdict: dict[str, Any]) -> None:
        write_json(self._verdict(recipe), verdict)

    def _summary(self, recipe: Recipe) -> Path:
        return self.folder(recipe).path / "summary.json"

    def _sessions(self, recipe: Recipe) -> Path:
        return self.folder(recipe).path / "sessions.json"

    def _verdict(self, recipe: Recipe) -> Path:
        return self.folder(recipe).path / "verdict.json"


def name_of(recipe: Recipe) -> str:
    """Made of the recipe's values that are not defaults, so the name stays when recipes get new fields."""
    usual = Recipe(recipe.task).as_dict()
    said = {name: value for name, value in recipe.as_dict().items() if value != usual[name]}
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]
    task, cell = (re.sub(r"[^\w.-]|\.\.", "_", name) for name in (recipe.task, recipe.cell))  # a name may be a path's
    return f"{task}-{cell}-{recipe.units}-seed{recipe.seed}-{digest}"
