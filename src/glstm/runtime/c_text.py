"""Constants as C source: arrays, numbers and strings."""

from collections.abc import Iterable
from textwrap import wrap

import numpy as np


def c_array(name: str, array: np.ndarray) -> str:
    values = array.flatten().tolist() or [0] * 4  # C has no empty arrays; and a column has four numbers
    kind = {"u": f"uint{8 * array.itemsize}_t", "i": "int8_t", "f": "float"}[array.dtype.kind]
    words = map(c_float, values) if array.dtype.kind == "f" else map(str, values)
    return f"static const {kind} {name}[] = {{\n{_lines(words)}\n}};"


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
