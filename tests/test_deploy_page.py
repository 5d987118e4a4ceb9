"""The stories of docs/deploy.md and docs/deploy-streams.md are run from top to bottom: Python, commands, and the C."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from glstm.cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = "".join((ROOT / "docs" / f"deploy{of}.md").read_text() for of in ("", "-streams", "-figures"))
# What the page does in minutes, in seconds: the last of two equal options counts.
IN_SMALL = {
    "train": ["--epochs", "1", "--units", "12", "--train-size", "40", "--test-size", "20", "--batch", "20"],
    "deploy": ["--seconds", "0.02"],
}


def section(name: str) -> str:
    return PAGES.split(f"\n## {name}\n")[1].split("\n## ")[0]


def run_command(line: str) -> None:
    """One of glstm, or of a C compiler; tests/test_examples.py has those for a board."""
    program = line.split()[0]
    if program == "glstm":
        words = shlex.split(line.replace("\\\n", " "), comments=True)[1:]
        done = CliRunner().invoke(app, [*words, *IN_SMALL.get(words[0], [])])
        assert done.exception is None, f"{line}: {done.exception!r}"
    elif program == "cc":
        done = subprocess.run(line, shell=True, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "largest difference" in done.stdout


@pytest.mark.skipif(not shutil.which("cc"), reason="no cc")
@pytest.mark.parametrize("story", ["A window", "A stream without an end", "Irregular time"])
def test_a_story_is_run(story, tmp_path, monkeypatch, request):
    if story == "A window":
        monkeypatch.setenv("GLSTM_DATA", str(request.getfixturevalue("real_mnist")))
    monkeypatch.chdir(tmp_path)
    commands = 0
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", section(story), re.DOTALL | re.MULTILINE):
        if language == "python":
            exec(compile(block, story, "exec"), {})
        for line in re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE) if not language else ():
            run_command(line)
            commands += 1
    assert commands >= 3


def rows(figures: dict, steps: int, names: dict[str, str]) -> list[list[str]]:
    """As in a table of the page: flash, RAM and instructions a step."""
    found = []
    for name in names:
        one = figures[name]
        per_step = f"{one['instructions'] / steps:,.0f}"
        found.append([names[name], f"{one['flash']:,}", f"{one['state']:,} + {one['stack']}", per_step])
    return found


def test_figures_of_the_cortex_m4_are_those_measured():
    board = json.loads((ROOT / "benchmarks" / "cortex-m4.json").read_text())
    streams = json.loads((ROOT / "benchmarks" / "streams.json").read_text())["cortex-m4"]
    kinds = {"float32": "float32", "int8": "int8 weights", "all int8": "int8 weights and states"}
    names = {f"{who}, {kind}": said for who in ("LSTM", "this") for kind, said in kinds.items()}
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section("On a Cortex-M4").splitlines()]
    for name, (said, flash, ram, per_step) in zip(names, rows(board, board["steps"], names), strict=True):
        who = "LSTM" if name.startswith("LSTM") else "this network"
        millions = f"{board[name]['instructions'] / 1e6:.2f} M"
        assert any(row[:5] == [f"{who}, {said}", flash, ram, millions, per_step] for row in cells), name
    kinds = {"float32": "float32", "int8": "int8 weights", "int8 states": "int8 weights and states"}
    names = {name: kinds[name.rsplit(", ", 1)[1]] for name in streams}
    for row in rows(streams, 784, names):
        assert row in [one[1:] for one in cells], row
