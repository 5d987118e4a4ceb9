"""Who may import whom, and how quickly."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import glstm

PACKAGE = Path(glstm.__file__).parent

LAYERS = {"gated", "gates", "layers", "times"}
# What each room may know of the house; a room always knows itself. Everybody may know what COMMON names.
MAY_IMPORT = {
    "errors": set(),
    "extras": set(),
    "forms": set(),
    "storage": set(),
    "saves": set(),
    "registry": set(),
    "stopping": set(),
    "fleet": set(),
    "plots": set(),
    "gates": set(),
    "times": {"ndarrays"},
    "masks": set(),
    "lengths": {"ndarrays", "times"},
    "ndarrays": set(),
    "scaling": set(),
    "ops": set(),
    "tables": {"ops"},
    "weights": {"gates", "times"},
    "doubts": {"gates", "times"},
    "timed": {"doubts", "gates", "ops", "times", "weights"},
    "fused": {"gates", "ops", "timed", "times", "weights"},
    "gated": {"fused", "gates", "ndarrays", "ops", "tables", "timed", "times"},
    "layers": {"gated", "gates"},
    "advice": {"gated", "layers", "times"},
    "cells": {"analysis", "gated", "gates", "init", "layers", "lengths", "masks", "ops"},
    "streaming": {"gated", "times"},
    "init": set(),
    "rnn": {"gates", "ops"},
    "convert": {"gated", "gates", "layers"},
    "models": {"gated", "lengths", "masks", "ndarrays", "ops", "pretrained", "times"},
    "describe": {"gated", "gates", "registry", "times", "weights"},
    "pretrained": {"describe", "models"},
    "series": set(),
    "data": {"masks", "scaling"},
    "analysis": {"gated", "layers", "times"},
    "training": {
        "", "advice", "analysis", "data", "describe", "fused", "masks", "models", "ops", "plots", "pretrained", *LAYERS,
    },
    "estimators": {
        "data", "describe", "models", "predictions", "pretrained", "recipes", "scaling", "series", "training",
    },
    "lightning": {"advice", "data", "layers", "times", "training"},
    "predictions": {"data", "gated", "models"},
    "quick": {"data", "models", "recipes", "training"},
    "recipes": {"cells", "data", "init", "models", "registry", "training", *LAYERS},
    "runtime": {"", "analysis", "models", "ops", "scaling", *LAYERS},
    "sweeps": {"data", "experiments", "plots", "recipes", "training"},
    "experiments": {
        "analysis", "cells", "convert", "data", "fleet", "gated", "models", "ops", "recipes", "report", "stopping",
        "training",
    },
    "report": {"plots"},
    "explore": {"analysis", "data", "gated", "gates", "layers", "models", "runtime", "scaling", "training"},
    "bench": {
        "", "analysis", "cells", "data", "models", "ops", "plots", "recipes", "runtime", "streaming", "training",
        *LAYERS,
    },
    "doctor": {"", "bench", "data", "layers", "ops"},
    "cli": {
        "", "analysis", "bench", "cells", "data", "doctor", "experiments", "explore", "fleet", "models", "ops",
        "plots", "predictions", "pretrained", "recipes", "registry", "report", "runtime", "stopping", "sweeps",
        "training", *LAYERS,
    },
    "__main__": {"cli", "ops"},
}  # fmt: skip
COMMON = {"errors", "extras", "forms", "saves", "storage"}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The rooms of glstm that a file imports, anywhere in it; '' is the contents page."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide who imports whom"
            modules = [node.module or ""]
            if node.module == "glstm":
                modules = ["glstm" if alias.name == "__version__" else f"glstm.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        for module in modules:
            if module == "glstm":
                found.add("")
            elif module.startswith("glstm."):
                found.add(module.split(".")[1])
    return found


FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if room(path) != "__init__"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_knows_only_what_it_may(path):
    assert room(path) in MAY_IMPORT, f"say in MAY_IMPORT what {room(path)} may import"
    allowed = MAY_IMPORT[room(path)] | {room(path)} | COMMON
    assert imports(path) <= allowed


def test_gates_import_torch_only():
    for node in ast.walk(ast.parse((PACKAGE / "gates.py").read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert all(name.split(".")[0] in {"torch", *sys.stdlib_module_names} for name in names)


def test_importing_the_package_stays_light():
    """Nothing slow comes along: no Lightning, no plots, no command line."""
    code = "import sys, glstm; from glstm.extras import EXTRA_WITH; print(*sorted(set(EXTRA_WITH) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
