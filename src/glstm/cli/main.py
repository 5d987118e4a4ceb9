"""`glstm`: puts the verbs together and turns errors a person can act on into one sentence."""

import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from glstm.cli import bench, data, demo, evaluate, report, reproduce, train
from glstm.errors import UserError

# Threads that wait for each other give way soon: left to themselves they spin, and two programs on the same cores slow
# each other down many times over. It must be said before torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

app = typer.Typer(
    name="glstm",
    help="Time-gated recurrent networks: train them, test them, see what they cost.",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


@app.callback()
def about(
    version: Annotated[bool, typer.Option("--version", help="Show the version, and which engine runs.")] = False,
) -> None:
    if version:
        from glstm import __version__
        from glstm.ops.cpu import status

        print(f"glstm {__version__}: {status()}")
        raise typer.Exit


app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("reproduce")(reproduce.reproduce)
app.command("report")(report.report)
app.command("demo")(demo.demo)
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")


def main() -> None:
    try:
        app()
    except UserError as error:
        message = Text.assemble(("error: ", "bold red"), str(error))  # as it is: a bracket in it is no markup
        Console(stderr=True).print(message, soft_wrap=True)
        sys.exit(2)
