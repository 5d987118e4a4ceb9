"""README's way from an own file to C is gone, with a small table of irregular times."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from glstm.cli.main import app

README = (Path(__file__).parents[1] / "README.md").read_text()


def write_visits(path: Path) -> None:
    """Pulse and pressure of patients, at hours of their own; the pulse of the sick is higher between 8 and 11."""
    draw = np.random.default_rng(0)
    lines = ["patient,hour,pulse,pressure,outcome"]
    for patient in range(40):
        sick = patient % 2
        for hour in np.cumsum(0.01 + draw.exponential(0.7, 30)):
            pulse = draw.normal(70, 5) + 25 * (sick and 8 < hour < 11)
            lines.append(f"p{patient},{hour:.3f},{pulse:.1f},{draw.normal(120, 8):.0f},{['well', 'sick'][sick]}")
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.skipif(not shutil.which("cc"), reason="no cc")
def test_from_an_own_file_to_c(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_visits(Path("visits.csv"))
    (block,) = (one for one in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "visits.csv" in one)
    lines = block.replace("\\\n", " ").splitlines()
    for line in lines:
        if line.startswith("glstm"):
            words = shlex.split(line, comments=True)[1:]
            done = CliRunner().invoke(app, words + (["--epochs", "3"] if words[0] == "train" else []))
            assert done.exception is None, f"{line}: {done.exception!r}"
    done = subprocess.run(lines[-1], shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(r"visits: largest difference from PyTorch \d\S*e-0[6-9]\n", done.stdout)
    assert Path("visits.html").is_file()
