"""Files of tables as polars reads them, with every fault of the file in a sentence."""

import csv
import io
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from glstm.data.parsing import counted, number, quoted, refuse_bombs
from glstm.errors import DataError, UserError
from glstm.extras import needed_by

if TYPE_CHECKING:
    import polars as pl

SEPARATORS = {".csv": ",", ".tsv": "\t"}
BINARY = (".parquet", ".arrow", ".feather")
ENDINGS = (*SEPARATORS, *BINARY)
MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "?"]  # in CSV and TSV


def load(path: Path) -> tuple["pl.DataFrame", NDArray[np.int64], bool]:
    """The table, the numbers of its rows, and whether all its columns are text still."""
    with needed_by("reading tables"):
        import polars as pl

    kind = path.suffix.lower()
    if kind not in ENDINGS:
        raise UserError(f"a table must end in {', '.join(ENDINGS)}; {path.name} does not")
    content = path.read_bytes()
    if kind in SEPARATORS:
        refuse_other_encodings(content)
        return *text_table(content, SEPARATORS[kind]), True
    try:
        if kind == ".parquet":
            cells = pl.scan_parquet(io.BytesIO(content)).select(pl.len()).collect().item() * len(
                pl.read_parquet_schema(io.BytesIO(content))
            )
            refuse_bombs(8 * cells, len(content), "store such a table uncompressed and without a dictionary")
        frame = (pl.read_parquet if kind == ".parquet" else pl.read_ipc)(io.BytesIO(content))
    except DataError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:  # broken files make polars raise errors of many kinds
        raise DataError(f"it is no {kind[1:]} file, or it is broken: {first_line(error)}") from None
    return frame, np.arange(1, len(frame) + 1), False


def refuse_other_encodings(content: bytes) -> None:
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"line {line} is not text in UTF-8") from None


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def text_table(content: bytes, separator: str) -> tuple["pl.DataFrame", NDArray[np.int64]]:
    """All columns as text. polars would fill short lines without a word and rename columns: both are refused."""
    import polars as pl

    header = column_names(content, separator)
    try:
        frame = pl.read_csv(
            io.BytesIO(content), separator=separator, has_header=False, infer_schema=False, null_values=MISSING
        )
        frame.columns = header
    except (Exception, pl.exceptions.PanicException) as error:
        line_lengths(content, separator)
        raise DataError(f"it is no table: {first_line(error)}") from None
    frame, rows = frame[1:], np.arange(1, len(frame))
    if frame[:, -1].null_count():  # the only sign of a line that is too short, or blank
        fields = line_lengths(content, separator)
        if len(fields) != len(frame) + 1:
            raise DataError("its quotation marks are not balanced")
        kept = np.array(fields[1:]) > 0
        frame, rows = frame.filter(kept), rows[kept]
    stripped = pl.all().str.strip_chars()
    return frame.select(pl.when(~stripped.is_in(MISSING)).then(stripped)), rows


def lines(content: bytes, separator: str):
    return csv.reader(io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline=""), delimiter=separator, strict=True)


def column_names(content: bytes, separator: str) -> list[str]:
    """The names in the first line. It is read before the rest, because polars needs much memory for many columns."""
    try:
        names = [name.strip() for name in next(lines(content, separator))]
    except csv.Error as error:
        raise DataError(f"line 1 cannot be read: {error}") from None
    if not names:
        raise DataError("its first line is blank; it should name the columns")
    if "" in names:
        raise DataError(f"column {names.index('') + 1} has no name in the first line")
    if len(set(names)) < len(names):
        raise DataError(f"two columns have the name {quoted(Counter(names).most_common(1)[0][0])}")
    if all(map(is_number, names)):
        raise DataError("its first line holds numbers; it should name the columns")
    return names


def is_number(text: str) -> bool:
    try:
        number(text)
    except ValueError:
        return False
    return True


def line_lengths(content: bytes, separator: str) -> list[int]:
    """The number of fields of each line, 0 for a blank one; an error if a line has more or fewer than the first."""
    reader = lines(content, separator)
    fields = []
    try:
        for row in reader:
            fields.append(len(row))
            if row and len(row) != fields[0]:
                raise DataError(f"line {reader.line_num} has {counted(len(row), 'field')} where {fields[0]} belong")
    except csv.Error as error:
        raise DataError(f"line {reader.line_num} cannot be read: {error}") from None
    return fields
