"""What the shell asks while a command is being typed. It must be answered in a blink, and importing glstm takes seconds
because of torch: so the command line is read from a file with its outline. Only where that is missing or older than
glstm itself is glstm imported, to write it."""

import hashlib
import inspect
import json
import os
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer


def complete() -> None:
    """Answer as typer does, by the variables that the shell has set."""
    skeleton(read_outline())(prog_name="glstm")


def read_outline() -> dict[str, Any]:
    path = outline_path()
    with suppress(OSError, ValueError):
        return json.loads(path.read_text())
    from glstm.cli.main import app
    from glstm.cli.outline import outline, write_outline
    from glstm.errors import UserError

    with suppress(UserError):  # if it cannot be written, the next call is as slow as this one
        write_outline(path)
    return outline(typer.main.get_command(app))


def outline_path() -> Path:
    """Where the outline of this very state of glstm is: the name depends on the files of the package."""
    state = hashlib.sha256()
    for path in sorted(package_folder().rglob("*.py")):
        found = path.stat()
        state.update(f"{path} {found.st_mtime_ns} {found.st_size}\n".encode())
    # As glstm.storage.cache_folder says.
    cache = (Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "glstm").expanduser()
    return cache / "completion" / f"{state.hexdigest()[:20]}.json"


def package_folder() -> Path:
    """The folder of glstm, without importing it."""
    spec = find_spec("glstm")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'glstm'", name="glstm")
    return Path(spec.origin).parent


def skeleton(outline: dict[str, Any]) -> typer.Typer:
    """A command line with these verbs and options that does nothing but complete."""
    app = typer.Typer(help=outline["help"], add_completion=True)
    app.callback()(_verb(outline["parameters"]))
    for name, verb in outline["verbs"].items():
        if verb["verbs"]:
            app.add_typer(skeleton(verb), name=name, help=verb["help"])
        else:
            app.command(name, help=verb["help"])(_verb(verb["parameters"]))
    return app


def _verb(parameters: list[dict[str, Any]]) -> Callable[..., None]:
    def verb(**given: Any) -> None: ...

    own = [one for one in parameters if not {"--help", "--install-completion", "--show-completion"} & {*one["options"]}]
    signature = [
        inspect.Parameter(
            one["name"], inspect.Parameter.KEYWORD_ONLY, default=False if one["flag"] else None, annotation=_kind(one)
        )
        for one in own
    ]
    verb.__signature__ = inspect.Signature(signature)  # pyright: ignore[reportFunctionMemberAccess]
    verb.__annotations__ = {one.name: one.annotation for one in signature}
    return verb


def _kind(parameter: dict[str, Any]) -> Any:
    values = parameter["values"]

    def starting(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    kind = bool if parameter["flag"] else list[str] if parameter["several"] else str | None
    if not parameter["options"]:
        return Annotated[kind, typer.Argument(autocompletion=starting)]
    names = parameter["options"]
    return Annotated[kind, typer.Option(*names, help=parameter["help"], autocompletion=starting if values else None)]
