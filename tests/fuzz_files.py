"""Damages files of every known format and reads them: `python tests/fuzz_files.py --count 10000 --seed 0`.

Each outcome must be valid sequences, or a UserError of one line. Anything else is printed with the number that repeats
it alone: another error, a warning, more than some seconds, more than some memory, or the end of the process.
"""

import argparse
import io
import multiprocessing
import random
import resource
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from glstm.data.reading import read
from glstm.errors import UserError

MOST_SECONDS = 5
MOST_ADDRESSES = 16 * 2**30  # bytes; the limit that stops what would use up the machine
MOST_MEMORY = 2**29  # bytes in use, beyond what the process has at its start

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
ODD = [
    "NaN", "nan", "?", "1e999", "-1e999", "inf", "99999999999999999999999999", "1e-400", "-0", "0x10", "1_000",
    "١٢٣", "é", "\u2028", "\x00", "\ufeff", "\t", "\r", "\n", " ", '"', "'", ",", ":", "(", ")", "((", "))", ";",
    "@", "#", "%", "{", "}", ",,,,,,", "::::", "=1+1", "true", "false", "null", "None", "now", "0001-01-01",
    "9999-12-31T23:59:59", "2024-02-30", "2024-01-01T00:00:00+99:00", "\n@data\n", "\n@classLabel true\n",
    "\n@classLabel false\n", "\n@timestamps true\n", "\n@targetlabel true\n", "\n@dimensions 99999999\n",
    "\n@seriesLength -1\n", "\n@equalLength true\n", "{'descr': '", "O8", "'shape': (999999999999,)", "<f8", ">U4",
    "<U0", "<U999999999", "<M8[ns]",
]  # fmt: skip


@dataclass(frozen=True)
class Seed:
    ending: str
    content: bytes
    options: tuple[dict[str, Any], ...] = ({},)


def archive(**arrays: Any) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if "channels" in arrays else np.savez)(file, **arrays)
    return file.getvalue()


def table() -> pl.DataFrame:
    frame = pl.read_csv(io.StringIO(CSV), null_values=["NA"])
    state = pl.col("state").cast(pl.Enum(["calm", "tense"]))
    return frame.with_columns(pl.col("when").str.slice(0, 10).str.to_date().cast(pl.Datetime("us")), state)


def seeds() -> list[Seed]:
    steps = np.arange(24.0).reshape(2, 4, 3)
    made = [Seed(".ts", text.encode(), ({}, {"classes": False})) for text in TS.values()]
    made += [Seed(".csv", CSV.encode(), tuple(OPTIONS)), Seed(".tsv", CSV.replace(",", "\t").encode(), tuple(OPTIONS))]
    npz = [
        archive(x=steps, y=np.array(["a", "b"]), lengths=np.array([4, 2]), times=np.arange(4.0)),
        archive(x=steps[..., 0].astype(np.float32), y=np.arange(8.0).reshape(2, 4), channels=np.array(["one"])),
        archive(x_train=steps, x_test=steps[:1], y_train=np.array([0, 1]), y_test=np.array([1]),
                classes=np.array(["no", "yes"]), times=np.arange(4).astype("datetime64[h]")),
    ]  # fmt: skip
    made += [
        Seed(".npz", content, ({}, {"per_step": True}, {"per_step": False}, {"classes": False})) for content in npz
    ]
    for compression in ("uncompressed", "snappy"):
        file = io.BytesIO()
        table().write_parquet(file, compression=compression)
        made.append(Seed(".parquet", file.getvalue(), tuple(OPTIONS)))
    file = io.BytesIO()
    table().write_ipc(file)
    return [*made, Seed(".arrow", file.getvalue(), tuple(OPTIONS))]


def damaged(content: bytes, ending: str, draw: random.Random) -> bytes:
    """The content with one to four changes; those of an archive are made in an entry as often as in the file itself."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        if ending == ".npz" and draw.random() < 0.5 and zipfile.is_zipfile(io.BytesIO(content)):
            content = damaged_inside(content, draw)
        else:
            content = changed(content, draw)
    return content


def damaged_inside(content: bytes, draw: random.Random) -> bytes:
    """An archive that is whole, with one damaged entry."""
    file = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w") as new:
            unlucky = draw.randrange(max(1, len(old.namelist())))
            for number, name in enumerate(old.namelist()):
                entry = old.read(name)
                new.writestr(name, changed(entry, draw) if number == unlucky else entry)
    except Exception:  # an archive that an earlier change has broken
        return content
    return file.getvalue()


def changed(content: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(content) + 1)
    end = min(len(content), at + draw.choice((1, 1, 2, 8, 100)))
    lines = content.split(b"\n")
    one, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    odd = draw.choice(ODD).encode()
    kind = draw.randrange(10)
    if kind == 0:  # flips of bits
        return content[:at] + bytes(byte ^ 1 << draw.randrange(8) for byte in content[at:end]) + content[end:]
    if kind == 1:
        return content[:at] + draw.randbytes(end - at) + content[end:]
    if kind == 2:
        return content[:at] + content[end:]
    if kind == 3:
        return content[:at] + odd + content[at:]
    if kind == 4:  # in the place of a word or number
        while end < len(content) and content[end : end + 1].isalnum():
            end += 1
        while at > 0 and content[at - 1 : at].isalnum():
            at -= 1
        return content[:at] + odd + content[end:]
    if kind == 5:
        return content[:at]
    if kind == 6:
        lines[one], lines[other] = lines[other], lines[one]
    elif kind == 7:
        del lines[one]
    elif kind == 8:
        lines.insert(one, lines[other])
    else:  # a very long line
        lines[one] = lines[one] + draw.choice((b",1", b"1", b":", b",", odd)) * draw.choice((10, 1000, 100_000))
    return b"\n".join(lines)


def outcome(folder: Path, known: list[Seed], number: int) -> str:
    """What reading one damaged file comes to; a failure starts with FAILURE."""
    draw = random.Random(number)
    seed = known[draw.randrange(len(known))]
    options = draw.choice(seed.options)
    path = folder / f"file{seed.ending}"
    path.write_bytes(damaged(seed.content, seed.ending, draw))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for sequences in read(path, **options).values():
                sequences.checked()
    except UserError as error:
        lines = str(error).splitlines()
        return (
            f"{seed.ending} refused" if len(lines) == 1 else f"FAILURE {seed.ending} of {len(lines)} lines: {error!r}"
        )
    except BaseException:
        return f"FAILURE {seed.ending} {options}\n{traceback.format_exc()}"
    return f"{seed.ending} read"


def work(numbers: Any, answers: Any) -> None:
    """Reads files until no number comes; the memory of this process has a limit."""
    known = seeds()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, resource.RLIM_INFINITY))
    at_start = memory()
    with tempfile.TemporaryDirectory() as folder:
        while (number := numbers.recv()) is not None:
            answer = outcome(Path(folder), known, number)
            more = memory() - at_start
            answers.send(answer if more < MOST_MEMORY else f"FAILURE: it takes {more:,} bytes; {answer}")


def memory() -> int:
    """The most bytes that this process has had in use."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Worker:
    """A process that reads damaged files; a new one takes its place if it hangs or dies."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        receive, self.numbers = context.Pipe(duplex=False)
        self.answers, send = context.Pipe(duplex=False)
        self.process = context.Process(target=work, args=(receive, send), daemon=True)
        self.process.start()
        receive.close()
        send.close()
        self.fresh = True  # its first answer waits for the imports too

    def ask(self, number: int) -> str:
        self.numbers.send(number)
        try:
            if not self.answers.poll(MOST_SECONDS + 60 * self.fresh):
                return "FAILURE: it hangs"
            self.fresh = False
            return self.answers.recv()
        except EOFError:
            self.process.join()
            return f"FAILURE: the process died with {self.process.exitcode}"

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


def fuzz(count: int, first: int) -> tuple[Counter[str], dict[int, str]]:
    """How often each outcome came, and the failures by number."""
    outcomes: Counter[str] = Counter()
    failures: dict[int, str] = {}
    worker = Worker()
    for number in range(first, first + count):
        answer = worker.ask(number)
        if answer.startswith("FAILURE"):
            failures[number] = answer
            worker.stop()
            worker = Worker()
        outcomes["failures" if answer.startswith("FAILURE") else answer] += 1
    worker.stop()
    return outcomes, failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="how many files")
    parser.add_argument("--seed", type=int, default=0, help="the first number; each file has its own, counted up")
    given = parser.parse_args()
    outcomes, failures = fuzz(given.count, given.seed)
    for number, failure in failures.items():
        print(f"--seed {number} --count 1: {failure}")
    for what, often in sorted(outcomes.items()):
        print(f"{often:7} {what}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
