"""Looks up what a name stands for: a short name in a table, or `package.module:thing`, which is imported.

To import a module is to run its code. A name that the user has typed, or that a program passes, is imported. A name
from a file, which a stranger may have written, is imported only if the user has said that its module is to be trusted.
"""

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from glstm.errors import UserError

Thing = TypeVar("Thing")
TRUST = "GLSTM_TRUST"  # the variable that names modules to be trusted, with commas between
OURS = ("glstm", "torch.nn")  # what these packages hold is harmless to import

_trusted: set[str] = set()
_folder: list[Path] = []  # in which modules are looked for that are not installed


def find(name: str, table: Mapping[str, Thing], what: str) -> Thing:
    """The `what` called `name`: an entry of the table, or anything that can be imported as package.module:thing."""
    if name in table:
        return table[name]
    if ":" in name:
        return import_thing(name, what)
    known = ", ".join(table)
    raise UserError(f"there is no {what} {name!r}; there are {known}, and your own as package.module:name")


def import_thing(path: str, what: str) -> Any:
    """`package.module:thing`, where the thing may be inside another, as in module:Outer.Inner."""
    module, _, inside = path.partition(":")
    try:
        found: Any = _import(module)
        for part in inside.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"the {what} {path!r} cannot be imported: {error}") from None
    return found


def look_in(folder: Path) -> None:
    """Modules that are not installed are looked for in this folder, too; it comes last, and hides no other.

    Until such a module is asked for, the folder is not in Python's path: it may be a stranger's, and hold a file that
    is named like an optional package.
    """
    _folder[:] = [folder]


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or f"{module}.".find(f"{error.name}.") != 0 or not _folder:
            raise
    sys.path.append(str(_folder.pop()))
    importlib.invalidate_caches()
    return importlib.import_module(module)


def trust(modules: Iterable[str]) -> None:
    """The user trusts these modules, and what is in these packages."""
    _trusted.update(modules)


def is_trusted(module: str) -> bool:
    said = {*_trusted, *os.environ.get(TRUST, "").replace(" ", "").split(",")}
    return _is_in(module, said - {""})


def require_trust(name: Any, source: object) -> None:
    """For a name from a file, such as a recipe's: an error if it is one that would be imported, and is not trusted."""
    if not isinstance(name, str) or ":" not in name:
        return
    module = name.partition(":")[0]
    if not is_trusted(module):
        raise UserError(
            f"{source} names {name:.80}, and to import {module:.80} is to run its code: if you trust it, say so by "
            f"glstm --trust {module:.80} and your command, or by {TRUST}={module:.80}"
        )


def import_class(path: str, kind: type) -> Any:
    """A class of this kind, for a name from a file. It is ours, or trusted, or of a module that is imported already: to
    make an object of such a class is harmless."""
    module = path.partition(":")[0]
    if not (_is_in(module, OURS) or module in sys.modules):
        require_trust(path, "the description of a network")
    found = import_thing(path, "class")
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise ValueError(f"{path!r:.50} is not a {kind.__name__}")
    return found


def _is_in(module: str, packages: Iterable[str]) -> bool:
    return any(f"{module}.".startswith(f"{one}.") for one in packages)


def call(maker: Callable[..., Thing], what: str, **options: Any) -> Thing:
    """`maker(**options)`; what is wrong with the options is said in one sentence that names `what`."""
    try:
        inspect.signature(maker).bind(**options)
    except ValueError:
        raise UserError(f"{what} cannot be made: {maker!r:.80} does not say which options it takes") from None
    except TypeError as error:
        takes = ", ".join(accepted(maker)) or "no options"
        raise UserError(f"{what} cannot be made with these options, {error}: it takes {takes}") from None
    try:
        return maker(**options)
    except UserError:
        raise
    except (TypeError, ValueError) as error:  # a range upside down, say; or a mistake of its own, which Python shows
        why = re.sub(r"^[\w.]+\(\) ", "", str(error))  # the name of a function within torch, say, helps nobody
        raise UserError(f"{what} cannot be made: {why}") from error


def accepted(maker: Callable[..., Any]) -> list[str]:
    """Names of the options that it takes."""
    if not callable(maker):
        raise UserError(f"{maker!r:.80} makes nothing: it is neither a class nor a function")
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    try:
        parameters = inspect.signature(maker).parameters
    except ValueError:  # of something built in
        return []
    return [name for name, parameter in parameters.items() if parameter.kind in kinds]


def path_of(thing: type) -> str:
    """The path by which `import_thing` finds a class; a class made inside a function has none."""
    path = f"{thing.__module__}:{thing.__qualname__}"
    if "<locals>" in path or thing.__module__ == "__main__":
        raise UserError(
            f"{thing.__qualname__} cannot be imported by its name, so it cannot be saved: define it at the top of a "
            "module of its own"
        )
    return path
