"""`glstm evaluate`: what a trained network achieves and costs, at any threshold."""

import json
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from glstm.cli.options import DataOption, DeviceOption, RunFolderArgument, checked_threshold, require_folder
from glstm.cli.train import load_recipe
from glstm.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from glstm.gated import GatedLSTM


def evaluate(
    run: RunFolderArgument,
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
    data: DataOption = None,
    device: DeviceOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Test a trained network: error, openness and operations, with units at k <= threshold closed.

    Operations are for one sequence through the recurrent layer: of a plain LSTM of this size, of this network as
    the paper counts, and exactly, when the contributions of frozen units are kept instead of computed again.
    """
    from glstm.recipes import make_task
    from glstm.training.evaluate import cost, error_sums, threshold_at
    from glstm.training.fabric import available_device
    from glstm.training.run import RunFolder

    require_folder(data)
    where = available_device(device or "auto")
    folder = RunFolder(run)
    model = folder.load_model().to(where)
    layer = first_gated(model)
    thresholds = [None] if layer is None else [checked_threshold(one) for one in threshold or [layer.threshold]]
    if layer is None and threshold:
        raise UserError(f"{run} has no gates that a threshold could close: leave out --threshold")
    task = make_task(load_recipe(folder), data or folder.data(), where)
    folder.check_artifacts(task)

    console = Console()
    rows: list[dict[str, Any]] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("testing", total=len(thresholds) * task.batch_count("test", batch))
        for value in thresholds:
            with nullcontext() if layer is None or value is None else threshold_at(layer, value):
                loss, error = error_sums(model, task, batch, on_batch=lambda: progress.advance(bar))
                price = {} if layer is None else asdict(cost(layer, task.steps))
            figures = {"loss": float(loss) / task.test_size, task.metric: float(error) / task.test_size}
            rows.append({"threshold": value, **figures, **price})
    if as_json:
        console.print_json(json.dumps({"run": str(run), "test_size": task.test_size, "rows": rows}))
        return
    table = Table(title=f"{escape(str(run))}: {task.test_size:,} test sequences of {task.steps} steps")
    of_gates = ("open", "mean k", "ops LSTM", "ops paper", "ops exact")
    for name in (task.metric,) if layer is None else ("threshold", task.metric, *of_gates):
        table.add_column(name, justify="right")
    for row in rows:
        error = task.format_error(row[task.metric])
        table.add_row(error) if layer is None else table.add_row(f"{row['threshold']:g}", error, *_price(row))
    console.print(table)


def first_gated(model: "nn.Module") -> "GatedLSTM | None":
    """The model's gated layer, whose threshold and cost are meant."""
    from glstm.layers import gated_layers

    return next(iter(gated_layers(model)), None)


def _price(row: dict[str, Any]) -> list[str]:
    shares = [f"{100 * row['open_share']:.1f} %", f"{row['mean_k']:.3f}"]
    return [*shares, *(_count(row[name]) for name in ("lstm_ops", "paper_ops", "cached_ops"))]


def _count(operations: float) -> str:
    return f"{operations / 1e6:.2f} M" if operations >= 1e6 else f"{operations:,.0f}"
