"""Commands that the documents show are commands that there are, with options that they have."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from glstm.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def written() -> list:
    """Lines of blocks that begin with glstm, without a shell's sign or its comment."""
    found = []
    for path in PAGES:
        for block in re.findall(r"^```[a-z]*\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE):
            for line in re.findall(r"^(?:\$ )?(glstm (?:.*\\\n)*.*)$", block, re.MULTILINE):
                found.append(pytest.param(line, id=f"{path.name}-{len(found)}"))
    return found


@pytest.mark.parametrize("line", written())
def test_a_written_command_exists(line):
    _, *words = shlex.split(line.replace("\\\n", " "), comments=True)
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        found = command.commands.get(words[0])
        assert found is not None, f"there is no {words[0]}"
        command, words = found, words[1:]
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help"}
    options = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    assert set(options) <= known


def test_there_are_many():
    assert len(written()) > 60
