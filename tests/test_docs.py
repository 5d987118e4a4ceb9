"""What the documents show is run: every python block, with the names its text takes for granted."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from own_things import Parity as OtherTask

import glstm
from glstm.gates import Gate, Values
from glstm.training import Population, Settings

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    ROOT / name
    for name in (
        "README.md",
        "CONTRIBUTING.md",
        "docs/tour.md",
        "docs/own-data.md",
        "docs/choosing.md",
        "docs/deploy.md",
        "docs/explore.md",
        "docs/experiments.md",
        "docs/rivals.md",
        "docs/sweeps.md",
        "docs/scale.md",
    )
]


def blocks() -> list:
    found = []
    for path in DOCUMENTS:
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)):
            found.append(pytest.param(code, path.name == "README.md", id=f"{path.name}-{number}"))
    return found


def test_what_the_documents_link_to_is_in_the_repository():
    tracked = set(
        subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    )
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert str((path.parent / target).resolve().relative_to(ROOT)) in tracked, f"{path.name} links to {target}"


@pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning")
@pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec:FutureWarning")
@pytest.mark.filterwarnings("ignore:# The axis name:UserWarning")  # torch says this of sizes that two inputs share
@pytest.mark.parametrize(("code", "imports_itself"), blocks())
def test_a_python_block_runs(code, imports_itself, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    layer = glstm.GLSTM(3, 5)
    imported = {
        "glstm": glstm,
        "torch": torch,
        **{name: getattr(glstm, name) for name in ("GLSTM", "GatedLSTM")},
        **{"Gate": Gate, "Values": Values, "ClassVar": ClassVar, "dataclass": dataclass},
    }
    given = {
        **({} if imports_itself else imported),
        "layer": layer,
        "model": glstm.SequenceModel(layer, torch.nn.Linear(5, 1)),
        "x": torch.randn(30, 2, 3),
        "y": torch.randn(2, 1),
        "seconds": torch.rand(30).cumsum(0),
        "first": torch.randn(100, 2, 3),
        "second": torch.randn(100, 2, 3),
        "criterion": torch.nn.functional.mse_loss,
        "lam": 1.0,
        "epochs": 12,
    }
    exec(compile(code, "<document>", "exec"), given)
    if "class Window" in code:
        window = glstm.GatedLSTM(3, 4, gate=given["Window"](start=5.0, width=3.0))
        assert window.openness(10)[0, :, 0].tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0, 0]
    if "class Leaky" in code or "class More" in code:
        cell, task = given.get("Leaky", torch.nn.GRU), given.get("More", OtherTask)(train_size=50)
        model = glstm.SequenceModel(cell(1, 4), torch.nn.Linear(4, 2))
        assert Population(task, model, Settings(batch=20, epochs=1)).train(1)[0] > 0
