"""`glstm export`: a trained network as C, as WebAssembly, or as ONNX."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from glstm.cli.folders import ScheduleOptions, Subject, load, require_test
from glstm.cli.options import DataOption, ModelFolderArgument, ThresholdOption, checked_threshold, grouped, option
from glstm.cli.streams import (
    STREAMS,
    StreamOptions,
    calibrated_times,
    made_up_times,
    parse_windows,
    require_times,
    tested_sequences,
)
from glstm.errors import UserError

app = typer.Typer(
    no_args_is_help=True,
    help="A trained network as plain C for a microcontroller, as WebAssembly for a browser, or as ONNX.",
)

CALIBRATION = 500  # training sequences that int8 scales are chosen on
MOST_CALIBRATED = 400_000  # steps of random ones, of all together
SELF_TEST = 3  # sequences in the self-test
UNKNOWN_STEPS = 50  # in the check of a graph whose network says nothing about its sequences


@app.command("c")
@grouped
def export_to_c(
    run: ModelFolderArgument,
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("."),
    name: Annotated[str, typer.Option(help="Of the files, and before every name in them.")] = "network",
    threshold: ThresholdOption = None,
    int8: Annotated[bool, typer.Option("--int8", help="Weights in 8 bits, with a scale for each row.")] = False,
    int8_states: Annotated[
        bool,
        typer.Option(
            "--int8-states", help="Also states in 8 bits, and sums in whole numbers: only the head has floats."
        ),
    ] = False,
    layout: Annotated[
        str,
        typer.Option(
            help="plain: the two files; arduino: a folder NAME that is an Arduino library with an example; zephyr: one "
            "that is a module for Zephyr and for CMake."
        ),
    ] = "plain",
    data: DataOption = None,
    windows: Annotated[
        str | None,
        option(
            "LENGTH,HOP: also functions for a stream without an end, in which windows of LENGTH samples begin every "
            "HOP samples.",
            STREAMS,
        ),
    ] = None,
    *,
    stream: StreamOptions,
    given: ScheduleOptions,
) -> None:
    """One .h and one .c: portable C99, no library, no allocation, state in the caller's struct.

    With -DNAME_MAIN the .c is a program that reads samples from standard input, with -DNAME_TEST one that compares
    itself with PyTorch on sequences from the test set. Of a folder that save_pretrained wrote, say how long a sequence
    is by --steps or --times, and give --test for sequences; without, those of the self-test are random. Where nobody
    knows how long a sequence is, say --stream; where nobody knows when samples come, --tick.
    """
    from glstm.runtime.c_layouts import check_layout
    from glstm.runtime.c_names import check_name
    from glstm.runtime.export_c import export_c, vectors_from, whole_vectors
    from glstm.runtime.plan import constant_bytes
    from glstm.runtime.quantize import constant_bytes_int8, dequantized

    check_name(name)
    check_layout(layout)
    stream.check(given, int8_states=int8_states)
    length_and_hop = parse_windows(windows)
    subject, model, threshold = _load(run, threshold, given, data)
    console = Console()
    runtime = _deployed_as_asked(subject, model, threshold, stream)
    plan, quantized, states = runtime.plan, None, None
    if int8_states:
        states = _in_whole_numbers(subject, runtime, console)
    elif int8:
        quantized = _quantized(subject, model, runtime, threshold, stream, console)
        model = dequantized(model, plan, quantized)
    x, times = _self_test(subject, plan, stream, console)
    vectors = whole_vectors(states, x) if states else vectors_from(model, threshold, x, times)
    try:
        files = export_c(
            plan, out, name, vectors, states or quantized, times=stream.times(), windows=length_and_hop, layout=layout
        )
    except ValueError as error:
        raise UserError(str(error)) from None
    sizes = constant_bytes_int8(plan, quantized) if quantized else constant_bytes(plan), plan.state_bytes
    constant, state = (states.constant_bytes, states.state_bytes) if states else sizes
    console.print(f"{constant:,} bytes of constant data, {state:,} bytes of state", highlight=False)
    if length_and_hop is not None:
        length, hop = length_and_hop
        count = -(-length // hop)
        text = (
            f"windows: {count} at once, {count * state:,} bytes of state, {plan.ops_of(length) / hop:,.0f} operations"
        )
        console.print(f"{text} a sample", highlight=False)
    for file in files:
        console.print(str(file), highlight=False, soft_wrap=True, markup=False)


def _deployed_as_asked(subject: Subject, model: Any, threshold: float, stream: StreamOptions):
    """For known steps, or for a stream."""
    if not stream.without_steps:
        return deployed(model, subject.schedule(), threshold)
    runtime = deployed(model, None, threshold)
    require_times(subject, runtime.plan, stream)
    return runtime


def _self_test(subject: Subject, plan: Any, stream: StreamOptions, console: Console) -> tuple[Any, Any]:
    """Sequences x (T, N, inputs) and their times (T,)."""
    task = subject.task
    if task is None:
        text = "the self-test's inputs are random, of the network's range: --test FILE takes real ones"
        console.print(text, highlight=False, soft_wrap=True)
        times = made_up_times(plan, stream, subject.times) if stream.without_steps else plan.times
        return random_samples(plan, SELF_TEST, len(times)), times
    if stream.without_steps:
        return tested_sequences(task, SELF_TEST, stream)
    return whole_length(task.test_samples(slice(0, SELF_TEST))[0], plan.steps), plan.times


def _quantized(subject: Subject, model: Any, runtime: Any, threshold: float, stream: StreamOptions, console: Console):
    """The network's weights in 8 bits; says what that costs."""
    from glstm.runtime.quantize import dequantized, quantize
    from glstm.training.evaluate import predict_deployed, predict_with

    task, plan = subject.task, runtime.plan
    x, known = _calibrating(subject, plan, stream, console)
    quantized = quantize(known, x)
    if task is None:
        return quantized
    eight = dequantized(model, plan, quantized)
    if stream.without_steps:  # sequences may have their own times, which the layer takes
        model.layer.threshold = eight.layer.threshold = threshold
        answers = [predict_with(one) for one in (model, eight)]
    else:
        answers = [predict_deployed(one) for one in (runtime, deployed(eight, subject.schedule(), threshold))]
    _say_errors(task, answers, ["float32 weights", "int8"], console)
    return quantized


def _in_whole_numbers(subject: Subject, runtime: Any, console: Console):
    """The network with states in 8 bits; says what that costs."""
    from glstm.runtime.int8_states import int8_states
    from glstm.training.evaluate import predict_deployed

    x, plan = _calibrating(subject, runtime.plan, StreamOptions(), console)
    states = int8_states(plan, x)
    if subject.task is not None:
        answers = [predict_deployed(one) for one in (runtime, states)]
        _say_errors(subject.task, answers, ["float32", "int8 weights and states"], console)
    return states


def _calibrating(subject: Subject, plan: Any, stream: StreamOptions, console: Console) -> tuple[Any, Any]:
    """Sequences that scales are chosen on, and the plan for their steps."""
    task, known = subject.task, plan
    if task is None:
        text = "int8 scales are chosen for random inputs, and their error is not known: --test FILE takes real ones"
        console.print(text, highlight=False, soft_wrap=True)
    if stream.without_steps:
        times = made_up_times(plan, stream, subject.times) if task is None else calibrated_times(task, CALIBRATION)
        known = plan.at(times)
    if task is not None:
        return calibration(task, steps=known.steps), known
    count = max(1, min(CALIBRATION, MOST_CALIBRATED // known.steps))
    return random_samples(plan, count, known.steps), known


def _say_errors(task: Any, answers: list, names: list[str], console: Console) -> None:
    from glstm.training.evaluate import sums_of

    sums = [float(sums_of(one, task)[1]) for one in answers]
    errors = [f"{task.format_error(one / task.test_size)} with {name}" for one, name in zip(sums, names, strict=True)]
    console.print(f"{task.metric} on the test set: {', '.join(errors)}", highlight=False)


@app.command()
@grouped
def wasm(
    run: ModelFolderArgument,
    out: Annotated[Path, typer.Option(help="Folder for the two files.")] = Path("."),
    name: Annotated[str, typer.Option(help="Of the files: NAME.wasm and NAME.js.")] = "network",
    threshold: ThresholdOption = None,
    int8: Annotated[bool, typer.Option("--int8", help="Weights in 8 bits, with a scale for each row.")] = False,
    data: DataOption = None,
    *,
    stream: StreamOptions,
    given: ScheduleOptions,
) -> None:
    """NAME.wasm, the exported C as WebAssembly that imports nothing, and NAME.js, a module that loads it.

    Needs clang and wasm-ld, or the extra wasm. Where nobody knows how long a sequence is, say --stream; where nobody
    knows when samples come, --tick.
    """
    from glstm.runtime.c_names import check_name
    from glstm.runtime.export_wasm import export_wasm, wasm_compiler

    check_name(name)
    wasm_compiler()
    stream.check(given)
    subject, model, threshold = _load(run, threshold, given, data, with_task=int8, scheduled=not stream.without_steps)
    runtime, console = _deployed_as_asked(subject, model, threshold, stream), Console()
    quantized = _quantized(subject, model, runtime, threshold, stream, console) if int8 else None
    for file in export_wasm(runtime.plan, out, name, quantized, times=stream.times()):
        console.print(str(file), highlight=False, soft_wrap=True, markup=False)


@app.command()
@grouped
def onnx(
    run: ModelFolderArgument,
    out: Annotated[Path, typer.Option(help="Folder for the two files.")] = Path("."),
    name: Annotated[str, typer.Option(help="Of the files: NAME.onnx and NAME-step.onnx.")] = "network",
    threshold: ThresholdOption = None,
    data: DataOption = None,
    times_as_input: Annotated[
        bool,
        option(
            "The graph gets the times of the steps when it runs, beside x, for sequences of any times.",
            STREAMS,
            "--times-as-input",
        ),
    ] = False,
    *,
    given: ScheduleOptions,
) -> None:
    """NAME.onnx for whole sequences of any length and batch, NAME-step.onnx for one step with its state.

    Both are compared with PyTorch in ONNX Runtime before they are written. A bidirectional network has no single step.
    Times that are not 1, 2, ... are part of the graph of whole sequences, or with --times-as-input an input of it; a
    folder that save_pretrained wrote needs them by --times.
    """
    from glstm.runtime.check_onnx import LENGTHS, differences
    from glstm.runtime.export_onnx import export_step, export_whole
    from glstm.storage import make_folder, write_together

    if not re.fullmatch(r"\w[\w.-]*", name):
        raise UserError(f"a file's name is made of letters, digits, _, . and -, such as digits, not {name!r}")
    if times_as_input and (given.times is not None or given.steps is not None):
        asked = "--steps" if given.times is None else "--times"
        raise UserError(f"with --times-as-input the times are given when the graph runs: leave out {asked}")
    make_folder(out)
    subject, model, threshold = _load(run, threshold, given, data, with_task=False, scheduled=not times_as_input)
    model.layer.threshold = threshold
    steps, times = (UNKNOWN_STEPS, None) if times_as_input else _steps_and_times(subject)
    try:
        whole = export_whole(model, times, times_as_input=times_as_input)
        step = None if model.layer.bidirectional else export_step(model, wide_times=times_as_input)
    except ValueError as error:
        raise UserError(str(error)) from None
    console = Console()
    checked = steps if given == ScheduleOptions() else min(steps, max(LENGTHS))
    for what, difference in differences(model, whole, step, checked, times).items():
        console.print(f"{what}: within {difference:.1e} of PyTorch", highlight=False)
    files = {f"{name}.onnx": whole.SerializeToString()}
    if step is not None:
        files[f"{name}-step.onnx"] = step.SerializeToString()
    write_together(out, files)
    for file in files:
        console.print(str(out / file), highlight=False, soft_wrap=True, markup=False)


def _steps_and_times(subject: Subject) -> tuple[int, Any]:
    """How many steps a check takes, and the times that become part of the graph; None: steps are counted there."""
    layer, seen = subject.model.layer, subject.model.layer.seen
    nothing_said = subject.task is None and subject.known is None and subject.given == ScheduleOptions()
    if nothing_said and (seen is None or not layer.gate.names):  # no gate knows anything about times
        return UNKNOWN_STEPS, None
    if nothing_said and not seen.counted:
        raise UserError(
            f"{subject.path} was trained at times from {seen.in_words}: give the times of the steps by --times, or "
            "say --times-as-input"
        )
    schedule = subject.schedule()
    return (schedule, None) if isinstance(schedule, int) else (len(schedule), schedule)


def deployed(model: Any, schedule: Any, threshold: float):
    """`glstm.deploy`; what it says of a network or times that do not fit is for the user."""
    from glstm.runtime import deploy

    try:
        return deploy(model, schedule, threshold)
    except ValueError as error:
        raise UserError(str(error)) from None


def random_samples(plan: Any, count: int, steps: int | None = None):
    """Sequences (T, N, inputs) such as a network reads whose inputs are standardised, always the same ones."""
    import torch

    x = torch.randn(
        plan.steps if steps is None else steps, count, plan.inputs, generator=torch.Generator().manual_seed(0)
    )
    if plan.standard is None:
        return x
    x = x * torch.from_numpy(plan.standard.scale) + torch.from_numpy(plan.standard.mean)
    if plan.missing != "refuse":
        x[torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.2] = torch.nan
    return x


def load_with_task(run: Path, threshold: float | None, data: Path | None):
    """The run's model in float32, its task and the threshold to use."""
    subject, model, threshold = _load(run, threshold, ScheduleOptions(), data)
    return model, require_test(subject), threshold


def calibration(task, count: int = CALIBRATION, steps: int | None = None):
    """Training sequences (T, B, D) that int8 scales are chosen on, of so many steps; None: of the task's."""
    import torch

    from glstm.data import Batch

    batch = Batch(*task.cut(task.stage(0, 0), slice(0, min(count, task.train_size))))
    steps = task.steps if steps is None else steps
    if batch.lengths is None and len(batch.x) == steps:
        return batch.x
    # Not with zeros after a sequence's end, which no sensor ever says: its last sample again.
    lengths = torch.full((batch.size,), len(batch.x)) if batch.lengths is None else batch.lengths
    places = torch.minimum(torch.arange(steps).view(-1, 1, 1), (lengths - 1).view(1, -1, 1))
    return batch.x.gather(0, places.expand(-1, -1, batch.x.shape[2]))


def whole_length(x, steps: int):
    """Sequences (T, B, D) padded with zeros to so many steps."""
    from torch.nn.functional import pad

    return pad(x, (0, 0, 0, 0, 0, steps - len(x)))


def _load(
    run: Path,
    threshold: float | None,
    given: ScheduleOptions,
    data: Path | None,
    *,
    with_task: bool = True,
    scheduled: bool = True,
):
    """What the folder and the options say, the model in float32 and the threshold to use."""
    subject = load(run, given, data, with_task=with_task, scheduled=scheduled)
    model = deployable(run, subject.model).float()
    if subject.task is not None:
        require_test(subject)
    return subject, model, chosen_threshold(model.layer.threshold, threshold)


def deployable(run: Path, model):
    """Checks that it is a layer with gates and a head: only these can be deployed and exported."""
    from glstm.gated import GatedLSTM
    from glstm.models import SequenceModel

    if not isinstance(model, SequenceModel) or not isinstance(model.layer, GatedLSTM):
        what = type(getattr(model, "layer", model)).__name__
        raise UserError(f"{run} holds a {what}, and only networks of gated layers, LSTMs included, can be deployed")
    return model


def chosen_threshold(of_training: float, asked: float | None) -> float:
    """The one asked for; else that of training, or, where that closed nothing, the paper's."""
    return checked_threshold((of_training or 0.01) if asked is None else asked)
