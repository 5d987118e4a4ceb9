"""JSON from files that nobody vouches for: how it is read, and what it must look like.

A form is a function that takes a value and its name, and raises a ValueError that says what should be there. The value
has been checked when a form returns: code behind it need not ask again.
"""

import json
import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from glstm.errors import UserError

MOST_BYTES = 2**26  # of one file: a hundred times the longest result
MOST_LEVELS = 100  # of lists and objects inside each other
MOST_WHOLE = 2**64

Form = Callable[[Any, str], object]


def read_json(path: Path, what: str, form: Form, advice: str = "") -> Any:
    """The value in this file, if it has the form; of any other it is said that it is not `what` it should be."""
    try:
        found = parse(read_text(path))
        form(found, "")
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not {what}: {in_short(error)}{advice and '; '}{advice}") from None
    return found


def read_text(path: Path) -> str:
    """Of a plain file that is not too long: a device or a pipe would never end."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a file")
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it is longer than {MOST_BYTES >> 20} MiB")
    return content.decode()


def parse(text: str) -> Any:
    """A value from JSON. What Python's own parser takes and other code would stumble over is a ValueError, too."""
    try:
        found = json.loads(text, parse_int=_whole, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level, levels = [found], 0
    while level := [part for one in level for part in _inside(one) if isinstance(part, dict | list)]:
        levels += 1
        if levels > MOST_LEVELS:
            raise ValueError(f"it is nested deeper than {MOST_LEVELS} levels")
    return found


def _inside(value: Any) -> Collection[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _whole(digits: str) -> int:
    if len(digits) > 21 or abs(int(digits)) > MOST_WHOLE:
        raise ValueError(f"it holds a whole number of {len(digits)} digits, {digits[:10]}...")
    return int(digits)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it has {twice!r:.50} twice in one object")
    return found


def in_short(error: BaseException) -> str:
    """The first line of an error of somebody else, for a sentence of ours."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{said.splitlines()[0]:.200}" if said else type(error).__name__


def wrong(value: Any, name: str, right: str) -> ValueError:
    return ValueError(f"{name or 'it'} should be {right}, not {value!r:.50}")


def text(value: Any, name: str) -> None:
    if not isinstance(value, str):
        raise wrong(value, name, "a text")


def flag(value: Any, name: str) -> None:
    if not isinstance(value, bool):
        raise wrong(value, name, "true or false")


def anything(value: Any, name: str) -> None:
    del value, name


def whole(least: int, most: int = 2**53) -> Form:
    def form(value: Any, name: str) -> None:
        if type(value) is not int or not least <= value <= most:
            raise wrong(value, name, f"a whole number from {least} to {most}")

    return form


def number(least: float = -math.inf, most: float = math.inf) -> Form:
    """A finite number."""
    sides = "" if least == -math.inf and most == math.inf else f" from {least:g} to {most:g}"

    def form(value: Any, name: str) -> None:
        if type(value) not in (int, float) or not math.isfinite(value) or not least <= value <= most:
            raise wrong(value, name, f"a finite number{sides}")

    return form


def measured(value: Any, name: str) -> None:
    """A number that may have become NaN or infinite, as a loss can."""
    if type(value) not in (int, float):
        raise wrong(value, name, "a number")


def one_of(*values: str) -> Form:
    def form(value: Any, name: str) -> None:
        if not isinstance(value, str) or value not in values:
            raise wrong(value, name, f"one of {', '.join(values)}")

    return form


def maybe(form: Form) -> Form:
    """Of that form, or null."""
    return lambda value, name: value is None or form(value, name)


def items(form: Form, *, least: int = 0, most: int | None = None) -> Form:
    """A list, each item of one form."""

    def check(value: Any, name: str) -> None:
        if not isinstance(value, list) or len(value) < least or (most is not None and len(value) > most):
            right = "a list" + (f" of at least {least}" if least else "") + (f", at most {most}" if most else "")
            raise wrong(value, name, right)
        for place, item in enumerate(value):
            form(item, f"{name}[{place}]")

    return check


def entries(needed: Mapping[str, Form], optional: Mapping[str, Form] | None = None, others: Form | None = None) -> Form:
    """An object with these entries, each of its form; `others`: what else may be in it, None for nothing else."""
    optional = optional or {}

    def check(value: Any, name: str) -> None:
        if not isinstance(value, dict):
            raise wrong(value, name, "an object of names and values")
        inside = f"{name}." if name else ""
        for key in needed:
            if key not in value:
                raise ValueError(f"{name or 'it'} has no {key}")
        for key, one in value.items():
            form = needed.get(key) or optional.get(key) or others
            if form is None:
                raise ValueError(f"{name or 'it'} has {key!r:.50}, which nobody knows")
            form(one, inside + key)

    return check
