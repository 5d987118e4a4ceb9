"""C source: the code that is exported, and arrays, numbers and strings in it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import wrap

import numpy as np

NATIVE = Path(__file__).parents[1] / "native"


def c_array(name: str, array: np.ndarray) -> str:
    values = array.flatten().tolist() or [0] * 4  # C has no empty arrays; and a column has four numbers
    kind = {"u": f"uint{8 * array.itemsize}_t", "i": f"int{8 * array.itemsize}_t", "f": "float"}[array.dtype.kind]
    large = array.dtype == np.uint64  # no signed type holds its largest numbers
    words = map(c_float, values) if array.dtype.kind == "f" else (f"{value}{'u' * large}" for value in values)
    return f"static const {kind} {name}[] = {{\n{_lines(words)}\n}};"


def c_arrays(
    prefix: str, arrays: dict[str, np.ndarray | None], first: Sequence[int | str], last: list[str]
) -> tuple[str, str]:
    """The arrays, and a row of a struct: what comes first, places of the arrays, what comes last."""
    data = "\n".join(c_array(f"{prefix}_{name}", array) for name, array in arrays.items() if array is not None)
    places = ["0" if array is None else f"{prefix}_{name}" for name, array in arrays.items()]
    return data, "{" + ", ".join([*map(str, first), *places, *last]) + "}"


def _lines(words: Iterable[str]) -> str:
    return "\n".join(wrap(", ".join(words), 120, initial_indent="  ", subsequent_indent="  "))


def c_float(value: float) -> str:
    """The shortest decimal that is the same float32."""
    if not np.isfinite(value):
        return "NAN" if np.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
    text = np.format_float_scientific(np.float32(value), trim="0", unique=True)
    return f"{text}f"


def c_string(text: str) -> str:
    """A literal of any text, as UTF-8. An octal escape ends after three digits, whatever follows."""
    plain = {byte: chr(byte) for byte in range(32, 127)} | {ord(sign): f"\\{sign}" for sign in '"\\?'}
    return '"' + "".join(plain.get(byte, f"\\{byte:03o}") for byte in text.encode("utf-8", "replace")) + '"'


def resolved(text: str, name: str, defined: bool) -> str:
    """C without its `#ifdef name` and `#ifndef name`: only what is compiled where it is, or is not, defined."""
    kept, nesting = [], []  # of each condition that is open: whether it is about the name, and whether its part counts
    for line in text.splitlines(keepends=True):
        words = line.split()
        keep = all(counts for _, counts in nesting)
        if words[:1] in (["#if"], ["#ifdef"], ["#ifndef"]):
            own = words[1:] == [name]
            nesting.append((own, not own or (words[0] == "#ifdef") == defined))
            keep = keep and not own
        elif words[:1] == ["#else"]:
            own, counts = nesting[-1]
            nesting[-1] = own, not own or not counts
            keep = all(counts for _, counts in nesting) and not own
        elif words[:1] == ["#endif"]:
            own, _ = nesting.pop()
            keep = all(counts for _, counts in nesting) and not own
        if keep:
            kept.append(line)
    return "".join(kept)
