"""What the documents and the docstrings show is run: every python block, with its imports written out."""

import ast
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from own_things import Parity as OtherTask

import glstm
from documents import DOCUMENTS, FENCED, ROOT, blocks, name_of
from glstm.training import Population, Settings

GOES_ON = "# continues the block above\n"  # the first line of a block that needs what the block before it has made


def stories() -> list:
    """Blocks that belong together, of each page: one, and those that say that they continue it."""
    found = []
    for path in DOCUMENTS:
        story: list[str] = []
        for number, block in enumerate(blocks(path, "python")):
            if not block.code.startswith(GOES_ON):
                story = []
                found.append(pytest.param(story, id=f"{name_of(path)}-{number}"))
            story.append(block.code)
    return found


@pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning")
@pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec:FutureWarning")
@pytest.mark.filterwarnings("ignore:# The axis name:UserWarning")  # torch says this of sizes that two inputs share
@pytest.mark.parametrize("story", stories())
def test_python_blocks_run(story, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made: dict[str, Any] = {"__name__": "__main__"}
    for code in story:
        exec(compile(code, "<document>", "exec"), made)
    if "Window" in made:
        window = glstm.GatedLSTM(3, 4, gate=made["Window"](start=5.0, width=3.0))
        assert window.openness(10)[0, :, 0].tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0, 0]
    if "Leaky" in made or "More" in made:
        cell, task = made.get("Leaky", torch.nn.GRU), made.get("More", OtherTask)(train_size=50)
        model = glstm.SequenceModel(cell(1, 4), torch.nn.Linear(4, 2))
        assert Population(task, model, Settings(batch=20, epochs=1)).train(1)[0] > 0


def docstrings() -> list[tuple[Path, str]]:
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                found.append((path, text))
    return found


def test_code_in_docstrings_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = 0
    for path, text in docstrings():
        for _, language, code in FENCED.findall(text):
            assert language == "python", f"{path}: which language is this?\n{code}"
            exec(compile(dedent(code), str(path), "exec"), {})
            found += 1
        assert ">>>" not in text, f"{path}: an example is a block of python, which is run here"
    assert found > 5
