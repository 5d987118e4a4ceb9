"""What an installation holds, and what works in it when nothing else is installed."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

from first_block import first_block
from glstm.extras import EXTRA_WITH, MissingPackage, needed_by, require
from glstm.ops import cpu

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# All that the wheel holds besides Python code and its own description.
DATA = {
    "glstm/bench/cortex_m4/count.c",
    "glstm/bench/cortex_m4/mps2-an386.ld",
    "glstm/bench/cortex_m4/start.c",
    "glstm/explore/web/answer.js",
    "glstm/explore/web/bytes.js",
    "glstm/explore/web/charts.js",
    "glstm/explore/web/dom.js",
    "glstm/explore/web/gate.js",
    "glstm/explore/web/head.js",
    "glstm/explore/web/main.js",
    "glstm/explore/web/network.js",
    "glstm/explore/web/page.html",
    "glstm/explore/web/panel.js",
    "glstm/explore/web/picture.js",
    "glstm/explore/web/sample.js",
    "glstm/explore/web/schedule.js",
    "glstm/explore/web/style.css",
    "glstm/native/agenda.h",  # exported C is made of these
    "glstm/native/head.h",
    "glstm/native/int8.h",
    "glstm/native/place.h",
    "glstm/native/stream.h",
    "glstm/native/timed.h",
    "glstm/native/window.h",
    "glstm/ops/gpu/ahead.cuh",
    "glstm/ops/gpu/backward.cu",
    "glstm/ops/gpu/block.cuh",
    "glstm/ops/gpu/bn_step.cu",
    "glstm/ops/gpu/cell.cuh",
    "glstm/ops/gpu/cluster.cuh",
    "glstm/ops/gpu/exchange.cuh",
    "glstm/ops/gpu/forward.cu",
    "glstm/ops/gpu/gate.cu",
    "glstm/ops/gpu/gate.cuh",
    "glstm/ops/gpu/instructions.cuh",
    "glstm/ops/gpu/layout.cuh",
    "glstm/ops/gpu/matrix.cuh",
    "glstm/ops/gpu/schedule.cu",
    "glstm/ops/gpu/slots.cuh",
    "glstm/ops/gpu/sparse.cu",
    "glstm/ops/gpu/sparse.cuh",
    "glstm/ops/gpu/sparse_backward.cu",
    "glstm/ops/gpu/sparse_changes.cuh",
    "glstm/ops/gpu/sparse_finish.cu",
    "glstm/ops/gpu/sparse_sums.cuh",
    "glstm/ops/gpu/steps.cu",
    "glstm/ops/gpu/tape.cuh",
    "glstm/ops/gpu/unit_scan.cu",
    "glstm/ops/gpu/wide_backward.cu",
    "glstm/ops/gpu/wide_forward.cu",
    "glstm/py.typed",
    "glstm/report/style.css",
}

# Run with `python -S`, which reads no .pth files: what is on the path is what is named here. Of that, only glstm, the
# packages in `allowed` and modules of no package at all can be imported.
ALONE = """
import sys
from importlib import metadata

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if path is None and name in refused:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.path[:0] = folders
refused = {name for name, owners in metadata.packages_distributions().items() if not allowed & set(owners)}
assert set(extras) <= refused | missing, sorted(extras - refused)
sys.meta_path.insert(0, Refuse())
"""

# Everything the first page of the documents promises of the core.
CORE = """
import pathlib, tempfile, torch, glstm
from glstm.ops import cpu
assert glstm.__file__.startswith(target), glstm.__file__
assert not built or cpu.engine()._name.startswith(target)
model = glstm.SequenceModel(glstm.GLSTM(2, 4, mu=(1, 20), sigma=3.0), torch.nn.Linear(4, 1))
(model(torch.randn(20, 3, 2)).sum() + glstm.budget(model, times=20)).backward()
glstm.prune(model.layer, 20, 0.01), glstm.count_ops, glstm.gradient_flow, glstm.TemporalCurriculum
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    again = glstm.SequenceModel.from_pretrained(folder)
glstm.deploy(again, steps=20, threshold=0.01)
assert not set(sys.modules) & set(extras)
"""

# What comes to need an extra, and the sentence it says.
ASKED = {
    "from glstm.training.fabric import make_fabric; make_fabric('cpu', devices=2)": (
        "training on several devices needs lightning: pip install 'glstm[train]' brings it"
    ),
    "import glstm.training.display": "showing how training goes needs rich: pip install 'glstm[train]' brings it",
    "from glstm import SequenceClassifier": (
        "scikit-learn's convention needs sklearn: pip install 'glstm[sklearn]' brings it"
    ),
    "import glstm.lightning": "SequenceModule needs lightning: pip install 'glstm[train]' brings it",
    "import glstm.runtime.export_onnx": "exporting ONNX needs onnx: pip install 'glstm[onnx]' brings it",
    "from glstm import plots; plots.new_figure(1, 1)": (
        "drawing a picture needs matplotlib: pip install 'glstm[report]' brings it"
    ),
    "from glstm.data.fetch import download; download('', '')": (
        "downloading data needs pooch: pip install 'glstm[data]' brings it"
    ),
    "from glstm.data.cifar import _from_pictures as f; next(f(None))": (
        "reading pictures of CIFAR-10 needs PIL: pip install 'glstm[data]' brings it"
    ),
}
ASK = """
from glstm.extras import MissingPackage
for code, sentence in asked.items():
    try:
        exec(code)
    except MissingPackage as error:
        assert str(error) == sentence, str(error)
    else:
        raise AssertionError(f"{code} needed nothing")
"""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed_with(*names: str) -> set[str]:
    """These packages and all that they need, as they are called here."""
    found, ahead = set(), list(names)
    installed = {normal(one.name): one for one in metadata.distributions()}
    while ahead:
        one = installed.get(normal(ahead.pop()))
        if one is None or one.name in found:
            continue  # for another platform, or known
        found.add(one.name)
        ahead += [re.match(r"[\w.-]+", text)[0] for text in one.requires or () if "extra ==" not in text]
    return found


def build(kind: str, folder: Path) -> Path:
    """The built wheel or sdist. Kept objects make all builds but the first quick."""
    if kind == "sdist":
        code = f"from scikit_build_core.build import build_sdist; build_sdist({str(folder)!r})"
        command = [sys.executable, "-c", code]
    else:
        options = ["--no-deps", "--wheel-dir", folder, "--config-settings=build-dir=build/packaging"]
        options += ["--no-build-isolation"] if shutil.which("cmake") else []  # pip brings one, if need be
        command = [sys.executable, "-m", "pip", "wheel", ".", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.iterdir()
    return built


def test_an_installed_wheel_works_alone_and_asks_for_its_extras(tmp_path):
    wheel = build("wheel", tmp_path / "dist")
    assert "-py3-none-" in wheel.name
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    sources = (ROOT / "src").rglob("*.py")
    code = {path.relative_to(ROOT / "src").as_posix() for path in sources}
    assert set(names) == code | DATA | ({"glstm/native/engine.so"} if cpu.engine() else set())

    target = tmp_path / "installed"
    install(wheel, target)
    done = run_alone(target, first_block() + CORE + ASK, built=cpu.engine() is not None)
    assert done.returncode == 0, done.stderr
    done = run_alone(target, "import glstm_command; glstm_command.main()", built=False)
    assert done.returncode == 2
    assert done.stderr == "error: the command glstm needs typer: pip install 'glstm[cli]' brings it\n"


def install(built: Path, target: Path, **environment: str) -> None:
    """Into an empty folder; nothing is fetched."""
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--target", target]
    command = [sys.executable, "-m", "pip", "install", "--quiet", *options, built]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    assert done.returncode == 0, done.stdout + done.stderr


def run_alone(target: Path, program: str, *, built: bool) -> subprocess.CompletedProcess[str]:
    """With what is installed there, and with what glstm says it needs."""
    given = {
        "target": str(target),
        "folders": [str(target), *(path for path in sys.path if path.endswith("-packages"))],
        "allowed": {"glstm", *needed_with("torch", "numpy", "safetensors")},
        "extras": set(EXTRA_WITH),
        "missing": set(EXTRA_WITH) - set(metadata.packages_distributions()),
        "built": built,
        "asked": ASKED,
    }
    alone = "".join(f"{name} = {value!r}\n" for name, value in given.items()) + ALONE
    command = [sys.executable, "-S", "-c", alone + program]
    return subprocess.run(command, cwd=target.parent, capture_output=True, text=True)


def test_a_source_distribution_holds_what_a_wheel_is_built_from_and_nothing_else(tmp_path):
    packed = build("sdist", tmp_path / "dist")
    with tarfile.open(packed) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml", "src/glstm/py.typed"} <= names
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "src/glstm/native").glob("*.[ch]")} <= names
    assert not any(name.startswith((".git/", ".venv/", "build/", ".ci/", ".github/")) for name in names)
    assert {f"src/{name}" for name in DATA} <= names
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True,
                            capture_output=True)  # fmt: skip
    if listed.returncode == 0:
        assert names <= {*listed.stdout.splitlines(), "PKG-INFO"}
    if shutil.which("cmake") is None:
        return
    # Without a C compiler, which makes it quick: the wheel is the one that a machine without a compiler gets.
    install(packed, tmp_path / "installed", CC=str(tmp_path / "none"))
    done = run_alone(tmp_path / "installed", CORE, built=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", EXTRA_WITH)
def test_an_extra_brings_what_is_asked_of_it(package):
    if package == "ray" and find_spec("ray") is None:
        pytest.skip("ray is not installed: make fleet installs it")
    (owner,) = {normal(name) for name in metadata.packages_distributions()[package]}
    declared = PROJECT["optional-dependencies"][EXTRA_WITH[package]]
    assert owner in {normal(re.match(r"[\w-]+", text)[0]) for text in declared}


def test_a_module_that_no_extra_brings_is_a_plain_import_error():
    with pytest.raises(ModuleNotFoundError) as caught, needed_by("this test"):
        import nowhere  # noqa: F401  # pyright: ignore[reportMissingImports]
    assert not isinstance(caught.value, MissingPackage)


def test_what_is_needed_later_is_asked_for_at_once(monkeypatch):
    monkeypatch.setattr("glstm.extras.find_spec", lambda package: None if package == "matplotlib" else package)
    require("glstm demo", "lightning")
    with pytest.raises(MissingPackage, match="glstm demo needs matplotlib"):
        require("glstm demo", "lightning", "matplotlib")


def test_the_core_needs_three_packages():
    assert [re.match(r"\w+", text)[0] for text in PROJECT["dependencies"]] == ["torch", "numpy", "safetensors"]
