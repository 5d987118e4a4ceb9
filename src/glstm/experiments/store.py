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
    def claim(self, recipes: Iterable[Recipe]) -> Iterator[bool]:
        """Keep other processes off these networks; False: one of them is another's already, and none is kept.

        The system lets go of a process's locks when it ends, in whatever way.
        """
        with ExitStack() as kept:
            for recipe in recipes:
                folder = self.folder(recipe).path
                make_folder(folder)
                lock = kept.enter_context((folder / ".lock").open("w"))
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    kept.close()
                    yield False
                    return
            yield True

    def sign(self, recipe: Recipe, epoch: int, trainer: dict[str, Any]) -> None:
        """Note who trains this network from this epoch on: it may have begun elsewhere."""
        so_far = self.signed(recipe)
        if not so_far or so_far[-1]["trainer"] != trainer:
            write_json(self._signatures(recipe), [*so_far, {"from_epoch": epoch, "trainer": trainer}])

    def signed(self, recipe: Recipe) -> list[dict[str, Any]]:
        path = self._signatures(recipe)
        return json.loads(path.read_text()) if path.is_file() else []

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

    def _signatures(self, recipe: Recipe) -> Path:
        return self.folder(recipe).path / "trained_by.json"


def _as_kept(value: Any) -> Any:
    """JSON has no tuples."""
    return tuple(value) if isinstance(value, list) else value
