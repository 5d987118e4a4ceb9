"""Training, validation and test parts: as given, drawn by a seed, or, of windows of a long series, in time order."""

from dataclasses import replace
from typing import Any

import numpy as np

from glstm.data.collect import as_sequences
from glstm.data.labels import WHOLE, minus_one_is_a_class
from glstm.data.sequences import PARTS, Sequences, any_known
from glstm.errors import UserError

MAKES_A_PART = "a share of the sequences from 0 to 1, a pair (x, y), a dictionary with x, y, times and lengths, or None"


def split(
    whole: Sequences, validation: Any, test: Any, seed: int, window: int | None, options: dict[str, Any]
) -> dict[str, Sequences]:
    """The parts that are not empty, "train" first. Shares are of all sequences in `whole`."""
    parts: dict[str, Sequences] = {}
    shares: dict[str, float] = {}
    if whole.classes is not None:
        options = options | {"minus_one": minus_one_is_a_class((), whole.classes)}
    for name, asked in (("validation", validation), ("test", test)):
        if is_share(asked):
            share = float(asked or 0)
            if not 0 <= share < 1:
                raise UserError(f"{name} must be {MAKES_A_PART}, not {asked!r:.50}")
            shares[name] = share
        else:
            given = as_part(asked, name, options)
            parts[name] = replace(given, classes=whole.classes) if _fits(given, whole) else given
    if sum(shares.values()) >= 1:
        raise UserError(f"validation and test together leave nothing to train on: {sum(shares.values()):g} of all")
    if window is not None and (type(window) is not int or window < 1):
        raise UserError(f"window must be a whole number of steps, at least 1, not {window!r:.50}")
    # Windows of a sequence with one target are alike: in several parts they would make the errors there too small.
    if window is not None and (whole.per_step or len(whole) == 1):
        drawn = _in_time(whole, shares, window)
    else:
        drawn = _drawn(whole, shares, seed)
    found = {"train": whole, **parts} | drawn
    return {name: found[name] for name in PARTS if name in found}


def is_share(asked: Any) -> bool:
    """Whether a part is asked for as a share of the sequences, not given."""
    return asked is None or (isinstance(asked, int | float) and not isinstance(asked, bool))


def as_part(asked: Any, name: str, options: dict[str, Any]) -> Sequences:
    """A part that the caller gave."""
    if isinstance(asked, Sequences):
        arrays, options = {"x": asked}, {}
    elif isinstance(asked, dict) and "x" in asked and set(asked) <= {"x", "y", "times", "lengths"}:
        arrays = asked
    elif isinstance(asked, tuple | list) and len(asked) == 2:
        arrays = dict(zip(("x", "y"), asked, strict=True))
    else:
        raise UserError(f"{name} must be {MAKES_A_PART}, not {asked!r:.50}")
    try:
        found = as_sequences(**arrays, **options)
    except UserError as error:
        raise type(error)(f"the {name} part: {error}") from None
    if found.y is None:
        raise UserError(f"the {name} part has no targets: give its y")
    return found


def _fits(part: Sequences, whole: Sequences) -> bool:
    """Whether its classes are among those of the whole, whose order then counts."""
    return part.classes is not None and whole.classes is not None and set(part.classes) <= set(whole.classes)


def _drawn(whole: Sequences, shares: dict[str, float], seed: int) -> dict[str, Sequences]:
    if not any(shares.values()):
        return {}
    if len(whole) < 2:
        raise UserError(
            "one sequence cannot be split into parts: cut it into windows by window=, or give validation and test; if "
            "it is a table of several, name the column that says which one a row is of by --id (id=)"
        )
    draws = np.random.default_rng(seed)
    groups = [np.arange(len(whole))]
    if whole.classes is not None and isinstance(whole.y, np.ndarray):  # from each class its share
        groups = [np.flatnonzero(whole.y == name) for name in whole.classes]
    rest = [draws.permutation(group) for group in groups]
    taken: dict[str, list[np.ndarray]] = {name: [] for name in shares}
    for name, share in shares.items():
        counts = _shared_out([len(group) for group in groups], share)
        taken[name] = [own[:count] for own, count in zip(rest, counts, strict=True)]
        rest = [own[count:] for own, count in zip(rest, counts, strict=True)]
    found = {"train": np.sort(np.concatenate(rest))}
    found |= {name: np.sort(np.concatenate(own)) for name, own in taken.items() if shares[name]}
    for name, numbers in found.items():
        if not len(numbers):
            share = f" with a share of {shares[name]:g}" if name in shares else ""
            of_classes = f", and each of {len(whole.classes)} classes keeps one to train on" if whole.classes else ""
            whole_numbers = whole.classes and all(map(WHOLE.fullmatch, whole.classes))
            values = "; if the classes are values to predict, add --values (values=True)" if whole_numbers else ""
            raise UserError(
                f"of {len(whole)} sequences none is left for the {name} part{share}{of_classes}: choose a larger "
                f"share, or 0 for none{values}"
            )
    return {name: whole.take(numbers) for name, numbers in found.items()}


def _shared_out(sizes: list[int], share: float) -> list[int]:
    """How many of each group: its share, rounded so that the total is right and no group is used up."""
    exact = [share * size for size in sizes]
    counts = [min(int(one), size - 1) for one, size in zip(exact, sizes, strict=True)]
    missing = round(share * sum(sizes)) - sum(counts)
    order = sorted(range(len(sizes)), key=lambda n: (counts[n] - exact[n], n))
    for group in order:
        if missing > 0 and counts[group] < sizes[group] - 1:
            counts[group] += 1
            missing -= 1
    return counts


def _in_time(whole: Sequences, shares: dict[str, float], window: int) -> dict[str, Sequences]:
    """Of every sequence the beginning for training, then validation, then test, each of whole windows."""
    names = ["train", *(name for name in shares if shares[name])]
    found: dict[str, list[tuple[int, slice]]] = {name: [] for name in names}
    for number, one in enumerate(whole.x):
        windows = max(1, len(one) // window)  # a sequence shorter than a window is one, for training
        counts = {name: round(shares[name] * windows) for name in names[1:]}
        edges = np.cumsum([0, windows - sum(counts.values()), *counts.values()]) * window
        edges = np.minimum(edges, len(one))
        edges[-1] = len(one)  # the steps after the last whole window go with it
        for name, start, stop in zip(names, edges, edges[1:], strict=False):
            if stop > start:
                found[name].append((number, slice(int(start), int(stop))))
    for name, pieces in found.items():
        if not pieces:
            raise UserError(f"no window of {window} steps is left for the {name} part: choose a smaller window")
    return {name: _pieces(whole, pieces) for name, pieces in found.items()}


def cut_windows(whole: Sequences, window: int) -> Sequences:
    """Consecutive windows of every sequence; the last may be shorter."""
    pieces = [
        (number, slice(start, min(start + window, len(one))))
        for number, one in enumerate(whole.x)
        for start in range(0, len(one), window)
    ]
    if isinstance(whole.y, list):  # a window in which nothing is known teaches nothing
        targets: Any = whole.y
        pieces = [(number, part) for number, part in pieces if any_known(targets[number][part])]
    cut = _pieces(whole, pieces)
    names = whole.names or tuple(str(number + 1) for number in range(len(whole)))
    named = (f"{names[number]}, steps {part.start + 1} to {part.stop}" for number, part in pieces)
    return replace(cut, names=tuple(named))


def _pieces(whole: Sequences, pieces: list[tuple[int, slice]]) -> Sequences:
    numbers = [number for number, _ in pieces]
    taken = whole.take(numbers)

    def cut(each: Any) -> Any:
        return [one[part] for one, (_, part) in zip(each, pieces, strict=True)]

    return replace(
        taken,
        x=cut(taken.x),
        y=cut(taken.y) if isinstance(taken.y, list) else taken.y,
        times=None if taken.times is None else cut(taken.times),
    )
