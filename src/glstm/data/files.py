"""Data files: which ones there are, where they may be, and whether their content is right.

A file is identified by the SHA-256 of its uncompressed content: it does not matter how it was compressed.
"""

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from glstm.errors import DataError
from glstm.storage import cache_folder

FOLDER_VARIABLE = "GLSTM_DATA"


Contents = Iterator[tuple[str, bytes]]  # (file name, content)


@dataclass(frozen=True)
class DataFile:
    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """A place to get files from: called with the data folder, it yields its files."""

    title: str
    contents: Callable[[Path], Contents]


@dataclass(frozen=True)
class DataSet:
    """Files of a public data set: where they may lie, where they come from, and what they must contain.

    Attributes:
        name: Short, for commands.
        title: For people.
        files: Each with its checksum.
        folders: Usual folders for it, inside the data folder.
        sources: Where to fetch it from, in the order they are tried.
        pickles: Names of a pickled version, which is refused.
    """

    name: str
    title: str
    files: tuple[DataFile, ...]
    folders: tuple[str, ...]
    sources: tuple[Source, ...] = ()
    pickles: tuple[str, ...] = ()


def data_folder(given: Path | str | None = None) -> Path:
    """The folder given, else the environment's, else the user's cache."""
    return Path(given or os.environ.get(FOLDER_VARIABLE) or cache_folder()).expanduser()


def find(dataset: DataSet, file: DataFile, root: Path) -> Path | None:
    """The path of `file` under `root`, plain or gzipped; nothing is read."""
    for folder in dataset.folders:
        for ending in ("", ".gz"):
            path = root / folder / (file.name + ending)
            if path.is_file():
                return path
    return None


def missing(dataset: DataSet, root: Path) -> list[DataFile]:
    return [file for file in dataset.files if find(dataset, file, root) is None]


def refuse_pickles(dataset: DataSet, root: Path) -> None:
    for folder in dataset.folders:
        for name in dataset.pickles:
            path = root / folder / name
            if path.exists():
                raise DataError(
                    f"{path} is {dataset.title}'s python version, a pickle, and reading a pickle can run any code: "
                    f"use the official binary version, which 'glstm data fetch {dataset.name}' brings"
                )


def read(dataset: DataSet, file: DataFile, path: Path) -> bytes:
    """The content of `path`, unpacked and checked."""
    advice = f"delete it and run 'glstm data fetch {dataset.name}'"
    try:
        # No more than the longest file of the set: a few bytes may unpack to anything.
        most = max(one.size for one in dataset.files) + 1
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as packed:
            content = packed.read(most)
    except EOFError:
        raise DataError(f"{path} is truncated: its compressed stream ends early; {advice}") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is corrupt: {error}; {advice}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    check(dataset, file, content, str(path), advice)
    return content


def check(dataset: DataSet, file: DataFile, content: bytes, source: str, advice: str) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if digest == file.sha256:
        return
    for other in dataset.files:
        if digest == other.sha256:
            raise DataError(f"{source} is mislabelled: it holds the content of {other.name}; {advice}")
    if len(content) < file.size:
        raise DataError(f"{source} is truncated: {len(content):,} bytes where {file.size:,} belong; {advice}")
    if len(content) > file.size:  # by how much is not known: no more was read
        raise DataError(f"{source} is too long: more than the {file.size:,} bytes that belong there; {advice}")
    raise DataError(
        f"{source} is corrupt: its SHA-256 is {digest[:12]}... where {file.sha256[:12]}... belongs; {advice}"
    )


def read_all(dataset: DataSet, root: Path) -> dict[str, bytes]:
    """Every file of the data set by name, checked; what is missing is named."""
    if absent := missing(dataset, root):
        names = ", ".join(file.name for file in absent)
        raise DataError(
            f"{dataset.title} is not complete in {root}: {names} missing; run 'glstm data fetch {dataset.name}', "
            f"or point --data or {FOLDER_VARIABLE} at a folder that has it"
        )
    return {file.name: read(dataset, file, find(dataset, file, root) or root) for file in dataset.files}
