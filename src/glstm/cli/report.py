"""`glstm report`: tables and a page from results."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from glstm.cli.options import require_folder


def report(
    results: Annotated[Path, typer.Argument(help="Folder of results, as 'glstm reproduce' leaves them.")] = Path(
        "results"
    ),
) -> None:
    """Write README.md with every table, and report.html with every figure, beside the results."""
    from glstm.experiments import EXPERIMENTS
    from glstm.report.page import page
    from glstm.report.results import load
    from glstm.report.tables import document
    from glstm.storage import write_atomically

    require_folder(results, "results are in a folder")
    found = load(results, list(EXPERIMENTS))
    for name, text in (("README.md", document(found)), ("report.html", page(found))):
        write_atomically(results / name, text.encode())
        Console().print(f"{results / name}", highlight=False, soft_wrap=True, markup=False)
