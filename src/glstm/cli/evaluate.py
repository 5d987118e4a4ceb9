"""`glstm evaluate`: what a trained network achieves and costs, at any threshold."""

import json
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from glstm.cli.folders import TestOptions, load, require_test
from glstm.cli.options import DataOption, DeviceOption, ModelFolderArgument, checked_threshold, grouped
from glstm.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from glstm.data import Task
    from glstm.gated import GatedLSTM

MOST_CLASSES = 20  # a larger confusion matrix does not fit a terminal


@grouped
def evaluate(
    run: ModelFolderArgument,
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
    last: Annotated[
        bool, typer.Option("--last", help="Test the last epoch's network, not the best by validation.")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Also draw the confusion matrix into this PNG or SVG file.", show_default=False)
    ] = None,
    data: DataOption = None,
    device: DeviceOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    *,
    given: TestOptions,
) -> None:
    """Test a trained network: error, openness and operations, with units at k <= threshold closed.

    Operations are for one sequence through the recurrent layer: of a plain LSTM of this size, of this network as
    the paper counts, and exactly, when the contributions of frozen units are kept instead of computed again. Of a
    network without gates they are counted in the same way, at the share of steps at which it updates its state. If the
    classes have names, a confusion matrix follows: rows are true classes, columns are answers. With a target for each
    step the error weighs every sequence alike, and the matrix counts steps. A folder of save_pretrained knows no data:
    [bold]glstm evaluate FOLDER --test new.csv --id run --target kind[/] tests it on a file, read like those for
    training.
    """
    from glstm.models import ends_in_softmax
    from glstm.training.evaluate import cell_cost, confusion, error_sums, mean_cost, threshold_at
    from glstm.training.fabric import available_device

    where = available_device(device or "auto")
    subject = load(run, given, data, where, last=last)
    model = subject.model
    layer = first_gated(model)
    thresholds = [None] if layer is None else [checked_threshold(one) for one in threshold or [layer.threshold]]
    if layer is None and threshold:
        raise UserError(f"{run} has no gates that a threshold could close: leave out --threshold")
    task = require_test(subject)
    if picture is not None and not task.classes:
        raise UserError(f"--picture draws a confusion matrix, and {task.name} has no named classes")

    console = Console()
    rows: list[dict[str, Any]] = []
    matrix: list[list[int]] | None = None
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("testing", total=len(thresholds) * task.batch_count("test", batch))
        for value in thresholds:
            with nullcontext() if layer is None or value is None else threshold_at(layer, value):
                loss, error = error_sums(model, task, batch, on_batch=lambda: progress.advance(bar))
                price = cell_cost(model, task, batch) if layer is None else mean_cost(layer, task)
                if task.classes and matrix is None:  # at the first threshold
                    matrix = confusion(model, task, batch).tolist()
            # The loss is of outputs before a softmax.
            figures = {} if ends_in_softmax(model) else {"loss": float(loss) / task.test_size}
            figures |= {task.metric: float(error) / task.test_size}
            rows.append({"threshold": value, **figures, **({} if price is None else asdict(price))})
    if picture is not None and matrix is not None:
        _draw(matrix, task.classes or (), picture)
    if as_json:
        found: dict[str, Any] = {"run": str(run), "test_size": task.test_size, "rows": rows}
        if matrix is not None:
            found |= {"classes": task.classes, "confusion": matrix}
        console.print_json(json.dumps(found))
        return
    table = Table(title=f"{escape(str(run))}: {task.test_size:,} test sequences of {_steps(task)} steps")
    of_gates = ("open", "mean k", "ops LSTM", "ops paper", "ops exact")
    of_cell = ("updates", "ops") if "ops" in rows[0] else ()
    for name in (task.metric, *of_cell) if layer is None else ("threshold", task.metric, *of_gates):
        table.add_column(name, justify="right")
    for row in rows:
        error = task.format_error(row[task.metric])
        if layer is not None:
            table.add_row(f"{row['threshold']:g}", error, *_price(row))
        else:
            table.add_row(error, *((f"{100 * row['updates']:.1f} %", _count(row["ops"])) if of_cell else ()))
    console.print(table)
    if task.per_step:
        console.print(_how_steps_count(task), highlight=False, soft_wrap=True)
    if matrix is not None and len(matrix) <= MOST_CLASSES:
        console.print(_confusion(matrix, task.classes or ()))


def first_gated(model: "nn.Module") -> "GatedLSTM | None":
    """The model's gated layer, whose threshold and cost are meant."""
    from glstm.layers import gated_layers

    return next(iter(gated_layers(model)), None)


def _steps(task: "Task") -> str:
    return str(task.steps) if task.equally_long else f"up to {task.steps}"


def _how_steps_count(task: "Task") -> str:
    counted = "; the confusion matrix counts steps" if task.classes else ""
    return f"The {task.metric} is a mean over sequences of each one's mean over its steps{counted}."


def _price(row: dict[str, Any]) -> list[str]:
    shares = [f"{100 * row['open_share']:.1f} %", f"{row['mean_k']:.3f}"]
    return [*shares, *(_count(row[name]) for name in ("lstm_ops", "paper_ops", "cached_ops"))]


def _count(operations: float) -> str:
    return f"{operations / 1e6:.2f} M" if operations >= 1e6 else f"{operations:,.0f}"


def _confusion(matrix: list[list[int]], classes: tuple[str, ...]) -> Table:
    table = Table(title="true class (rows) and answer (columns)")
    for name in ("", *classes, "right"):
        table.add_column(escape(name), justify="right")
    for number, (name, row) in enumerate(zip(classes, matrix, strict=True)):
        cells = [
            f"[bold]{count}[/]" if place == number else str(count) if count else "[dim]·[/]"
            for place, count in enumerate(row)
        ]
        share = f"{100 * row[number] / sum(row):.0f} %" if sum(row) else ""
        table.add_row(escape(name), *cells, share)
    return table


def _draw(matrix: list[list[int]], classes: tuple[str, ...], path: Path) -> None:
    from glstm import plots
    from glstm.extras import require

    require("drawing a confusion matrix", "matplotlib")
    plots.save(plots.confusion(matrix, classes), path)
