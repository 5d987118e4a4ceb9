"""Every public name is in the API reference, by what the built site says about itself, and has a docstring."""

import ast
import importlib
import inspect
import re
import zlib
from pathlib import Path

from documents import DOCUMENTS, blocks
from glstm.cells import CELLS

PACKAGES = ("glstm", "glstm.analysis", "glstm.data", "glstm.ops", "glstm.runtime", "glstm.training")


def public(package: str) -> list[str]:
    """What a package offers: names that it imports as themselves, imports later, or defines in capitals."""
    module = importlib.import_module(package)
    found = list(getattr(module, "_LATER", ()))
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
        if isinstance(node, ast.ImportFrom):
            found += [one.name for one in node.names if one.asname == one.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [one.id for one in targets if isinstance(one, ast.Name) and re.fullmatch("[A-Z]+", one.id)]
    return [f"{package}.{name}" for name in dict.fromkeys(found)]


def imported_in_documents() -> set[str]:
    """`from glstm.x import y` in any block of python."""
    found = set()
    for path in DOCUMENTS:
        for block in blocks(path, "python"):
            for node in ast.walk(ast.parse(block.code)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("glstm"):
                    found |= {f"{node.module}.{one.name}" for one in node.names}
    return found


def places(name: str) -> set[str]:
    """The name, and where what it stands for is defined."""
    package, _, own = name.rpartition(".")
    thing = getattr(importlib.import_module(package), own)
    return {name, f"{getattr(thing, '__module__', package)}.{getattr(thing, '__qualname__', own)}"}


def test_every_public_name_is_in_the_reference(site):
    listed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    known = {line.split(" ")[0] for line in zlib.decompress(listed).decode().splitlines()}
    names = [name for package in PACKAGES for name in public(package)]
    names += [f"{cell.__module__}.{cell.__qualname__}" for cell in CELLS.values() if "glstm" in cell.__module__]
    assert {"glstm.GLSTM", "glstm.SequenceClassifier", "glstm.ops.BACKENDS"} <= set(names)
    assert [name for name in (*names, *sorted(imported_in_documents())) if not places(name) & known] == []


def test_every_public_function_and_method_says_what_it_does():
    bare = []
    for name in (name for package in PACKAGES for name in public(package)):
        package, _, own = name.rpartition(".")
        thing = getattr(importlib.import_module(package), own)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            bare += [] if thing.__doc__ else [name]
        if inspect.isclass(thing):
            bare += [f"{name}.{method}" for method in vars(thing) if not _documented(thing, method)]
    assert bare == []


def _documented(owner: type, name: str) -> bool:
    """Whether a method or property has a docstring, its own or that of what it overrides."""
    thing = inspect.getattr_static(owner, name)
    if name.startswith("_") or not (inspect.isfunction(thing) or isinstance(thing, property)):
        return True
    return name == "extra_repr" or bool(inspect.getdoc(getattr(owner, name)))
