"""Code that a file names is not run, unless the user trusts it: not by any verb, not in any folder."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from glstm import GLSTM, SequenceModel, registry
from glstm.errors import UserError
from glstm.training.run import RunFolder
from helpers import glstm_command
from small_runs import SMALL, start

MINE = """
from pathlib import Path
from torch import nn
Path(__file__).with_name("imported").touch()
class Twice(nn.Linear): ...
class Cells:
    from torch.nn import GRU
"""
VERBS = {
    "evaluate": ["evaluate", "."],
    "deploy": ["deploy", "."],
    "explore": ["explore", ".", "--static", "page.html"],
    "export c": ["export", "c", "."],
    "export onnx": ["export", "onnx", "."],
    "resume": ["train", "--resume", "."],
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    start(SMALL, folder).fit()
    return folder


@pytest.fixture
def stranger(trained, tmp_path):
    """A run in a folder that also holds a module."""
    shutil.copytree(trained, tmp_path / "run", symlinks=True)
    (tmp_path / "run" / "mine.py").write_text(MINE)
    return tmp_path / "run"


def change(run: Path, act) -> None:
    path = RunFolder(run).config
    config = json.loads(path.read_text())
    act(config)
    path.write_text(json.dumps(config))


def refused(done, module: str) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    said = " ".join(done.stderr.split())
    assert f"to import {module} is to run its code" in said
    assert f"glstm --trust {module} and your command, or by GLSTM_TRUST={module}" in said


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_no_verb_calls_what_a_recipe_names(stranger, verb):
    change(stranger, lambda config: config["recipe"].update(task="subprocess:run", data={"args": ["touch", "called"]}))
    if verb[0] in ("deploy", "export"):  # they may not need the task, and then do not ask for it
        glstm_command(*verb, cwd=stranger)
    else:
        refused(glstm_command(*verb, cwd=stranger), "subprocess")
    assert not (stranger / "called").exists()


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
@pytest.mark.parametrize("part", ["cell", "head", "gate", "model"])
def test_no_verb_imports_what_lies_in_the_folder(stranger, verb, part):
    changes = {
        "cell": lambda config: config["recipe"].update(cell="mine:Twice"),
        "head": lambda config: config["recipe"].update(head="mine:Twice"),
        "gate": lambda config: config["recipe"]["gate"].update(kind="mine:Twice"),
        "model": lambda config: config["model"]["head"].update({"class": "mine:Twice"}),
    }
    change(stranger, changes[part])
    glstm_command(*verb, cwd=stranger)
    assert not (stranger / "imported").exists()


def test_what_the_user_trusts_is_imported(stranger):
    change(stranger, lambda config: config["model"]["head"].update({"class": "mine:Twice"}))
    refused(glstm_command("evaluate", ".", cwd=stranger), "mine")
    done = glstm_command("--trust", "mine", "evaluate", ".", cwd=stranger)
    assert done.returncode == 0, done.stderr
    assert (stranger / "imported").exists()


def test_a_plan_is_a_file_like_others(stranger):
    data = "data = { steps = 10, train_size = 20, test_size = 10, validation = 10 }"
    plan = f'task = "adding"\n[recipe]\nepochs = 1\n{data}\n'
    for words in (
        '[grid]\ngate = [{ kind = "mine:Gate" }]',
        'task = "mine:Task"\n[grid]\nlr = [0.1]',
        '[grid]\ncell = ["gru", "mine:Cells.GRU"]',
        'cell = "mine:Cells.GRU"\n[grid]\nlr = [0.1]',
    ):
        (stranger / "plan.toml").write_text(plan + words)
        refused(glstm_command("sweep", "plan.toml", "--out", "swept", cwd=stranger), "mine")
    assert not (stranger / "imported").exists()
    done = glstm_command("--trust", "mine", "sweep", "plan.toml", "--out", "swept", cwd=stranger)
    assert done.returncode == 0, done.stderr


def test_a_folder_is_looked_into_only_for_modules_that_are_asked_for(tmp_path, monkeypatch):
    """Else a stranger's polars.py would be taken for the package, where that is not installed."""
    (tmp_path / "only_here.py").write_text("value = 3")
    (tmp_path / "broken.py").write_text("import nowhere_at_all")
    monkeypatch.setattr(sys, "path", list(sys.path))
    registry.look_in(tmp_path)
    assert registry.import_thing("math:pi", "number") == pytest.approx(3.14159, abs=1e-5)
    assert str(tmp_path) not in sys.path
    assert registry.import_thing("only_here:value", "number") == 3
    with pytest.raises(UserError, match="'broken:thing' cannot be imported: No module named 'nowhere_at_all'"):
        registry.import_thing("broken:thing", "thing")


def test_in_python_a_class_of_yours_is_found_if_its_module_is_imported(tmp_path, monkeypatch):
    (tmp_path / "yours.py").write_text("from torch import nn\nclass Wide(nn.Linear): ...")
    monkeypatch.syspath_prepend(tmp_path)
    model = SequenceModel(GLSTM(1, 3), nn.Linear(3, 1)).eval()
    model.save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(path.read_text().replace("torch.nn:Linear", "yours:Wide"))
    with pytest.raises(UserError, match="names yours:Wide, and to import yours is to run its code"):
        SequenceModel.from_pretrained(tmp_path / "model")
    assert "yours" not in sys.modules
    monkeypatch.setenv("GLSTM_TRUST", "others, yours")
    again = SequenceModel.from_pretrained(tmp_path / "model")
    monkeypatch.delenv("GLSTM_TRUST")
    assert type(SequenceModel.from_pretrained(tmp_path / "model").head) is type(again.head)
    x = torch.randn(5, 2, 1)
    assert torch.equal(again(x), model(x))
    del sys.modules["yours"]


def test_only_modules_and_gates_are_made(tmp_path):
    """Also of what is imported already, such as all that Python itself needs."""
    model = SequenceModel(GLSTM(1, 3), nn.Linear(3, 1))
    model.save_pretrained(tmp_path)
    text = (tmp_path / "config.json").read_text()
    for name in ("os:system", "subprocess:Popen", "torch.nn.functional:linear", "glstm.storage:write_json"):
        assert name.partition(":")[0] in {*sys.modules, os.__name__}
        (tmp_path / "config.json").write_text(text.replace("torch.nn:Linear", name))
        with pytest.raises(UserError, match="is not a Module"):
            SequenceModel.from_pretrained(tmp_path)
