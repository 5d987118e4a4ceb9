"""What all readers of files share: a file that is there, dates, and words of a file shown in a sentence."""

import math
from datetime import UTC, datetime
from pathlib import Path

from glstm.errors import DataError

LONGEST_LABEL = 200  # characters; NumPy keeps as many for each label as the longest one has
# Bytes that any file may unpack to; above, at most so many times the size of the file.
ALWAYS_ALLOWED = 2**30
MOST_COMPRESSED = 100
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_WITHOUT_ZONE = EPOCH.replace(tzinfo=None)


def existing_file(path: Path | str) -> Path:
    """The path, if a file is there, may be read and is not empty."""
    path = Path(path).expanduser()
    try:
        if path.is_dir():
            raise DataError(f"{path} is a folder; a file is needed")
        if path.exists() and not path.is_file():  # reading a pipe would wait for ever
            raise DataError(f"{path} is not a file")
        with path.open("rb") as file:
            first = file.read(1)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:  # a ValueError: a nul character in the name
        raise DataError(f"{str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not first:
        raise DataError(f"{path} is empty")
    return path


def quoted(text: object, most: int = 40) -> str:
    """Text of a file, short and on one line."""
    text = str(text)
    return repr(text) if len(text) <= most else f"{text[:most]!r}..."


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def refuse_bombs(unpacked: int, packed: int, advice: str) -> None:
    """A small file may not ask for much memory."""
    if unpacked > max(ALWAYS_ALLOWED, MOST_COMPRESSED * packed):
        raise DataError(
            f"it would unpack to {unpacked:,} bytes from {packed:,}, more than {MOST_COMPRESSED} times as many; "
            f"{advice}"
        )


def seconds_since_1970(date: str) -> float:
    """An ISO 8601 date, such as 2007-01-31, 2007-01-31 12:30:00.5 or 2007-01-31T12:30:00+01:00; ValueError otherwise.

    Without a time zone it is UTC. Other orders of day and month are not guessed.
    """
    moment = datetime.fromisoformat(date.strip())
    return (moment - (EPOCH if moment.tzinfo else EPOCH_WITHOUT_ZONE)).total_seconds()


def number(text: str) -> float:
    """A finite number, or NaN for a missing one ('?' or 'NaN'); ValueError otherwise."""
    text = text.strip()
    if text == "?":
        return math.nan
    if "_" in text or not text.isascii() or math.isinf(value := float(text)):  # float takes 1_000, other digits and inf
        raise ValueError(text)
    return value
