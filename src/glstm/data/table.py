"""Sequences from long tables, one row a step: CSV, TSV, Parquet and Arrow files."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glstm.data.labels import (
    doubts_about_classes,
    doubts_about_minus_one,
    in_order,
    minus_one_is_a_class,
    one_label_each,
)
from glstm.data.parsing import LONGEST_LABEL, existing_file, quoted, seconds_since_1970
from glstm.data.sequences import Floats, Sequences
from glstm.data.table_file import load
from glstm.errors import DataError, UserError

if TYPE_CHECKING:
    import polars as pl

# Targets that vary in so few of so many ids are more likely wrong than targets of steps.
FEW_IDS, ENOUGH_IDS = 0.05, 10
VALUES = "add --values (values=True)"


def read_table(
    path: Path | str,
    *,
    id: str | None = None,
    time: str | None = None,
    target: str | Sequence[str] | None = None,
    inputs: str | Sequence[str] | None = None,
    classes: Sequence[str] | bool | None = None,
    minus_one: bool | None = None,
) -> Sequences:
    """The sequences of a table. Rows are counted from 1, without the header.

    - id: the column that says which sequence a row belongs to; the sequences come in the order of their first rows.
      Without it the whole table is one sequence.
    - time: the column of times, by which the rows of a sequence are sorted. Dates become seconds since 1970-01-01 UTC,
      and numbers stay numbers, also those that look like 19580329. Without it the rows are taken in their order.
    - target: one column, or several of values. If it is the same in all rows of each id, it is the target of the
      sequence, otherwise each step has its own; one that is given in some rows only counts as different.
      Text, truth values and whole numbers are classes, other numbers are values. Several columns are values,
      which whole numbers are only with `classes=False`.
    - inputs: the columns of the inputs, by default all others.
    - classes: the names of the classes in order; or False: whole numbers are values; or True: any target is a class.
    - minus_one: whether -1 at a step is a class; by default it is one if a label is below it or `classes` has it.
    """
    path = existing_file(path)
    try:
        table = Table(*load(path))
        targets = chosen(target)
        others = [name for name in (id, time, *targets) if name is not None]
        columns = table.inputs(None if inputs is None else chosen(inputs), others, time)
        order, starts, names = table.grouped(id)
        times, unit = (None, None) if time is None else table.times(time)
        if times is not None:
            group = np.repeat(np.arange(len(starts) + 1), np.diff([0, *starts, len(order)]))
            order = order[np.lexsort((times[order], group))]
            table.refuse_same_times(time or "", times[order], order, group, has_ids=id is not None)
        x = np.stack([table.numbers(name) for name in columns], axis=1)[order]
        own = table.targets(targets, classes, order, starts, per_step=id is None, names=names, minus_one=minus_one)
        return Sequences(
            np.split(x, starts),
            own.y,
            None if times is None else np.split(times[order], starts),
            own.classes,
            tuple(columns),
            tuple(targets) if targets and own.classes is None else None,
            names,
            unit,
            own.doubts,
        ).checked()
    except DataError as error:
        raise DataError(f"{path.name}: {error}") from None


def chosen(names: str | Sequence[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or [])


@dataclass(frozen=True)
class Targets:
    y: NDArray[np.str_] | Floats | list[NDArray[np.str_]] | list[Floats] | None
    classes: tuple[str, ...] | None
    doubts: tuple[str, ...] = ()


class Table:
    def __init__(self, frame: "pl.DataFrame", rows: NDArray[np.int64], is_text: bool) -> None:
        if not len(frame):
            raise DataError("it has no rows")
        self.frame = frame
        self.rows = rows  # their numbers in the file
        self.is_text = is_text  # the columns of a text file become numbers where all of it can

    def column(self, name: str) -> "pl.Series":
        """A column as what it is; one of a text file becomes numbers or truth values if all of it can."""
        import polars as pl

        series = self.known(name)
        if not self.is_text:
            return series
        for kind in (pl.Int64, pl.Float64):
            cast = series.cast(kind, strict=False)
            if cast.null_count() == series.null_count():
                return cast
        return series

    def known(self, name: str) -> "pl.Series":
        if name not in self.frame.columns:
            near = difflib.get_close_matches(str(name), self.frame.columns, 1)
            has = ", ".join(map(quoted, self.frame.columns[:20]))
            others = f"did you mean {quoted(near[0])}?" if near else f"it has {has}"
            raise DataError(f"it has no column {quoted(name)}; {others}")
        return self.frame[name]

    def inputs(self, asked: list[str] | None, others: list[str], time: str | None) -> list[str]:
        for name in (*(asked or ()), *others):
            self.known(name)
        names = [name for name in self.frame.columns if name not in others] if asked is None else asked
        every = [*names, *(name for name in others if name != time or name not in names)]
        if twice := [name for name in every if every.count(name) > 1]:
            raise DataError(
                f"the column {quoted(twice[0])} cannot be two of input, target, id and time at once; only the time may "
                "be an input, too, if it is named as one"
            )
        if not names:
            raise DataError("no column is left for the inputs")
        return names

    def numbers(self, name: str, use: str = "an input") -> Floats:
        """A column of numbers, NaN where one is missing."""
        import polars as pl

        series = self.column(name)
        if series.dtype == pl.Null:
            return np.full(len(series), np.nan)
        if not (series.dtype.is_numeric() or series.dtype == pl.Boolean):
            wrong = 0
            hint = "; if it is the target, the time or the id, name it as that; or name the inputs" * (
                use == "an input"
            )
            if series.dtype == pl.String:
                cast = series.cast(pl.Float64, strict=False)
                wrong = int((cast.is_null() & series.is_not_null()).arg_max() or 0)
            raise DataError(
                f"the column {quoted(name)} is not numeric: row {self.rows[wrong]} holds {quoted(series[wrong])}; "
                f"{use} must be numbers{hint}"
            )
        values = series.cast(pl.Float64).fill_null(float("nan")).to_numpy().astype(np.float64)
        if (wrong := np.flatnonzero(np.isinf(values))).size:
            raise DataError(f"the column {quoted(name)} holds an infinite number in row {self.rows[wrong[0]]}")
        return values

    def grouped(self, id: str | None) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[str, ...] | None]:
        """The rows in the order of the sequences, where each sequence but the first starts, and their names."""
        import polars as pl

        if id is None:
            return np.arange(len(self.frame)), np.array([], dtype=np.int64), None
        series = self.text(id)
        if series.null_count():
            raise DataError(f"the column {quoted(id)} has no id in row {self.rows[series.is_null().arg_max() or 0]}")
        names = series.unique(maintain_order=True)
        codes = series.replace_strict(names, pl.Series(range(len(names))), return_dtype=pl.Int64).to_numpy()
        return np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1], tuple(names.to_list())

    def text(self, name: str) -> "pl.Series":
        import polars as pl

        try:
            return self.known(name).cast(pl.String).str.strip_chars()
        except pl.exceptions.PolarsError:
            raise DataError(
                f"the column {quoted(name)} is {self.known(name).dtype}; text or numbers are needed"
            ) from None

    def times(self, name: str) -> tuple[Floats, str | None]:
        """The column of times as numbers, and their unit."""
        import polars as pl

        series, unit = self.column(name), None
        if series.dtype.is_temporal() and series.dtype != pl.Time:
            unit, series = "seconds", seconds(series)
        elif series.dtype == pl.String:
            unit, series = "seconds", self.dates(name, series)
        values = self.numbers(name, "times") if unit is None else series.fill_null(float("nan")).to_numpy()
        if (wrong := np.flatnonzero(np.isnan(values))).size:
            raise DataError(f"the column {quoted(name)} has no time in row {self.rows[wrong[0]]}")
        return values, unit

    def dates(self, name: str, series: "pl.Series") -> "pl.Series":
        """A column of dates as text, in seconds. Many sequences have the same dates: each is read once."""
        import polars as pl

        different = series.drop_nulls().unique(maintain_order=True)
        others = different.filter(different.cast(pl.Float64, strict=False).is_null())
        values = []
        for text in different:
            try:
                values.append(seconds_since_1970(text))
            except ValueError:
                wrong = others[0] if 2 * len(others) < len(different) else text  # among numbers, what is no number
                row = self.rows[(series == wrong).arg_max() or 0]
                raise DataError(
                    f"the column {quoted(name)} holds {quoted(wrong)} in row {row}: times are numbers, or dates such "
                    f"as 2007-01-31 or 2007-01-31 12:30:00, all of one kind"
                ) from None
        return series.replace_strict(different, pl.Series(values), default=None, return_dtype=pl.Float64)

    def refuse_same_times(
        self, name: str, times: Floats, order: NDArray[np.int64], group: NDArray[np.int64], *, has_ids: bool
    ) -> None:
        same = np.flatnonzero((np.diff(times) == 0) & (np.diff(group) == 0))
        if same.size:
            first, second = sorted(self.rows[order[same[0] : same[0] + 2]])
            no_ids = "; without --id (id=) all rows are one sequence: name the column that says which one a row is of"
            raise DataError(
                f"rows {first} and {second} are of the same sequence and have the same {quoted(name)}"
                f"{': join rows of one moment into one, or write times with more digits' if has_ids else no_ids}"
            )

    def targets(
        self,
        names_of_targets: list[str],
        classes: Sequence[str] | bool | None,
        order: NDArray[np.int64],
        starts: NDArray[np.int64],
        *,
        per_step: bool,
        names: tuple[str, ...] | None,
        minus_one: bool | None,
    ) -> Targets:
        """Targets of the sequences, or of their steps if `per_step` or if they vary within a sequence."""
        if not names_of_targets:
            return Targets(None, given_classes(classes))
        y: Any
        found = None
        if len(names_of_targets) == 1 and self.is_class(names_of_targets[0], classes):
            y, found = self.labels(names_of_targets[0], classes)
            y = y[order]
        else:
            if classes:
                raise DataError("several target columns are values, but classes are asked for")
            y = np.stack([self.numbers(name, "targets that are values") for name in names_of_targets], axis=1)
            y = y[order]
            if classes is None and all(self.whole_numbers(name) is not None for name in names_of_targets):
                one_label_each(np.nan_to_num(y).astype(np.int64), VALUES, "the target")
        same = y[1:] == y[:-1]
        if y.ndim == 2:
            same = (same | (np.isnan(y[1:]) & np.isnan(y[:-1]))).all(axis=1)
        same[starts - 1] = True
        if per_step or not same.all():
            doubts = () if per_step else self.doubts_about_steps(names_of_targets, y, same, order, starts, names or ())
            if found is not None and (whole := self.whole_numbers(names_of_targets[0])) is not None:
                y, found, doubts = without_minus_one(y, found, whole[order], given_classes(classes), minus_one)
            if classes is None:
                doubts += doubts_about_classes([y], found, VALUES)
            return Targets(np.split(y, starts), found, doubts)
        y = y[[0, *starts]]
        if found is not None and (y == "").any():
            which = np.flatnonzero(y == "")[0]
            raise DataError(
                f"the sequence {quoted((names or ('',))[which])} has no {quoted(names_of_targets[0])} at all"
            )
        return Targets(y, found, doubts_about_classes([y], found, VALUES) if classes is None else ())

    def doubts_about_steps(
        self,
        targets: list[str],
        y: np.ndarray,
        same: NDArray[np.bool_],
        order: NDArray[np.int64],
        starts: NDArray[np.int64],
        names: tuple[str, ...],
    ) -> tuple[str, ...]:
        """What to say if the targets vary in very few ids: one wrong row makes targets of steps from those of all."""
        varying = np.unique(np.searchsorted(starts, np.flatnonzero(~same) + 1, side="right"))
        if len(names) < ENOUGH_IDS or len(varying) > max(1, FEW_IDS * len(names)):
            return ()
        first, last = [0, *starts, len(order)][varying[0] : varying[0] + 2]
        _, kinds, counts = np.unique(y[first:last], axis=0, return_inverse=True, return_counts=True)
        odd = first + int(np.argmax(kinds.ravel() != np.argmax(counts)))
        return (
            f"the target {', '.join(map(quoted, targets))} is the same in all rows of an id, but not in {len(varying)} "
            f"of {len(names):,} ids, so each step has a target of its own: if each id should have one, look at row "
            f"{self.rows[order[odd]]}, of {quoted(names[varying[0]])}",
        )

    def whole_numbers(self, name: str) -> NDArray[np.int64] | None:
        """A column of whole numbers, 0 where one is missing; None if it holds others."""
        column = self.column(name)
        return column.fill_null(0).to_numpy() if column.dtype.is_integer() else None

    def is_class(self, name: str, classes: Sequence[str] | bool | None) -> bool:
        if classes is not None:
            return classes is not False
        dtype = self.column(name).dtype
        if dtype.is_temporal() or dtype.is_nested():
            raise DataError(f"the target {quoted(name)} is {dtype}; classes or numbers are needed")
        return not (dtype.is_float() or dtype.is_decimal())

    def labels(self, name: str, given: Sequence[str] | bool | None) -> tuple[NDArray[np.str_], tuple[str, ...]]:
        """The label of each row, "" where it is missing, and all classes."""
        import polars as pl

        column, text = self.column(name), self.text(name)
        if (longest := text.str.len_chars().max()) is not None and int(str(longest)) > LONGEST_LABEL:
            raise DataError(
                f"the target {quoted(name)} has a label of {longest} characters; {LONGEST_LABEL} are allowed"
            )
        labels = text.fill_null("").to_numpy().astype(np.str_)
        classes = given_classes(given)
        if classes is None:
            classes = in_order([labels])
            if isinstance(column.dtype, pl.Enum):
                classes = tuple(column.dtype.categories.to_list())
        if not classes:
            raise DataError(f"the target {quoted(name)} is missing in every row")
        if (wrong := np.flatnonzero(~np.isin(labels, ["", *classes]))).size:
            raise DataError(
                f"the target {quoted(name)} is {quoted(labels[wrong[0]])} in row {self.rows[wrong[0]]}, which is none "
                f"of the classes"
            )
        return labels, classes


def without_minus_one(
    labels: NDArray[np.str_],
    classes: tuple[str, ...],
    numbers: NDArray[np.int64],
    given: tuple[str, ...] | None,
    minus_one: bool | None,
) -> tuple[NDArray[np.str_], tuple[str, ...], tuple[str, ...]]:
    """Labels of steps, their classes, and doubts: -1 is missing, unless it is a class."""
    if minus_one_is_a_class([numbers], given) if minus_one is None else minus_one:
        return labels, classes, ()
    labels = np.where(numbers == -1, "", labels)
    classes = classes if given else in_order([labels])
    return labels, classes, () if given else doubts_about_minus_one([numbers], classes)


def given_classes(classes: Sequence[str] | bool | None) -> tuple[str, ...] | None:
    if classes is None or isinstance(classes, bool):
        return None
    names = tuple(map(str, classes))
    if isinstance(classes, str) or not names or len(set(names)) < len(names) or "" in names:
        raise UserError(f"classes must be different names, not {classes!r}")
    return names


def seconds(series: "pl.Series") -> "pl.Series":
    """Dates and durations as seconds."""
    import polars as pl

    if series.dtype == pl.Duration:
        return series.dt.total_microseconds() / 1e6
    return series.dt.timestamp("us") / 1e6
