"""A program that prints can be stopped, whoever reads what it prints."""

import os
import signal
import subprocess
import sys
import time
from threading import Timer

import pytest

PRINTS = """
import sys, time
from glstm.stopping import StopOnSignal

with StopOnSignal() as asked:
    print("ready", file=sys.stderr, flush=True)
    while not asked():
        print("x" * 1000, flush=True)
open(sys.argv[1], "w").write("saved")
print("the last line", flush=True)
"""

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


@pytest.fixture
def printing(tmp_path):
    """A program that prints until it is asked to stop, and what it saves then."""
    command = [sys.executable, "-c", PRINTS, str(tmp_path / "saved")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None
    assert process.stderr.readline() == b"ready\n"
    yield process, tmp_path / "saved"
    process.kill()
    process.communicate()


def test_nobody_reads_and_it_stops_all_the_same(printing):
    process, saved = printing
    time.sleep(0.5)  # more than enough to fill a pipe: then it waits
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0
    assert saved.read_text() == "saved"


def test_who_reads_gets_the_last_line(printing):
    process, saved = printing
    Timer(0.5, process.send_signal, (signal.SIGTERM,)).start()
    out, _ = process.communicate(timeout=30)  # which reads from now on
    assert out.splitlines()[-1] == b"the last line"
    assert saved.read_text() == "saved"
