"""Files in the .ts format of the UCR and UEA archives, also as aeon and sktime write it.

A header of `@tags`, then one line for each sequence: its dimensions, then its label or value, with colons between.
With `@timestamps true` each value is a pair, `(2007-01-01 00:00:00,241.97)`.
"""

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from glstm.data.parsing import LONGEST_LABEL, counted, existing_file, number, quoted, seconds_since_1970
from glstm.data.sequences import Floats, Sequences
from glstm.errors import DataError

BETWEEN_DIMENSIONS = re.compile(r"\)\s*:")  # not every colon: those of a clock time are inside the brackets
BETWEEN_PAIRS = re.compile(r"\)\s*,\s*\(")
YES_OR_NO = {"timestamps", "missing", "univariate", "equallength", "targetlabel"}
NUMBERS = {"dimensions", "serieslength"}


class Fault(Exception):
    """What is wrong in a line; the name of the file and the number of the line are added where they are known."""


@dataclass
class Header:
    flags: dict[str, bool] = field(default_factory=dict)  # a tag that is not in the file is not here: it claims nothing
    numbers: dict[str, int] = field(default_factory=dict)
    classes: tuple[str, ...] | None = None  # None: no class labels

    @property
    def has_values(self) -> bool:
        return self.flags.get("targetlabel", False)

    @property
    def has_targets(self) -> bool:
        return self.classes is not None or self.has_values

    def add(self, line: str) -> None:
        """One line with a tag. A tag that is not known claims nothing that could be checked, and is passed over."""
        tag, *words = line[1:].split()
        name = tag.lower()
        name = "dimensions" if name == "dimension" else name
        if name in self.flags or name in self.numbers:
            raise Fault(f"@{tag} is given a second time")
        if name in YES_OR_NO:
            if len(words) != 1:
                raise Fault(f"@{tag} needs true or false after it")
            self.flags[name] = true_or_false(tag, words[0])
        elif name in NUMBERS:
            if len(words) != 1 or not re.fullmatch(r"-?[0-9]{1,18}", words[0]):
                raise Fault(f"@{tag} needs a whole number after it")
            self.numbers[name] = int(words[0])
        elif name == "classlabel":
            self.flags[name] = true_or_false(tag, words[0] if words else "nothing")
            if self.flags[name]:
                if len(words) == 1:
                    raise Fault(f"@{tag} true needs the names of the classes after it")
                if len(set(words[1:])) < len(words) - 1:
                    raise Fault(f"@{tag} names a class twice")
                if (longest := max(map(len, words[1:]))) > LONGEST_LABEL:
                    raise Fault(f"@{tag} has a name of {longest} characters; {LONGEST_LABEL} are allowed")
                self.classes = tuple(words[1:])
        if self.classes is not None and self.has_values:
            raise Fault("@classLabel true and @targetLabel true exclude each other: a sequence has a class or a value")


def true_or_false(tag: str, word: str) -> bool:
    if word.lower() not in ("true", "false"):
        raise Fault(f"@{tag} needs true or false after it, not {quoted(word)}")
    return word.lower() == "true"


@dataclass
class Case:
    """One sequence: its dimensions, each with its values and perhaps times, and the text of its target."""

    values: list[Floats]
    times: list[Floats] | None
    target: str


class Body:
    """The lines after @data."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.dates: bool | None = None  # whether times are dates; the first one decides
        self.dimensions = header.numbers.get("dimensions")  # the header decides, or the first sequence
        self.length: int | None = None
        if header.flags.get("univariate"):
            if self.dimensions not in (None, 1):
                raise Fault(f"@univariate true and @dimensions {self.dimensions} contradict each other")
            self.dimensions = 1
        if header.flags.get("equallength", True):  # some files of unequal lengths give their longest one, or 0
            self.length = header.numbers.get("serieslength")

    def case(self, line: str) -> Case:
        parts, target = self.split(line)
        if self.header.flags.get("timestamps"):
            pairs = [self.pairs(part, index) for index, part in enumerate(parts, 1)]
            case = Case([values for _, values in pairs], [times for times, _ in pairs], target)
        else:
            if line.startswith("("):
                raise Fault("values with times in brackets, but the header does not say @timeStamps true")
            case = Case([numbers(part.split(","), index) for index, part in enumerate(parts, 1)], None, target)
        self.check(case)
        return case

    def split(self, line: str) -> tuple[list[str], str]:
        """The dimensions and the target of a line. A line without a target may end with a colon."""
        if self.header.flags.get("timestamps"):
            parts = BETWEEN_DIMENSIONS.split(line)
            parts = [f"{part})" for part in parts[:-1]] + [parts[-1]]
        else:
            parts = line.split(":")
        if self.header.has_targets:
            if len(parts) == 1:
                raise Fault(
                    "no target: after the values, a colon and the "
                    + ("value" if self.header.has_values else "class")
                    + " should follow"
                )
            return parts[:-1], parts[-1].strip()
        return (parts[:-1] if len(parts) > 1 and not parts[-1].strip() else parts), ""

    def pairs(self, text: str, dimension: int) -> tuple[Floats, Floats]:
        """The times and the values of one dimension."""
        text = text.strip()
        if not (text.startswith("(") and text.endswith(")")):
            raise Fault(f"dimension {dimension} is not a list of (time,value) pairs, as @timeStamps true promises")
        pairs = BETWEEN_PAIRS.split(text[1:-1])
        for pair in pairs:
            if "," not in pair or "(" in pair or ")" in pair:
                raise Fault(f"dimension {dimension}: {quoted(f'({pair})')} is not a pair (time,value)")
        split = [pair.rpartition(",") for pair in pairs]
        times = np.array([self.time(stamp.strip(), dimension) for stamp, _, _ in split])
        if (late := np.flatnonzero(np.diff(times) <= 0)).size:
            stamp = split[late[0] + 1][0].strip()
            raise Fault(f"dimension {dimension}: the time {quoted(stamp)} is not after the one before it")
        return times, numbers([value for _, _, value in split], dimension)

    def time(self, stamp: str, dimension: int) -> float:
        date, value = False, math.nan
        try:
            value = number(stamp)
        except ValueError:
            with suppress(ValueError):
                date, value = True, seconds_since_1970(stamp)
        if math.isnan(value):
            raise Fault(
                f"dimension {dimension}: {quoted(stamp)} is not a time: a finite number or a date such as "
                f"2007-01-31 12:30:00 is needed"
            )
        if self.dates is None:
            self.dates = date
        if self.dates != date:
            raise Fault(f"dimension {dimension}: {quoted(stamp)}: times are dates or numbers, not both in one file")
        return value

    def check(self, case: Case) -> None:
        """The claims of the header, and of the first sequence where the header says nothing."""
        found, flags = len(case.values), self.header.flags
        if self.dimensions is None:
            self.dimensions = found
        if found != self.dimensions:
            raise Fault(f"{counted(found, 'dimension')} where {self.dimensions} belong")
        lengths = [len(values) for values in case.values]
        if case.times is None and len(set(lengths)) > 1:
            other = next(index for index, length in enumerate(lengths) if length != lengths[0])
            raise Fault(
                f"dimension {other + 1} has {counted(lengths[other], 'value')} where dimension 1 has {lengths[0]}: all "
                f"dimensions of a sequence must have the same number of values"
            )
        if self.length is None and flags.get("equallength"):
            self.length = lengths[0]
        if self.length is not None and (wrong := [length for length in lengths if length != self.length]):
            raise Fault(f"{counted(wrong[0], 'value')} where @equalLength or @seriesLength promises {self.length}")
        if not flags.get("missing", True) and any(np.isnan(values).any() for values in case.values):
            raise Fault("a value is missing, but the header says @missing false")
        classes = self.header.classes
        if classes is not None and case.target not in classes:
            raise Fault(f"the class {quoted(case.target)} is none of those that @classLabel names")


def numbers(texts: list[str], dimension: int) -> Floats:
    """Many numbers at once; one by one only if something in them is unusual."""
    joined = "".join(texts)
    if "_" not in joined and joined.isascii():
        with suppress(ValueError):
            values = np.array(list(map(float, texts)))
            if not np.isinf(values).any():
                return values
    slow = []
    for position, text in enumerate(texts, 1):
        try:
            slow.append(number(text))
        except ValueError:
            if not joined.strip():
                raise Fault(f"dimension {dimension} has no values") from None
            raise Fault(
                f"value {position} of dimension {dimension} is {quoted(text.strip())}; a finite number is needed, or "
                f"'?' for a missing one"
            ) from None
    return np.array(slow)


def merged(case: Case) -> tuple[Floats, Floats | None]:
    """(T, D) values and (T,) times. Dimensions with other times than the rest are missing where they have none."""
    if case.times is None:
        return np.ascontiguousarray(np.stack(case.values, axis=1)), None
    times = np.unique(np.concatenate(case.times))
    values = np.full((len(times), len(case.values)), np.nan)
    for dimension, (at, of) in enumerate(zip(case.times, case.values)):
        values[np.searchsorted(times, at), dimension] = of
    return values, times


def read_ts(path: Path | str, *, classes: bool | None = None) -> Sequences:
    """The sequences of a .ts file. `classes=False`: their classes are numbers, which are values.

    Dates become seconds since 1970-01-01 UTC. Without times, the dimensions of one sequence must be equally long: a
    shorter one is refused, because nothing says where its values belong. With times they may differ; a dimension is
    missing (NaN) at the times that only others have.
    """
    path = existing_file(path)
    x: list[Floats] = []
    all_times: list[Floats] = []
    targets: list[str] = []
    values: list[float] = []
    header, body, at = Header(), None, 0
    try:
        for at, line in text_lines(path):  # noqa: B007 - the line number is for the sentence
            if body is None:
                body = header_line(header, line)
                continue
            if line.startswith("@"):
                raise Fault(f"{quoted(line)} comes after @data; all tags belong before it")
            case = body.case(line)
            if header.has_values or (classes is False and header.has_targets):
                values.append(target_value(case.target))
            targets.append(case.target)
            sequence, times = merged(case)
            x.append(sequence)
            if times is not None:
                all_times.append(times)
    except Fault as fault:
        raise DataError(f"{path.name}, line {at}: {fault}") from None
    if body is None:
        raise DataError(f"{path.name} is no .ts file of sequences: it has no line @data")
    if not x:
        raise DataError(f"{path.name}, line {at}: no sequence follows @data")
    unit = "seconds" if body.dates else None
    found = Sequences(x, None, all_times or None, time_unit=unit)
    if values:
        found = replace(found, y=np.array(values)[:, None])
    elif header.classes is not None:
        found = replace(found, y=np.array(targets), classes=header.classes)
    return found.checked()


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that say something, with their numbers. A comment may be in any encoding, the rest is UTF-8."""
    content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    for at, line in enumerate(content.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith((b"#", b"%")):
            continue
        try:
            yield at, line.decode()
        except UnicodeDecodeError:
            raise DataError(f"{path.name}, line {at}: it is not text in UTF-8") from None


def header_line(header: Header, line: str) -> Body | None:
    """Takes in one line of the header; what reads the rest, if it was the last one."""
    if not line.startswith("@") or len(line[1:].split()) == 0:
        raise Fault(f"{quoted(line)} is neither a tag such as @timeStamps nor a comment, and @data has not come yet")
    if line.lower().split()[0] != "@data":
        header.add(line)
        return None
    if not {"classlabel", "targetlabel"} & set(header.flags):
        raise Fault("neither @classLabel nor @targetLabel comes before @data: one must say whether there are targets")
    return Body(header)


def target_value(text: str) -> float:
    try:
        return number(text)
    except ValueError:
        raise Fault(f"the target {quoted(text)} is not a finite number, nor '?' for a missing one") from None
