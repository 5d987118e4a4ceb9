"""`glstm export`: a trained network as C, or as ONNX."""

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from glstm.cli.options import DataOption, RunFolderArgument, ThresholdOption, checked_threshold, require_folder
from glstm.cli.train import load_recipe
from glstm.errors import UserError

app = typer.Typer(no_args_is_help=True, help="A trained network as plain C for a microcontroller, or as ONNX.")

CALIBRATION = 500  # training sequences that int8 scales are chosen on
SELF_TEST = 3  # sequences in the self-test


@app.command("c")
def export_to_c(
    run: RunFolderArgument,
    out: Annotated[Path, typer.Option(help="Folder for the two files.")] = Path("."),
    name: Annotated[str, typer.Option(help="Of the files, and before every name in them.")] = "network",
    threshold: ThresholdOption = None,
    int8: Annotated[bool, typer.Option("--int8", help="Weights in 8 bits, with a scale for each row.")] = False,
    data: DataOption = None,
) -> None:
    """One .h and one .c: portable C99, no library, no allocation, state in the caller's struct.

    With -DNAME_MAIN the .c is a program that reads samples from standard input, with -DNAME_TEST one that compares
    itself with PyTorch on sequences from the test set.
    """
    from glstm.runtime import deploy
    from glstm.runtime.export_c import export_c, vectors_from
    from glstm.runtime.plan import constant_bytes
    from glstm.runtime.quantize import constant_bytes_int8, dequantized, quantize
    from glstm.training.evaluate import predict_deployed, sums_of

    model, task, threshold = load_with_task(run, threshold, data)
    times = task.schedule()
    runtime, quantized, console = deploy(model, times, threshold), None, Console()
    plan = runtime.plan
    if int8:
        quantized = quantize(plan, calibration(task))
        model = dequantized(model, plan, quantized)
        both = runtime, deploy(model, times, threshold)
        sums = [float(sums_of(predict_deployed(one), task)[1]) for one in both]
        errors = [task.format_error(one / task.test_size) for one in sums]
        text = f"{task.metric} on the test set: {errors[0]} with float32 weights, {errors[1]} with int8"
        console.print(text, highlight=False)
    x = whole_length(task.test_samples(slice(0, SELF_TEST))[0], task.steps)
    files = export_c(plan, out, name, vectors_from(model, threshold, x, plan.times), quantized)
    size = constant_bytes_int8(plan, quantized) if quantized else constant_bytes(plan)
    console.print(f"{size:,} bytes of constant data, {plan.state_bytes:,} bytes of state", highlight=False)
    for file in files:
        console.print(str(file), highlight=False, soft_wrap=True, markup=False)


@app.command()
def onnx(
    run: RunFolderArgument,
    out: Annotated[Path, typer.Option(help="Folder for the two files.")] = Path("."),
    name: Annotated[str, typer.Option(help="Of the files: NAME.onnx and NAME-step.onnx.")] = "network",
    threshold: ThresholdOption = None,
) -> None:
    """NAME.onnx for whole sequences of any length and batch, NAME-step.onnx for one step with its state.

    Both are compared with PyTorch in ONNX Runtime before they are written.
    """
    from glstm.runtime.check_onnx import differences
    from glstm.runtime.export_onnx import export_step, export_whole
    from glstm.storage import make_folder, write_together

    if not re.fullmatch(r"\w[\w.-]*", name):
        raise UserError(f"a file's name is made of letters, digits, _, . and -, such as digits, not {name!r}")
    make_folder(out)
    folder, model, threshold = _load(run, threshold)
    model = model.float()
    model.layer.threshold = threshold
    times = folder.shared_times()
    whole, step = export_whole(model, times), export_step(model)
    console = Console()
    for what, difference in differences(model, whole, step, folder.steps(), times).items():
        console.print(f"{what}: within {difference:.1e} of PyTorch", highlight=False)
    files = {f"{name}.onnx": whole.SerializeToString(), f"{name}-step.onnx": step.SerializeToString()}
    write_together(out, files)
    for file in files:
        console.print(str(out / file), highlight=False, soft_wrap=True, markup=False)


def require_test(task) -> None:
    if not task.test_size:
        raise UserError(f"{task.name} has no test part, on which this is measured: train with --test")


def load_with_task(run: Path, threshold: float | None, data: Path | None):
    """The run's model in float32, its task and the threshold to use."""
    from glstm.recipes import make_task

    require_folder(data)
    folder, model, threshold = _load(run, threshold)
    task = make_task(load_recipe(folder), data or folder.data(), again=True)
    folder.check_artifacts(task)
    require_test(task)
    return model.float(), task, threshold


def calibration(task, count: int = CALIBRATION):
    """Training sequences (T, B, D) that int8 scales are chosen on."""
    import torch

    from glstm.data import Batch

    batch = Batch(*task.cut(task.stage(0, 0), slice(0, min(count, task.train_size))))
    if batch.lengths is None:
        return batch.x
    # Not with zeros after a sequence's end, which no sensor ever says: its last sample again.
    ends = (batch.lengths - 1).view(1, -1, 1)
    steps = torch.arange(task.steps).view(-1, 1, 1)
    places = torch.minimum(steps, ends).expand(-1, -1, batch.x.shape[2])
    return batch.x.gather(0, places)


def whole_length(x, steps: int):
    """Sequences (T, B, D) padded with zeros to so many steps."""
    from torch.nn.functional import pad

    return pad(x, (0, 0, 0, 0, 0, steps - len(x)))


def _load(run: Path, threshold: float | None):
    """The run's folder, its model and the threshold to use."""
    from glstm.training.run import RunFolder

    folder = RunFolder(run)
    model = deployable(run, folder.load_model())
    return folder, model, chosen_threshold(model.layer.threshold, threshold)


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
