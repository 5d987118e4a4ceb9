"""Commands, options and files that the documents name exist. tests/test_deploy_page.py runs those of its page."""

import re
import shlex
from typing import Any

import pytest
import typer

from documents import DOCUMENTS, ROOT, blocks, inline_code, name_of
from glstm.cli.main import app

COMMAND: Any = typer.main.get_command(app)
PAGES = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]  # which also names what there is no more
pages = pytest.mark.parametrize("path", PAGES, ids=map(name_of, PAGES))


def verb(words: list[str]):
    """The command that the first words name, and the words after them."""
    found = COMMAND
    while words and words[0] in getattr(found, "commands", ()):
        found, words = found.commands[words[0]], words[1:]
    return found, words


def options_of(found) -> set[str]:
    return {"--help"}.union(*({*one.opts, *one.secondary_opts} for one in found.params))


def every_option(found=COMMAND) -> set[str]:
    return options_of(found).union(*map(every_option, getattr(found, "commands", {}).values()))


def lines_of(code: str) -> list[str]:
    """Commands of glstm in a block; the other lines are what they print."""
    whole = code.replace("\\\n", " ")
    return re.findall(r"^(?:\$ )?(?:python -m )?glstm (.*)$", whole, re.MULTILINE)


def options_in(words: list[str]) -> set[str]:
    return {word.split("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)}


def test_an_option_that_does_not_exist_is_found():
    found, words = verb(["reproduce", "all", "--trck", "paper"])
    assert options_in(words) - options_of(found) == {"--trck"}


@pages
def test_commands_in_blocks_exist(path):
    for block in blocks(path, "", "sh"):
        for line in lines_of(block.code):
            found, words = verb(shlex.split(line, comments=True))
            assert not hasattr(found, "commands") or words[:1] in ([], ["--version"], ["--help"]), f"glstm {line}"
            assert options_in(words) <= options_of(found) | options_of(COMMAND), f"glstm {line}"


def test_there_are_many_commands():
    assert sum(len(lines_of(block.code)) for path in PAGES for block in blocks(path, "", "sh")) > 60


@pages
def test_commands_in_sentences_exist(path):
    for code in inline_code(path):
        if match := re.search(r"(?:^|[ =])glstm ([a-z-].*)", code):
            found, words = verb(match.group(1).split())
            assert options_in(words) <= options_of(found) | options_of(COMMAND), code
            assert found is not COMMAND or words[0].startswith("-"), code


@pages
def test_options_in_sentences_exist(path):
    named = {code.split()[0].split("=")[0] for code in inline_code(path) if code.startswith("--")}
    assert named <= every_option(), path


@pages
def test_make_knows_the_targets(path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    lines = [line for block in blocks(path, "", "sh") for line in block.code.splitlines()]
    named = {match.group(1) for code in (*inline_code(path), *lines) if (match := re.match(r"make ([a-z-]+)", code))}
    assert named <= targets


def test_every_module_has_a_line_where_things_are():
    (tree,) = (block.code for block in blocks(ROOT / "CONTRIBUTING.md", "") if block.code.startswith("src/glstm/"))
    modules = [path for path in (ROOT / "src/glstm").iterdir() if not path.name.startswith("__")]
    names = {f"{path.name}/" if path.is_dir() else path.name for path in modules} - {"py.typed"}
    assert names <= set(re.findall(r"[\w/]+(?:\.py|/)", tree))


@pages
def test_files_that_are_named_are_there(path):
    places = [ROOT, ROOT / "src", ROOT / "src/glstm", path.parent]
    for code in inline_code(path):
        if re.fullmatch(r"[\w-]+(/[\w.-]+)+\.(py|md|c|h|cu|cuh|json)", code) and "NAME" not in code:
            assert any((place / code).exists() for place in places), code
