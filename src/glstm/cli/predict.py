"""`glstm predict`: a trained network's answers for the sequences of a file, written to a file."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from glstm.cli.options import DeviceOption, RunFolderArgument
from glstm.errors import DataError, UserError


def predict(
    run: RunFolderArgument,
    file: Annotated[Path, typer.Argument(help="Sequences like those it was trained on.", show_default=False)],
    out: Annotated[
        Path, typer.Option(help="The file to write: .csv, or .npz with the arrays 'outputs' and 'lengths'.")
    ] = Path("predictions.csv"),
    batch: Annotated[int, typer.Option(min=1, help="Sequences in a batch.")] = 500,
    device: DeviceOption = None,
) -> None:
    """Answer for every sequence of a file: its class and the probability of each, or its values.

    The file may be without targets; columns and times are read as they were for training. A network with a target for
    each step answers for each step.
    """
    from glstm.predictions import answers, write_csv, write_npz
    from glstm.training.fabric import available_device
    from glstm.training.run import RunFolder

    writers = {".csv": write_csv, ".npz": write_npz}
    if out.suffix.lower() not in writers:
        raise UserError(f"--out ends in {' or '.join(writers)}, and {out} does not")
    if out.exists() and out.resolve() == file.resolve():
        raise UserError(f"--out would overwrite the sequences in {file}")
    folder = RunFolder(run)
    how = folder.reading()
    where = available_device(device or "auto")
    model = folder.load_model().to(where)
    sequences = _read(file, how)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("predicting", total=len(sequences))
        found = answers(model, sequences, batch=batch, on_batch=lambda count: progress.advance(bar, count))
    writers[out.suffix.lower()](out, found)
    Console().print(f"{out}: {len(sequences):,} sequences", highlight=False, soft_wrap=True, markup=False)


def _read(file: Path, how: dict[str, Any]):
    """The file's sequences, read as those for training were."""
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
    if len(parts) > 1:
        raise UserError(f"{file} holds the parts {', '.join(parts)}: predict takes a file with one")
    return as_trained(next(iter(parts.values())), how, str(file))
