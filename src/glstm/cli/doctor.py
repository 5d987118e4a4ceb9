"""`glstm doctor`: what works here, and what to do about the rest."""

import json as jsons
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glstm.cli.options import DataOption


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON, for programs.")] = False,
    data: DataOption = None,
) -> None:
    """Say which engines work here, whether their numbers are right, what is missing and how to get it.

    The exit code is 0 if networks run on the CPU with right numbers.
    """
    from glstm.doctor import examine

    report = examine(data)
    if json:
        print(jsons.dumps(report.as_dict(), indent=2))
    else:
        table = Table(box=None, pad_edge=False, show_header=False)
        for column in ("part", "name", "works"):
            table.add_column(column, no_wrap=True)
        table.add_column("says", overflow="fold")
        before = None
        for finding in report.findings:
            works = Text("yes", "green") if finding.works else Text("no", "red")
            checked = "" if finding.difference is None else f"; self check: {finding.difference:.1e} from float64"
            part = finding.part if finding.part != before else ""
            table.add_row(Text(part, "bold"), Text(finding.name), works, Text(finding.says + checked))
            before = finding.part
        Console().print(table)
    if not report.works:
        raise typer.Exit(1)
