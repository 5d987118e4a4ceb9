"""Files of data: each format with small valid files, and how they are read."""

import gzip
import io
import random
import tarfile
from collections.abc import Iterator
from contextlib import redirect_stderr
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fuzz.format import Format
from fuzz.mutators import damaged_bytes, damaged_text, damaged_zip
from glstm.cli.folders import parse_times
from glstm.data.cifar import RECORD, parse_records
from glstm.data.fetch import archive_members, fetch
from glstm.data.files import DataFile, DataSet, Source, read_all
from glstm.data.mnist import parse_idx
from glstm.data.reading import read

TS = {
    "classes": """# A comment
%another one
@problemName Gestures
@timeStamps false
@missing true
@univariate false
@dimensions 2
@equalLength false
@classLabel true up down left
@data
1.5,2,-3e-2:4,?,6:up
7,8:9,NaN:down
1,2,3,4,5:1,2,3,4,5:left
""",
    "values": """@problemname Prices
@timestamps false
@univariate true
@equallength true
@serieslength 4
@targetlabel true
@data
0.1,0.2,0.3,0.4:1.25
0.5,0.6,0.7,0.8:?
1,2,3,4:-7
""",
    "dates": """@problemName Meters
@timeStamps True
@missing false
@univariate true
@classLabel true 1 2
@data
(2007-01-01 00:00:00,241.97),(2007-01-01 00:01:00,241.75):1
(2008-09-09 20:56:00,4.0),(2008-09-09 20:57:00,0.0),(2008-09-09 20:58:30,1):2
""",
    "numbers": """@problemName Meters
@timeStamps true
@dimension 2
@targetLabel false
@data
(0,1.5),(2.5,3):(0,4),(1,5),(2.5,6):
(1,2):(1,3)
""",
}
CSV = """patient,when,pulse,pressure,state,dose
a,2024-01-01 10:00:00,61.5,120,calm,0.5
b,2024-01-01 11:00:00,80,,tense,1.5
a,2024-01-01 10:05:00,62,121,calm,0.5
b,2024-01-01 11:30:00,NA,130,tense,1.5
"c, d",2024-01-02,70,100.25,calm,2
"""
OPTIONS: list[dict[str, Any]] = [
    {"id": "patient", "time": "when", "target": "state", "inputs": ["pulse", "pressure"]},
    {"id": "patient", "time": "when", "target": "dose", "inputs": ["pulse"]},
    {"id": "state", "target": "patient", "inputs": "pulse"},
    {"inputs": "pulse", "target": ["dose", "pressure"]},
    {"id": "patient", "inputs": "pulse", "target": "pressure", "classes": False},
    {},
]


def archive(**arrays: Any) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if "channels" in arrays else np.savez)(file, **arrays)
    return file.getvalue()


def table() -> pl.DataFrame:
    frame = pl.read_csv(io.StringIO(CSV), null_values=["NA"])
    state = pl.col("state").cast(pl.Enum(["calm", "tense"]))
    return frame.with_columns(pl.col("when").str.slice(0, 10).str.to_date().cast(pl.Datetime("us")), state)


def formats() -> Iterator[Format]:
    steps = np.arange(24.0).reshape(2, 4, 3)
    both = ({}, {"classes": False})
    for name, content in TS.items():
        yield sequences(f".ts, {name}", ".ts", content.encode(), both, damaged_text)
    for ending, content in ((".csv", CSV), (".tsv", CSV.replace(",", "\t"))):
        yield sequences(ending, ending, content.encode(), tuple(OPTIONS), damaged_text)
    npz = {
        "lengths": archive(x=steps, y=np.array(["a", "b"]), lengths=np.array([4, 2]), times=np.arange(4.0)),
        "channels": archive(
            x=steps[..., 0].astype(np.float32), y=np.arange(8.0).reshape(2, 4), channels=np.array(["one"])
        ),
        "parts": archive(x_train=steps, x_test=steps[:1], y_train=np.array([0, 1]), y_test=np.array([1]),
                         classes=np.array(["no", "yes"]), times=np.arange(4).astype("datetime64[h]")),
        "bomb": archive(x=np.zeros((1, 2**17, 1)), channels=np.array(["zeros"])),
    }  # fmt: skip
    options = ({}, {"per_step": True}, {"per_step": False}, {"classes": False})
    for name, content in npz.items():
        yield sequences(f".npz, {name}", ".npz", content, options, damaged_zip)
    for compression in ("uncompressed", "snappy"):
        file = io.BytesIO()
        table().write_parquet(file, compression=compression)
        yield sequences(f".parquet, {compression}", ".parquet", file.getvalue(), tuple(OPTIONS), damaged_bytes)
    file = io.BytesIO()
    table().write_ipc(file)
    yield sequences(".arrow", ".arrow", file.getvalue(), tuple(OPTIONS), damaged_bytes)
    yield from images()
    yield Format("times, text", {"t.txt": b"0, 0.5, 1, 2e3"}, lambda folder, _: parse_times(str(folder / "t.txt")))
    file = io.BytesIO()
    np.save(file, np.arange(4.0))
    yield Format("times, .npy", {"t.npy": file.getvalue()}, lambda folder, _: parse_times(str(folder / "t.npy")),
                 damaged_bytes)  # fmt: skip


def sequences(name: str, ending: str, content: bytes, options: tuple[dict[str, Any], ...], damage: Any) -> Format:
    """A file of sequences."""

    def reading(folder: Path, draw: random.Random) -> None:
        for part in read(folder / f"file{ending}", **draw.choice(options)).values():
            part.checked()

    return Format(name, {f"file{ending}": content}, reading, damage)


def images() -> Iterator[Format]:
    idx = b"\0\0\x08\x03" + b"".join(size.to_bytes(4, "big") for size in (2, 3, 4)) + bytes(range(24))
    records = bytes([3, *[7] * (RECORD - 1)]) + bytes([9, *[8] * (RECORD - 1)])
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:gz") as file:
        for name, content in (("folder/a.bin", records), ("b.bin", idx)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    files = tuple(DataFile(name, len(content), sha256(content).hexdigest()) for name, content in
                  (("a.bin", records), ("b.bin", idx)))  # fmt: skip
    known = DataSet("small", "Small", files, ("",))
    packed = {"a.bin.gz": gzip.compress(records, mtime=0), "b.bin": idx}

    def from_archive(folder: Path, _: random.Random) -> None:
        source = Source("the archive", lambda root: archive_members((root / "all.tar.gz").read_bytes()))
        with redirect_stderr(io.StringIO()):
            fetch(DataSet("small", "Small", files, ("got",), (source,)), folder)
        read_all(DataSet("small", "Small", files, ("got",)), folder)

    yield Format("IDX", {"b.bin": idx}, lambda folder, _: parse_idx((folder / "b.bin").read_bytes(), "b.bin"),
                 damaged_bytes)  # fmt: skip
    yield Format("CIFAR", {"a.bin": records}, lambda folder, _: parse_records((folder / "a.bin").read_bytes(), "a.bin"),
                 damaged_bytes)  # fmt: skip
    yield Format("files of a data set", packed, lambda folder, _: read_all(known, folder), damaged_bytes)
    yield Format("archive of a data set", {"all.tar.gz": tar.getvalue()}, from_archive, damaged_bytes)
