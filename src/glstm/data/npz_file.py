"""Sequences from NumPy's .npz files: one array x, y, times, lengths; or one of each for every part, as in x_train."""

import io
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glstm.data.labels import (
    are_labels,
    doubts_about_classes,
    doubts_about_minus_one,
    in_order,
    labels_of,
    minus_one_is_a_class,
    one_label_each,
)
from glstm.data.parsing import existing_file, quoted, refuse_bombs
from glstm.data.sequences import PARTS, Floats, Sequences
from glstm.errors import DataError

OF_A_PART = ("x", "y", "times", "lengths")
OF_ALL = ("classes", "channels", "targets")
VALUES = "add --values (values=True), or store them as floats"

Array = NDArray[Any]


@dataclass(frozen=True)
class Raw:
    """The targets of a part, cut to the lengths of its sequences: one row of all, or one for each sequence."""

    rows: list[Array]
    per_step: bool


def read_npz(
    path: Path | str, *, per_step: bool | None = None, classes: bool | None = None, minus_one: bool | None = None
) -> dict[str, Sequences]:
    """The parts of an .npz file: "all", or those of "train", "validation" and "test" that it has.

    - x: (N, T, D) numbers, or (N, T) for one input; NaN is a missing one.
    - y: text, truth values and whole numbers are classes; floats are values, even if they are whole.
      (N,) is one for each sequence, (N, K) K values for each, (N, T) or (N, T, K) those of each step. For (N, T), see
      `per_step`. An empty text is a missing label of a step, and so is -1.
    - times: (T,) or (N, T); dates become seconds since 1970-01-01 UTC. Without a part's name, (T,) is for all parts.
    - lengths: (N,) how many steps of each sequence count; the rest is padding and is cut.
    - classes: names of the classes, in order. If they are whole numbers, y names them; else a whole y counts from 0.
    - channels, targets: names of the inputs and of the K target values.

    `per_step` says whether y has a target for each step. By default a second dimension of y as long as x's, and longer
    than 1, says so. `classes=False`: whole numbers are values. `minus_one`: whether -1 at a step is a class; by default
    it is one if any part has a number below it or `classes` has it.
    """
    path = existing_file(path)
    try:
        arrays = load(path)
        raw = {name: group(arrays, name) for name in parts(arrays)}
        shared = {name: names(arrays, name) for name in OF_ALL}
        if classes is False:
            as_values(raw, shared["classes"])
        check_kinds(raw, shared["classes"])
        made: dict[str, Sequences] = {}
        found: dict[str, Raw] = {}
        for name, arrays_of in raw.items():
            with naming(name):
                made[name], own = part(arrays_of, shared, per_step, arrays.get("times"))
                found |= {} if own is None else {name: own}
        if minus_one is None:
            minus_one = minus_one_is_a_class([row for own in found.values() for row in own.rows], shared["classes"])
        for name, own in found.items():
            with naming(name):
                made[name] = replace(made[name], y=targets(own, shared["classes"], minus_one))
        labels = all_labels(made.values())
        names_of_classes = shared["classes"] or (in_order(labels) if labels else None)
        value_names = None if names_of_classes is not None else shared["targets"]
        doubts: tuple[str, ...] = ()
        if shared["classes"] is None:
            steps = [row for own in found.values() if own.per_step and not minus_one for row in own.rows]
            doubts = doubts_about_minus_one(steps, names_of_classes)
            doubts += doubts_about_classes(labels, names_of_classes, "add --values (values=True)")
        for name, own in made.items():
            with naming(name):
                made[name] = replace(own, classes=names_of_classes, targets=value_names, doubts=doubts).checked()
        agree(made)
    except DataError as error:
        raise DataError(f"{path.name}: {error}") from None
    return made


def load(path: Path) -> dict[str, Array]:
    """The arrays of the file by name. Pickles are never loaded."""
    known = {*OF_ALL, "times", *OF_A_PART, *(f"{name}_{part}" for name in OF_A_PART for part in PARTS)}
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            found = [entry.filename.removesuffix(".npy") for entry in entries]
            if unknown := [name for name in found if name not in known]:
                raise DataError(
                    f"the array {quoted(unknown[0])} is not known; known are {', '.join(OF_A_PART + OF_ALL)}, and "
                    f"x_train, x_validation, x_test and so on for parts"
                )
            if len(set(found)) < len(found):
                raise DataError("two arrays have the same name")
            unpacked = sum(entry.file_size for entry in entries)
            refuse_bombs(unpacked, path.stat().st_size, "store such arrays uncompressed, with numpy.savez")
            return {name: array(archive.read(entry), name) for name, entry in zip(found, entries)}
    except DataError:
        raise
    except Exception as error:  # broken bytes make zipfile and its decompressors raise errors of many kinds
        raise DataError(f"it is no .npz file, or it is broken: {one_line(error)}") from None


def array(content: bytes, name: str) -> Array:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about files that Python 2 wrote
            values = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except Exception as error:  # broken headers are evaluated, and raise errors of many kinds
        if "allow_pickle" in str(error):
            raise DataError(
                f"the array {name} holds Python objects, which are never loaded; store sequences of unequal lengths as "
                f"one array padded to the longest, with their lengths in an array named lengths"
            ) from None
        raise DataError(f"the array {name} is broken: {one_line(error)}") from None
    if values.size > len(content):  # texts of no characters: a header alone can claim any number of them
        raise DataError(f"the array {name} is broken: it claims {values.size:,} values in {len(content):,} bytes")
    if values.dtype.kind == "S":
        try:
            return np.char.decode(values, "utf-8")
        except UnicodeDecodeError:
            raise DataError(f"the array {name} holds bytes that are not text in UTF-8") from None
    if values.dtype.kind == "U" and values.size:
        try:
            values.tolist()
        except (ValueError, SystemError):
            raise DataError(f"the array {name} holds text with characters that do not exist") from None
    return values


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def parts(arrays: dict[str, Array]) -> list[str]:
    found = [name for name in PARTS if f"x_{name}" in arrays]
    if found and "times" in arrays and arrays["times"].ndim != 1:
        raise DataError(
            "times without a part's name must be (T,), for all parts; store others as times_train and so on"
        )
    if "x" in arrays and found:
        raise DataError(f"it has both x and x_{found[0]}; store either the whole or its parts")
    if "x" not in arrays and not found:
        raise DataError("it has no array x, nor x_train, x_validation or x_test")
    used = {f"_{name}" for name in found} or {""}
    for name in arrays:
        kind, _, own = name.partition("_")
        if kind in OF_A_PART and name != "times" and (f"_{own}" if own else "") not in used:
            raise DataError(f"it has {name}, but no {'_'.join(['x', *([own] if own else [])])}")
    return found or ["all"]


def group(arrays: dict[str, Array], part: str) -> dict[str, Array]:
    """The arrays of one part, under their short names."""
    ending = "" if part == "all" else f"_{part}"
    return {name: arrays[name + ending] for name in OF_A_PART if name + ending in arrays}


def names(arrays: dict[str, Array], which: str) -> tuple[str, ...] | None:
    if (values := arrays.get(which)) is None:
        return None
    if values.ndim != 1 or values.dtype.kind not in "Uiu":
        raise DataError(f"{which} must be a list of names, not {described(values)}")
    result = tuple(map(str, values.tolist()))
    if len(set(result)) < len(result):
        raise DataError(f"{which} must hold different names")
    if "" in result and which != "classes":
        raise DataError(f"{which} must hold names, none of them empty")
    return result


def described(values: Array) -> str:
    return f"{values.dtype} of shape {values.shape}"


def are_classes(y: Array) -> bool:
    if y.dtype.kind not in "Ubiuf":
        raise DataError(f"y must be numbers or text, not {described(y)}")
    return are_labels(y)


def as_values(raw: dict[str, dict[str, Array]], given: tuple[str, ...] | None) -> None:
    """Makes whole numbers floats, which are values."""
    if given is not None:
        raise DataError("classes are named, so the targets are not values: leave out the one or the other")
    for arrays in raw.values():
        if "y" in arrays:
            if arrays["y"].dtype.kind not in "biuf":
                raise DataError(f"y must hold numbers to be values, not {described(arrays['y'])}")
            arrays["y"] = floats(arrays["y"])


def check_kinds(raw: dict[str, dict[str, Array]], given: tuple[str, ...] | None) -> None:
    """Targets of all parts must be of one kind."""
    targets = [arrays["y"] for arrays in raw.values() if "y" in arrays]
    if len({are_classes(y) for y in targets}) > 1:
        raise DataError("y holds classes in one part and values in another")
    if given is not None and targets and not are_classes(targets[0]):
        raise DataError("classes are named, but y holds floats, which are values; store y as whole numbers or text")
    if len({y.dtype.kind.replace("u", "i") for y in targets}) > 1:
        raise DataError("y names classes in different ways in different parts")


def all_labels(made: Iterable[Sequences]) -> list[Array]:
    """Those of all parts, which have the same classes; none if the targets are values."""
    rows: list[Any] = []
    for own in made:
        if own.y is not None:
            rows += own.y if isinstance(own.y, list) else [own.y]
    return [row for row in rows if row.dtype.kind == "U"]


def part(
    arrays: dict[str, Array],
    shared: dict[str, tuple[str, ...] | None],
    per_step: bool | None,
    times_of_all: Array | None,
) -> tuple[Sequences, Raw | None]:
    """One part as sequences without targets, and these: what they mean is decided for all parts together."""
    x = inputs(arrays["x"])
    lengths = cut_lengths(arrays.get("lengths"), len(x), x.shape[1])
    times, unit = cut_times(arrays.get("times", times_of_all), lengths, x.shape[1])
    y = raw_targets(arrays["y"], lengths, x.shape[1], per_step) if "y" in arrays else None
    cut = [sequence[:length] for sequence, length in zip(x, lengths)]
    return Sequences(cut, None, times, channels=shared["channels"], time_unit=unit), y


@contextmanager
def naming(part: str) -> Iterator[None]:
    """What is wrong is said of this part."""
    try:
        yield
    except DataError as error:
        raise DataError(str(error) if part == "all" else f"part {part}: {error}") from None


def inputs(x: Array) -> Floats:
    if x.ndim not in (2, 3) or x.dtype.kind not in "biuf":
        raise DataError(f"x must be numbers of shape (N, T, D) or (N, T), not {described(x)}")
    if 0 in x.shape:
        raise DataError(f"x holds nothing: its shape is {x.shape}")
    return floats(x if x.ndim == 3 else x[:, :, None])


def floats(values: Array) -> Floats:
    """As float64. A wider float beyond float64's range becomes infinite, which `checked` refuses."""
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float64)


def cut_lengths(lengths: Array | None, count: int, steps: int) -> list[int]:
    if lengths is None:
        return [steps] * count
    if lengths.shape != (count,) or lengths.dtype.kind not in "iu":
        raise DataError(f"lengths must be {count} whole numbers, one for each sequence, not {described(lengths)}")
    if (wrong := np.flatnonzero((lengths < 1) | (lengths > steps))).size:
        raise DataError(f"the length of sequence {wrong[0] + 1} is {lengths[wrong[0]]}; it must be from 1 to {steps}")
    return lengths.tolist()


def cut_times(times: Array | None, lengths: list[int], steps: int) -> tuple[list[Floats] | None, str | None]:
    """The times of each sequence, and their unit."""
    if times is None:
        return None, None
    if times.shape not in ((steps,), (len(lengths), steps)) or times.dtype.kind not in "iufM":
        raise DataError(
            f"times must be numbers or dates of shape ({steps},) or ({len(lengths)}, {steps}), not {described(times)}"
        )
    unit = None
    if times.dtype.kind == "M":
        unit, missing = "seconds", np.isnat(times)
        times = floats(times.astype("datetime64[us]").astype(np.int64)) / 1e6
        times[missing] = np.nan
    rows = np.broadcast_to(floats(times), (len(lengths), steps))
    return [row[:length].copy() for row, length in zip(rows, lengths)], unit


def raw_targets(y: Array, lengths: list[int], steps: int, per_step: bool | None) -> Raw:
    if not y.ndim or len(y) != len(lengths):
        raise DataError(f"y must have {len(lengths)} rows, one for each sequence, but its shape is {y.shape}")
    fits = y.ndim in (2, 3) and y.shape[1] == steps
    if per_step is None:
        per_step = fits and (steps > 1 or y.ndim == 3)
    if per_step and not fits:
        raise DataError(f"y must be ({len(lengths)}, {steps}) or ({len(lengths)}, {steps}, K) to have a target for "
                        f"each step, but its shape is {y.shape}")  # fmt: skip
    own = 2 if per_step else 1  # dimensions before that of the K values
    if y.ndim == own:
        y = y[..., None]
    if y.ndim != own + 1 or not y.shape[-1]:
        raise DataError(f"y has the shape {y.shape}; (N,), (N, K), (N, T) or (N, T, K) are possible")
    rows = [row[:length] for row, length in zip(y, lengths)] if per_step else [y]
    if are_classes(y):
        rows = [one_label_each(row, VALUES) for row in rows]
    return Raw(rows, bool(per_step))


def targets(own: Raw, given: Sequence[str] | None, minus_one: bool) -> Any:
    """As `Sequences` hold them."""
    if are_classes(own.rows[0]):
        rows = labels_of(own.rows, given, minus_one_is_missing=own.per_step and not minus_one)
        if not own.per_step and "" not in (given or ()) and (rows[0] == "").any():
            raise DataError(f"the label of sequence {np.flatnonzero(rows[0] == '')[0] + 1} is empty")
    else:
        rows = [floats(row) for row in own.rows]
    return rows if own.per_step else rows[0]


def agree(made: dict[str, Sequences]) -> None:
    """All parts must be of one kind: one model is trained on one and tested on another."""

    def width(sequences: Sequences) -> tuple[bool, int] | None:
        y = sequences.y
        if y is None or sequences.classes is not None:
            return None if y is None else (sequences.per_step, 1)
        return sequences.per_step, y[0].shape[-1]

    for what, kinds in (
        ("inputs", {sequences.x[0].shape[1] for sequences in made.values()}),
        ("kinds of times", {(sequences.times is None, sequences.time_unit) for sequences in made.values()}),
        ("shapes of y", {width(sequences) for sequences in made.values()} - {None}),
    ):
        if len(kinds) > 1:
            raise DataError(f"its parts have different {what}")
