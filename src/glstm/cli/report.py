"""`glstm report`: tables and a page from results, or a page of anybody's runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from glstm.cli.options import require_folder, require_own
from glstm.errors import UserError

if TYPE_CHECKING:
    from glstm.report.runs import Comparison

RESULTS = Path("results")
PAGE = Path("report.html")
MARKS = (b"<title>glstm: ", b"Written by `glstm report`")  # in the first lines of everything that this verb writes


def report(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN",
            help="Run folders of 'glstm train', or folders of several, as --seeds makes them. Or one folder of "
            "results, as 'glstm reproduce' leaves them; without any, results.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help=f"Of runs: the page to write; without it, {PAGE}.", show_default=False)
    ] = None,
) -> None:
    """Compare runs in one page that opens offline, or write up the results of the paper's experiments.

    [bold]glstm report runs/a runs/b[/] writes report.html: a table of the networks, with mean and standard deviation
    over seeds, their learning curves, their gates, and the settings that differ. [bold]glstm report results[/] writes
    README.md with every table, and report.html with every figure, beside the results. An earlier report is
    replaced, any other file of that name is not.
    """
    from glstm.report.runs import is_results, load_runs

    given = folders or [RESULTS]
    results = [folder for folder in given if is_results(folder)]
    if folders and not results:
        from glstm.report.run_page import runs_page

        found = load_runs(given)
        page = out or PAGE
        require_own(page, MARKS, "glstm report did not write it: choose another --out, or move it away")
        _write(page, runs_page(found, _commands(found)))
        return
    if len(given) > 1:
        raise UserError(f"{results[0]} holds results of glstm reproduce: report it alone, or runs of glstm train")
    if out is not None:
        raise UserError("--out is for a page of runs: say which runs; results get their page beside them")
    _report_results(given[0])


def _report_results(results: Path) -> None:
    from glstm.experiments import EXPERIMENTS
    from glstm.report.page import page
    from glstm.report.reading import load
    from glstm.report.tables import document

    require_folder(results, "results are in a folder")
    found = load(results, list(EXPERIMENTS))
    texts = {results / "README.md": document(found), results / "report.html": page(found)}
    for path in texts:
        require_own(path, MARKS, "glstm report did not write it: move it away")
    for path, text in texts.items():
        _write(path, text)


def _write(path: Path, text: str) -> None:
    from glstm.storage import write_atomically

    write_atomically(path, text.encode())
    Console().print(f"{path}", highlight=False, soft_wrap=True, markup=False)


def _commands(comparisons: "list[Comparison]") -> dict[Path, str]:
    """The commands that repeat the networks' first runs, as far as there are any."""
    from glstm.cli.repeat import command

    runs = [network.first for comparison in comparisons for network in comparison.networks]
    return {run.path: text for run in runs if (text := command(run.path)) is not None}
