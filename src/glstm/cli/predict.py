"""`glstm predict`: a trained network's answers for the sequences of a file, written to a file."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from glstm.cli.folders import ReadingOptions, as_tuple, at_their_times, is_run, parse_times
from glstm.cli.options import DeviceOption, ModelFolderArgument, grouped
from glstm.errors import DataError, UserError

if TYPE_CHECKING:
    from glstm.data import Sequences


@grouped
def predict(
    run: ModelFolderArgument,
    file: Annotated[Path, typer.Argument(help="Sequences like those it was trained on.", show_default=False)],
    out: Annotated[
        Path, typer.Option(help="The file to write: .csv, or .npz with the arrays 'outputs' and 'lengths'.")
    ] = Path("predictions.csv"),
    batch: Annotated[int, typer.Option(min=1, help="Sequences in a batch.")] = 500,
    device: DeviceOption = None,
    *,
    given: ReadingOptions,
) -> None:
    """Answer for every sequence of a file: its class and the probability of each, or its values.

    The file may be without targets. For a run, columns and times are read as they were for training; for a folder that
    save_pretrained wrote, say of a table what its columns are. A network with a target for each step answers for each
    step.
    """
    from glstm.predictions import answers, write_csv, write_npz
    from glstm.training.fabric import available_device

    writers = {".csv": write_csv, ".npz": write_npz}
    if out.suffix.lower() not in writers:
        raise UserError(f"--out ends in {' or '.join(writers)}, and {out} does not")
    if out.exists() and out.resolve() == file.resolve():
        raise UserError(f"--out would overwrite the sequences in {file}")
    where = available_device(device or "auto")
    model, sequences = (_of_a_run if is_run(run) else _of_a_model)(run, file, given)
    model = model.to(where)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("predicting", total=len(sequences))
        found = answers(model, sequences, batch=batch, on_batch=lambda count: progress.advance(bar, count))
    writers[out.suffix.lower()](out, found)
    Console().print(f"{out}: {len(sequences):,} sequences", highlight=False, soft_wrap=True, markup=False)


def _of_a_run(run: Path, file: Path, given: ReadingOptions) -> "tuple[Any, Sequences]":
    """The network, and the file's sequences, read as those for training were."""
    from glstm.training.run import RunFolder

    folder = RunFolder(run)
    how = folder.reading()
    for name, value in asdict(given).items():
        if value is not None:
            raise UserError(f"{run} is a run and knows how its files are read: leave out --{name.replace('_', '-')}")
    return folder.load_model(), _read(file, how)


def _of_a_model(path: Path, file: Path, given: ReadingOptions) -> "tuple[Any, Sequences]":
    """The network of a model folder, and the file's sequences, read as the user says."""
    from glstm.data import read
    from glstm.pretrained import from_pretrained

    model = from_pretrained(path)
    found = _the_only_part(file, read(file, id=given.id, time=given.time, inputs=as_tuple(given.input)))
    found = replace(found, y=None, classes=None)  # answers are for all, whatever is known
    found = at_their_times(file, found, model, None if given.times is None else parse_times(given.times))
    return model, found.from_start() if given.from_start else found


def _read(file: Path, how: dict[str, Any]) -> "Sequences":
    from glstm.data import read
    from glstm.data.reading import TABLES, options_for
    from glstm.predictions import as_trained

    try:
        parts = read(file, **options_for(file, **how["columns"]))
    except DataError as error:
        if how["columns"] or file.suffix.lower() not in TABLES:
            raise
        raise UserError(
            f"{file} is no table of one sequence's numbers alone, and the run was trained without names of columns, by "
            "which rows could be told apart: give the sequences as .npz"
        ) from error
    return as_trained(_the_only_part(file, parts), how, str(file))


def _the_only_part(file: Path, parts: "dict[str, Sequences]") -> "Sequences":
    if len(parts) > 1:
        raise UserError(f"{file} holds the parts {', '.join(parts)}: predict takes a file with one")
    return next(iter(parts.values()))
