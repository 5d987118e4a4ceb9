"""`glstm evaluate`: what a trained network achieves and costs, at any threshold."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from glstm.cli.train import require_folder
from glstm.errors import UserError


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder, as 'glstm train' makes it.", show_default=False)],
    threshold: Annotated[
        list[float] | None,
        typer.Option(
            "--threshold",
            "-t",
            help="v_T to test at; give it several times to compare. Without it, the run's own.",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Sequences in a batch.")] = 500,
    data: Annotated[Path | None, typer.Option(help="Folder of data files.", show_default=False)] = None,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to test.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Test a trained network: error, openness and operations, with units at k <= threshold closed.

    Operations are for one sequence through the recurrent layer: of a plain LSTM of this size, of this network as
    the paper counts, and exactly, when the contributions of frozen units are kept instead of computed again.
    """
    from glstm.training.build import available_device, build_task
    from glstm.training.evaluate import cost, error_sums, threshold_at
    from glstm.training.run import RunFolder

    require_folder(data)
    where = available_device(device)
    folder = RunFolder(run)
    recipe, model = folder.recipe(), folder.load_model().to(where)
    thresholds = threshold or [recipe.threshold]
    for value in thresholds:
        if not 0 <= value < 1:
            raise UserError(f"a threshold must be at least 0 and below 1, not {value}")
    task = build_task(recipe, data or folder.data(), where)
    folder.check_artifacts(task)

    console = Console()
    rows = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("testing", total=len(thresholds) * task.batch_count("test", batch))
        for value in thresholds:
            with threshold_at(model.layer, value):
                loss, error = error_sums(model, task, batch, on_batch=lambda: progress.advance(bar))
                price = cost(model.layer, task.steps)
            rows.append(
                {
                    "threshold": value,
                    "loss": float(loss) / task.test_size,
                    task.metric: float(error) / task.test_size,
                    **asdict(price),
                }
            )
    if as_json:
        console.print_json(json.dumps({"run": str(run), "test_size": task.test_size, "rows": rows}))
        return
    table = Table(title=f"{escape(str(run))}: {task.test_size:,} test sequences of {task.steps} steps")
    for name in ("threshold", task.metric, "open", "mean k", "ops LSTM", "ops paper", "ops exact"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            f"{row['threshold']:g}",
            task.format_error(row[task.metric]),
            f"{100 * row['open_share']:.1f} %",
            f"{row['mean_k']:.3f}",
            *(_count(row[name]) for name in ("lstm_ops", "paper_ops", "cached_ops")),
        )
    console.print(table)


def _count(operations: float) -> str:
    return f"{operations / 1e6:.2f} M" if operations >= 1e6 else f"{operations:,.0f}"
