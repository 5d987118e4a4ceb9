"""Looks up what a name stands for: a short name in a table, or `package.module:thing`, which is imported."""

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from glstm.errors import UserError

Thing = TypeVar("Thing")


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
        found: Any = importlib.import_module(module)
        for part in inside.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"the {what} {path!r} cannot be imported: {error}") from None
    return found


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
