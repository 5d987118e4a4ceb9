"""Packages that only part of glstm needs. If one is missing, the error says which extra installs it."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from glstm.errors import UserError

# The smallest extra that installs a package, by the name it is imported under.
EXTRA_WITH = {
    "lightning": "train",
    "matplotlib": "report",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "optuna": "sweep",
    "PIL": "data",
    "polars": "tables",
    "pooch": "data",
    "ray": "ray",
    "rich": "train",
    "sklearn": "sklearn",
    "tensorboard": "tensorboard",
    "typer": "cli",
    "ziglang": "wasm",
}


class MissingPackage(ImportError, UserError):
    """An optional package is not installed; the message says what needs it and which extra installs it."""


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Around imports of optional packages: if one is missing, the error says that `what` needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_WITH:
            raise
        sentence = f"{what} needs {package}: pip install 'glstm[{EXTRA_WITH[package]}]' brings it"
        raise MissingPackage(sentence, name=package) from error


def require(what: str, *packages: str) -> None:
    """Raises now if a package is missing that `what` will need later; imports nothing."""
    for package in packages:
        if find_spec(package) is None:
            with needed_by(what):
                raise ModuleNotFoundError(f"No module named {package!r}", name=package)
