"""Kills at calls that change the disk: every rename, and some of the others; `make crash` tries all."""

import subprocess
import sys
from pathlib import Path

CRASH = Path(__file__).with_name("crash.py")


def test_nothing_is_lost_wherever_a_process_is_killed():
    command = [sys.executable, str(CRASH), "--every", "29", "--random", "3"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("0 complaints") == 5
