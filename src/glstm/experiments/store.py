"""Trained networks, kept by what they were trained to be: a recipe is trained once, whoever asks for it.

A network's folder is a run folder while it trains. When it is finished, `summary.json` in it holds all that experiments
ask for; the rest of the folder is then only needed for new questions.
"""

import fcntl
import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from glstm.errors import UserError
from glstm.storage import make_folder, write_json
from glstm.training.recipe import Recipe
from glstm.training.run import RunFolder


class Store:
    def __init__(self, path: Path | str):
        self.path = Path(path)

    def folder(self, recipe: Recipe) -> RunFolder:
        """Named by what the recipe says other than by default: it keeps its name when recipes learn something new."""
        usual = Recipe(recipe.task).as_dict()
        said = {name: value for name, value in recipe.as_dict().items() if value != usual[name]}
        digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]
        return RunFolder(self.path / f"{recipe.task}-{recipe.cell}-{recipe.units}-seed{recipe.seed}-{digest}")

    @contextmanager
    def claim(self, recipes: Iterable[Recipe]) -> Iterator[list[Recipe]]:
        """Those of the networks that no other process has: they are kept from others to the end of the block.

        The system lets go of a process's locks when it ends, in whatever way.
        """
        with ExitStack() as held:
            yield [recipe for recipe in recipes if _lock(self.folder(recipe).path / ".lock", held, wait=False)]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other process is in such a block: what is read here and written is not overtaken."""
        with ExitStack() as held:
            _lock(self.path / ".lock", held, wait=True)
            yield

    def begin_session(self, recipe: Recipe, epoch: int, machine: dict[str, Any], sharing: int) -> None:
        """Note who trains this network from this epoch on: it may go on elsewhere, or by other code."""
        so_far, own = self.sessions(recipe), {"machine": machine, "sharing": sharing}
        if not so_far or {name: so_far[-1][name] for name in own} != own:
            write_json(self._sessions(recipe), [*so_far, {"from_epoch": epoch, **own}])

    def sessions(self, recipe: Recipe) -> list[dict[str, Any]]:
        path = self._sessions(recipe)
        try:
            return json.loads(path.read_text()) if path.is_file() else []
        except (OSError, ValueError) as error:
            raise UserError(
                f"{path} cannot be read ({error}): remove it, and where the network was trained is not known"
            ) from None

    def summary(self, recipe: Recipe) -> dict[str, Any] | None:
        """Of a finished network; None: it is not finished."""
        path = self._summary(recipe)
        if not path.is_file():
            return None
        try:
            summary = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read ({error}): remove it, and the network is measured again") from None
        own = recipe.as_dict()
        differing = [name for name, value in summary.get("recipe", {}).items() if own.get(name) != _as_kept(value)]
        if differing:  # the folder's name says only what was not usual then
            raise UserError(
                f"{path} is of a network with another {differing[0]}: keep it elsewhere, or use another store"
            )
        return summary

    def write_summary(self, recipe: Recipe, summary: dict[str, Any]) -> None:
        write_json(self._summary(recipe), summary)

    def _summary(self, recipe: Recipe) -> Path:
        return self.folder(recipe).path / "summary.json"

    def _sessions(self, recipe: Recipe) -> Path:
        return self.folder(recipe).path / "sessions.json"


def _lock(path: Path, held: ExitStack, *, wait: bool) -> bool:
    """Lock until `held` is closed; False: another process has it, and there is no waiting."""
    make_folder(path.parent)
    try:
        fcntl.flock(held.enter_context(path.open("w")), fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        raise UserError(f"{path} cannot be locked against other processes: {error.strerror}") from None
    return True


def _as_kept(value: Any) -> Any:
    """JSON has no tuples."""
    return tuple(value) if isinstance(value, list) else value
