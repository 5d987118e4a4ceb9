"""Damages files of every format and reads them: `make fuzz`, or `python tests/fuzz/harness.py --count 1 --first 4711`.

Each outcome must be that the file is read, or a UserError of one line. Anything else is printed with the number that
repeats it alone: another error, a warning, more than a second of computing, more than 512 MiB, a pickle that is
opened, a program that is started, a file that is written outside of the folder, or the end of the process.
"""

import argparse
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:1] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "outside")]

from fuzz.format import Format
from glstm.errors import UserError

HANGS = 30.0  # seconds without an answer, on a machine that others use too
MOST_ADDRESSES = 16 * 2**30  # bytes; the limit that stops what would use up the machine
MOST_MEMORY = 2**29  # bytes in use, beyond what the process has at its start
MEMORY_FILES = Path("/dev/shm")
REFUSED = ("pickle.find_class", "os.system", "subprocess.Popen", "socket.connect", "os.exec", "ctypes.dlopen")


def formats() -> list[Format]:
    from fuzz import formats_of_data, formats_of_networks

    return [*formats_of_data.formats(), *formats_of_networks.formats()]


class Watch:
    """What code may not do while it reads a file; Python tells of it."""

    def __init__(self, folder: Path):
        self.folder, self.seen, self.watching = str(folder), "", False
        sys.addaudithook(self.hear)

    def hear(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.watching:
            return
        if event in REFUSED:
            self.seen = f"{event} {given!r:.100}"
        elif event == "open" and not isinstance(given[0], int) and given[2] & (os.O_WRONLY | os.O_RDWR):
            path = os.path.realpath(os.fsdecode(given[0]))
            if not path.startswith((self.folder, "/dev/null")):
                self.seen = f"it writes {path}"


class Reader:
    """Reads damaged files, one after the other, in a folder of its own."""

    def __init__(self, root: Path, only: str | None = None):
        torch_alone()
        self.root = Path(os.path.realpath(root))
        self.known = [one for one in formats() if only is None or only in one.name]
        self.drawn = [one for one in self.known for _ in range(one.share)]
        for one in self.known:
            self._write(one, one.files)
            answers = (self._read(one, random.Random(number)) for number in range(20))
            assert "read" in answers, one.name  # also, everything is imported now
        self.watch = Watch(self.root)

    def outcome(self, number: int) -> tuple[str, str]:
        """The format, and what reading one damaged file of it comes to; a failure starts with FAILURE."""
        draw = random.Random(number)
        one = draw.choice(self.drawn)
        name = draw.choice([name for name in one.files if name not in one.kept])
        self._write(one, one.files | {name: one.damage_of(name)(one.files[name], draw)})
        began = time.process_time()
        self.watch.seen, self.watch.watching = "", True
        answer = self._read(one, draw)
        self.watch.watching = False
        took = time.process_time() - began
        if self.watch.seen:
            answer = f"FAILURE {self.watch.seen}; {answer}"
        if took > one.seconds:
            answer = f"FAILURE it takes {took:.1f} s; {answer}"
        return one.name, f"{answer} ({name})" if answer.startswith("FAILURE") else answer

    def _read(self, one: Format, draw: random.Random) -> str:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.filterwarnings("ignore", category=UserWarning)  # sentences for the user
                one.read(self._folder(one), draw)
        except UserError as error:
            return "refused" if len(str(error).splitlines()) == 1 else f"FAILURE of several lines: {error!r:.500}"
        except BaseException:
            return f"FAILURE\n{traceback.format_exc()}"
        return "read"

    def _folder(self, one: Format) -> Path:
        return self.root / f"format{self.known.index(one)}"

    def _write(self, one: Format, files: dict[str, bytes]) -> None:
        folder = self._folder(one)
        if folder.exists():
            shutil.rmtree(folder)
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


def torch_alone() -> None:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    sys.dont_write_bytecode = True


def memory() -> int:
    """The most bytes that this process has had in use."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def work(numbers: Any, answers: Any, only: str | None) -> None:
    """Reads files until no number comes; the memory of this process has a limit."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, resource.RLIM_INFINITY))
    shm = MEMORY_FILES if MEMORY_FILES.is_dir() else None
    with tempfile.TemporaryDirectory(dir=shm) as folder:
        reader = Reader(Path(folder), only)
        at_start = memory()
        while (batch := numbers.recv()) is not None:
            for number in batch:
                name, answer = reader.outcome(number)
                more = memory() - at_start
                answer = answer if more < MOST_MEMORY else f"FAILURE it takes {more:,} bytes; {answer}"
                answers.send((number, name, answer))
                if more >= MOST_MEMORY:
                    return


class Worker:
    """A process that reads damaged files. The numbers that it has are lost if it hangs or dies, all but those told."""

    BATCH = 50

    def __init__(self, only: str | None):
        context = multiprocessing.get_context("spawn")
        receive, self.numbers = context.Pipe(duplex=False)
        self.answers, send = context.Pipe(duplex=False)
        self.process = context.Process(target=work, args=(receive, send, only), daemon=True)
        self.process.start()
        receive.close()
        send.close()
        self.given: list[int] = []
        self.heard = time.monotonic() + 90  # its first answer waits for the imports, too

    def give(self, numbers: list[int]) -> None:
        self.given = numbers
        self.heard = max(self.heard, time.monotonic())
        self.numbers.send(numbers)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


def fuzz(
    count: int, first: int, *, processes: int = 2, only: str | None = None, bar: Any = None
) -> tuple[Counter[tuple[str, str]], dict[int, str]]:
    """How often each outcome came, by format; and the failures by number."""
    outcomes: Counter[tuple[str, str]] = Counter()
    failures: dict[int, str] = {}
    ahead = iter(range(first, first + count))
    workers = [Worker(only) for _ in range(processes)]
    waiting: list[list[int]] = []  # what a lost worker did not come to

    def next_batch() -> list[int]:
        return waiting.pop() if waiting else list(islice(ahead, Worker.BATCH))

    def note(number: int, name: str, answer: str) -> None:
        failed = answer.startswith("FAILURE")
        outcomes[name, "FAILURE" if failed else answer] += 1
        if failed:
            failures[number] = f"{name}: {answer}"
        if bar is not None:
            bar(f"--first {number} --count 1: {failures[number]}" if failed else None)

    for worker in workers:
        worker.give(next_batch())
    while busy := [worker for worker in workers if worker.given]:
        ready = wait([worker.answers for worker in busy], timeout=1)
        for worker in busy:
            lost = ""
            if worker.answers in ready:
                try:
                    number, name, answer = worker.answers.recv()
                except EOFError:
                    worker.process.join()
                    lost = f"FAILURE: the process died with {worker.process.exitcode}"
                else:
                    worker.given.remove(number)
                    worker.heard = time.monotonic()
                    note(number, name, answer)
                    if not worker.given:
                        worker.give(next_batch())
                    continue
            elif time.monotonic() - worker.heard > HANGS:
                lost = "FAILURE: it hangs"
            if lost:
                worker.stop()
                if worker.process.exitcode != 0:  # else it left by itself, after it had told of too much memory
                    note(worker.given.pop(0), "?", lost)
                if worker.given:
                    waiting.append(worker.given)
                workers[workers.index(worker)] = fresh = Worker(only)
                fresh.give(next_batch())
    for worker in workers:
        worker.stop()
    return outcomes, failures


def main() -> int:
    from rich.progress import Progress

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="how many files")
    parser.add_argument("--first", type=int, default=0, help="the first number; each file has its own, counted up")
    parser.add_argument("--only", help="formats whose names hold this; it changes what a number stands for")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    began = time.monotonic()
    with Progress() as progress:
        task = progress.add_task("reading damaged files", total=given.count)

        def advance(failure: str | None) -> None:
            progress.advance(task)
            if failure is not None:
                progress.print(failure, markup=False, highlight=False, soft_wrap=True)
            done = int(progress.tasks[0].completed)
            if not progress.console.is_terminal and done % 1000 == 0:
                progress.print(f"{done} of {given.count}, {time.monotonic() - began:.0f} s", highlight=False)

        outcomes, failures = fuzz(given.count, given.first, processes=given.processes, only=given.only, bar=advance)
    for name in sorted({name for name, _ in outcomes}):
        counts = [outcomes[name, what] for what in ("read", "refused", "FAILURE")]
        print(f"{name:30} {sum(counts):8} inputs: {counts[0]} read, {counts[1]} refused, {counts[2]} failures")
    print(f"{outcomes.total()} inputs, {len(failures)} failures, {time.monotonic() - began:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
