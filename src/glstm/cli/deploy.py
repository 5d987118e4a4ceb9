"""`glstm deploy`: what a trained network costs when it is used, and how large its threshold may be."""

import shlex
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from glstm.cli.export import chosen_threshold, deployable, deployed, random_samples
from glstm.cli.folders import ScheduleOptions, Subject, load, require_test
from glstm.cli.options import DataOption, ModelFolderArgument, ThresholdOption, grouped
from glstm.errors import UserError

HELD_OUT = 5000  # sequences on which a threshold is chosen
BATCH = 500


@grouped
def deploy(
    run: ModelFolderArgument,
    threshold: ThresholdOption = None,
    max_error: Annotated[
        float | None,
        typer.Option(
            help="Instead: the largest threshold that costs at most so much error, in points of a percentage, or in "
            "the task's own metric. Chosen on validation data, or on training data if there are none; the test set is "
            "looked at once, at the end.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.01, help="To measure each contender for.")] = 1.0,
    data: DataOption = None,
    *,
    given: ScheduleOptions,
) -> None:
    """Fix which unit works when, and say what that brings: units, openness, operations, error, time.

    Time is that of one sequence at a time on this machine's CPU, beside torch's LSTM and ONNX Runtime's of the same
    size, in the same run. Of a folder that save_pretrained wrote, say how long a sequence is by --steps or --times, and
    give --test for its error.
    """
    from glstm.bench.deployed import times as measured

    if threshold is not None and max_error is not None:
        raise UserError("--threshold says where to close, --max-error finds where: give one of them")
    if max_error is not None and not max_error >= 0:
        raise UserError(f"--max-error is how much more error may be, 0 or more, not {max_error}")
    subject = load(run, given, data)
    model = deployable(run, subject.model).float()
    as_trained = model.layer.threshold
    task = None if subject.task is None else require_test(subject)
    schedule = subject.schedule()
    console = Console()
    if max_error is not None:
        threshold = _chosen(console, subject, max_error, as_trained)
    threshold = chosen_threshold(as_trained, threshold)

    runtime, trained = (deployed(model, schedule, value) for value in (threshold, as_trained))
    prices = [_price(model, task, schedule, value) for value in (as_trained, threshold)]
    table = Table("", "as trained", f"deployed at {threshold:g}", title=escape(str(run)))
    for column in table.columns[1:]:
        column.justify = "right"
    units = model.layer.hidden_size * model.layer.num_layers * model.layer.num_directions
    table.add_row("units", str(units), str(sum(runtime.units)))
    table.add_row("open", *(f"{100 * price.open_share:.2f} %" for price in prices))
    table.add_row("operations, plain LSTM", *(_millions(price.lstm_ops) for price in prices))
    table.add_row("operations, paper's count", *(_millions(price.paper_ops) for price in prices))
    exact = runtime.ops if task is None or task.equally_long else prices[1].cached_ops
    table.add_row("operations, exact", _millions(prices[0].cached_ops), _millions(exact))
    if task is not None:
        errors = _errors(task, [trained, runtime])
        table.add_row(f"{task.metric}, {task.test_size:,} test sequences", *map(task.format_error, errors))
    memory = runtime.memory
    table.add_row("constant data, bytes", "", f"{memory.constant:,}")
    table.add_row("state, bytes", "", f"{memory.state:,}")
    console.print(table)

    console.print(_energy_table(runtime, threshold))

    sample = random_samples(runtime.plan, 1) if task is None else task.test_samples(slice(0, 1))[0]
    taken_by = measured(model, runtime, sample, seconds)
    ours = taken_by[next(iter(taken_by))]
    table = Table("one sequence", "microseconds", "a step", "times ours", title="on this machine")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, taken in taken_by.items():
        table.add_row(name, f"{1e6 * taken:,.1f}", f"{1e6 * taken / len(sample):.3f}", f"{taken / ours:.1f}")
    console.print(table)
    command = shlex.join(["glstm", "export", "c", str(run), *_said(given), "--threshold", repr(threshold)])
    console.print(f"as C, at this threshold: {command}", highlight=False, soft_wrap=True, markup=False)


def _energy_table(runtime: Any, threshold: float) -> Table:
    table = Table("microjoules, estimated", "plain LSTM", f"deployed at {threshold:g}", title="one sequence, on paper")
    for column in table.columns[1:]:
        column.justify = "right"
    for machine, energy in runtime.energy.items():
        table.add_row(machine, *(f"{1e6 * joules:,.1f}" for joules in (energy.lstm, energy.network)))
    return table


def _chosen(console: Console, subject: Subject, max_error: float, as_trained: float) -> float:
    """The largest threshold that costs at most so much."""
    from glstm.data import Batch
    from glstm.runtime.threshold import CANDIDATES, largest_threshold

    task, model = require_test(subject), subject.model
    if not subject.choosable:
        raise UserError(
            f"--max-error chooses on other sequences than those of the test, and {task.name} has only these: give an "
            ".npz file with the parts x_train, y_train, x_test and y_test"
        )
    allowed = max_error / 100 if task.as_percent else max_error
    found, seen = task.held_out(HELD_OUT, BATCH)
    sequences = [Batch(*batch) for batch in found]
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("choosing a threshold", total=len(CANDIDATES) + 1)

        def error_at(value: float) -> float:
            progress.advance(bar)
            return _error(model, task, sequences, value)

        threshold = largest_threshold(error_at, allowed, as_trained)
    became = [task.format_error(_error(model, task, sequences, value)) for value in (as_trained, threshold)]
    console.print(
        f"threshold {threshold:g}, chosen on {_size(sequences):,} {seen}; there {became[0]} became {became[1]}",
        highlight=False,
    )
    return threshold


def _errors(task: Any, runtimes: list) -> list[float]:
    """Of deployed networks on the test part."""
    from glstm.training.evaluate import predict_deployed, sums_of

    errors = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("testing", total=len(runtimes) * task.batch_count("test", BATCH))
        for runtime in runtimes:
            _, error = sums_of(predict_deployed(runtime), task, BATCH, on_batch=lambda: progress.advance(bar))
            errors.append(float(error) / task.test_size)
    return errors


def _price(model: Any, task: Any, schedule: Any, threshold: float):
    from glstm.training.evaluate import cost, mean_cost, threshold_at

    with threshold_at(model.layer, threshold):
        return cost(model.layer, schedule) if task is None else mean_cost(model.layer, task)


def _said(given: ScheduleOptions) -> list[str]:
    """The options as they were given, for another command."""
    words: list[str] = []
    for name, value in vars(given).items():
        option = f"--{name.replace('_', '-')}"
        match value:
            case None:
                continue
            case bool():
                words.append(option if value else "--as-they-are")
            case list():
                words += [word for one in value for word in (option, one)]
            case _:
                words += [option, str(value)]
    return words


def _error(model, task, batches: list, threshold: float) -> float:
    import torch

    from glstm.training.evaluate import evaluating, predict_with, threshold_at

    with torch.no_grad(), evaluating(model), threshold_at(model.layer, threshold):
        predict = predict_with(model)
        wrong = sum(float(task.errors(predict(batch), batch.y).sum()) for batch in batches)
    return wrong / _size(batches)


def _size(batches: list) -> int:
    return sum(batch.size for batch in batches)


def _millions(operations: float) -> str:
    return f"{operations / 1e6:.3f} M"
