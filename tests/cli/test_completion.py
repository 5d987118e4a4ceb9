"""Completion as a shell asks for it: through the installed console script, in a real bash."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import glstm
from glstm.cells import CELLS
from glstm.data import TASKS
from glstm.experiments import EXPERIMENTS
from glstm.gates import GATES
from glstm.recipes import PRESETS
from glstm.storage import cache_folder
from glstm_command import completion

SCRIPTS = Path(sysconfig.get_path("scripts"))
needs_script = pytest.mark.skipif(not (SCRIPTS / "glstm").exists(), reason="the console script is not installed")
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """Of a user whose cache is empty at first, and who has the console script in the path."""
    folder = tmp_path_factory.mktemp("cache")
    return os.environ | {"XDG_CACHE_HOME": str(folder), "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"}


# Loads the script that the shell gets when completion is installed, and calls what bash calls at a tab.
IN_BASH = """
source <(_GLSTM_COMPLETE=source_bash glstm)
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
$(complete -p glstm | sed 's/.*-F \\([^ ]*\\).*/\\1/') glstm
printf '%s\\n' "${COMPREPLY[@]}"
"""


def after_tab(line: str, environment: dict[str, str]) -> list[str]:
    """What bash would offer for the last word of the line."""
    done = subprocess.run(
        ["bash", "-c", IN_BASH, "bash", *line.split(" ")], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


@needs_script
@needs_bash
def test_bash_completes_verbs_options_and_names(environment):
    assert after_tab("glstm tr", environment) == ["train"]
    assert {"train", "doctor", "data", "export"} <= set(after_tab("glstm ", environment))
    assert after_tab("glstm train ", environment) == list(TASKS)
    assert after_tab("glstm train adding --cell ", environment) == list(CELLS)
    assert after_tab("glstm train adding --gate ", environment) == list(GATES)
    assert after_tab("glstm train smnist --preset sm", environment) == [name for name in PRESETS if name[:2] == "sm"]
    assert after_tab("glstm train adding --optimizer ", environment) == ["adam", "rmsprop", "sgd"]
    assert after_tab("glstm train adding --budget", environment) == ["--budget", "--budget-epochs"]
    assert after_tab("glstm data fetch m", environment) == ["mnist"]
    assert after_tab("glstm reproduce table1", environment) == [name for name in EXPERIMENTS if name[:6] == "table1"]


@needs_script
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_their_own_form(environment, shell):
    asked = {"_GLSTM_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "glstm train ",
             "_TYPER_COMPLETE_FISH_ACTION": "get-args"}  # fmt: skip
    done = subprocess.run([SCRIPTS / "glstm"], capture_output=True, text=True, env=environment | asked)
    assert all(task in done.stdout for task in TASKS), done.stderr


def complete_train(environment: dict[str, str], and_then: str) -> str:
    code = f"import sys, glstm_command\ntry:\n    glstm_command.main()\nfinally:\n    {and_then}"
    asked = {"_GLSTM_COMPLETE": "complete_bash", "COMP_WORDS": "glstm train ", "COMP_CWORD": "2"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment | asked)
    assert done.stdout.split()[: len(TASKS)] == list(TASKS), done.stderr
    return done.stdout.split()[-1]


def test_only_the_first_call_imports_torch(tmp_path):
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    says = "print('torch' in sys.modules)"
    assert [complete_train(environment, says) for _ in range(2)] == ["True", "False"]
    (path,) = (tmp_path / "glstm" / "completion").iterdir()
    path.write_text("{half a fi")  # is made again
    assert [complete_train(environment, says) for _ in range(2)] == ["True", "False"]
    assert "train" in json.loads(path.read_text())["verbs"]


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path):
    (tmp_path / "glstm").write_text("a file where the folder should be")
    assert complete_train(os.environ | {"XDG_CACHE_HOME": str(tmp_path)}, "print('torch' in sys.modules)") == "True"


def test_without_typer_there_is_nothing_to_complete():
    code = "import sys; sys.modules['typer'] = None; import glstm_command; glstm_command.main()"
    environment = os.environ | {"_GLSTM_COMPLETE": "complete_bash"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_outline_is_in_the_cache_and_follows_the_package(monkeypatch, tmp_path):
    assert completion.package_folder() == Path(glstm.__file__).parent
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = completion.outline_path()
    assert before.parent.parent == cache_folder()
    package = tmp_path / "glstm"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.setattr(completion, "package_folder", lambda: package)
    other = completion.outline_path()
    (package / "__init__.py").write_text("changed = True")
    assert len({before, other, completion.outline_path()}) == 3
