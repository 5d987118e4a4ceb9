"""`glstm`: puts the verbs together, and prints errors that a user can correct as one sentence."""

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from glstm import registry
from glstm.cli import (
    bench,
    data,
    demo,
    deploy,
    doctor,
    evaluate,
    explore,
    export,
    predict,
    report,
    reproduce,
    sweep,
    train,
)
from glstm.errors import GateWarning, UserError

TRACEBACK = "GLSTM_TRACEBACK"  # the variable that asks for Python's own message
python_says = warnings.showwarning

app = typer.Typer(
    name="glstm",
    help="Time-gated recurrent networks: train them, test them, see what they cost.",
    no_args_is_help=True,
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


@app.callback()
def about(
    version: Annotated[bool, typer.Option("--version", help="Show the version, and which engine runs.")] = False,
    trust: Annotated[
        list[str] | None,
        typer.Option(
            help="A module of yours that a run or model folder may name: importing it runs its code. Repeat it, or "
            f"list them in {registry.TRUST}.",
            metavar="MODULE",
            show_default=False,
        ),
    ] = None,
) -> None:
    registry.trust(trust or ())
    if version:
        from glstm import __version__
        from glstm.ops.cpu import status

        print(f"glstm {__version__}: {status()}")
        raise typer.Exit


def prose(function: Callable) -> str:
    """Its docstring with one line for each paragraph: the terminal decides where lines break."""
    return "\n\n".join(" ".join(part.split()) for part in (function.__doc__ or "").split("\n\n"))


VERBS = (
    train.train,
    evaluate.evaluate,
    explore.explore,
    predict.predict,
    deploy.deploy,
    reproduce.reproduce,
    report.report,
    sweep.sweep,
    demo.demo,
    doctor.doctor,
)
for verb in VERBS:
    app.command(verb.__name__, help=prose(verb))(verb)
app.add_typer(data.app, name="data")
app.add_typer(export.app, name="export")
app.add_typer(bench.app, name="bench")


def _say_warning(message: Warning | str, category: type[Warning], *place: object) -> None:
    """A warning of ours is a sentence for the user; those of others keep Python's form."""
    if issubclass(category, GateWarning) or category is UserWarning:
        Console(stderr=True).print(Text.assemble(("warning: ", "bold yellow"), str(message)), soft_wrap=True)
    else:
        python_says(message, category, *place)  # pyright: ignore[reportArgumentType]


def main() -> None:
    registry.look_in(Path.cwd())
    warnings.showwarning = _say_warning
    try:
        app()
    except UserError as error:
        _say_error(str(error))
        sys.exit(2)
    except Exception as error:  # a mistake of ours: an error of the user's is a UserError
        if os.environ.get(TRACEBACK):
            raise
        words = " ".join(sys.argv[1:])
        what = next(iter(str(error).splitlines()), "")
        _say_error(
            f"'glstm {words:.200}' stopped at something that nobody expected, {type(error).__name__} {what:.200}: "
            f"{TRACEBACK}=1 shows where; please report it"
        )
        sys.exit(1)


def _say_error(sentence: str) -> None:
    message = Text.assemble(("error: ", "bold red"), sentence)  # as plain text: a bracket in it is not markup
    Console(stderr=True).print(message, soft_wrap=True)
