"""Options of several verbs, in groups: a group is a dataclass whose fields are options, and a verb takes it as one."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from glstm.cells import CELLS
from glstm.errors import UserError
from glstm.gates import GATES, check_threshold
from glstm.models import HEADS

NETWORK, GATE, OPTIMISER, DATA, MACHINE = "Network", "Gate", "Optimiser", "Data and length", "Machine and folders"
FILES = "Your own files"


def option(help: str, panel: str | None = None, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **more)


def grouped(verb: Callable) -> Callable:
    """The verb as typer needs it: every field of every group is an option of its own."""
    hints = get_type_hints(verb, include_extras=True)
    signature = inspect.signature(verb)
    groups = {name: hints[name] for name in signature.parameters if is_dataclass(hints[name])}
    flat: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name not in groups:
            flat.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name]))
            continue
        of_fields = get_type_hints(groups[name], include_extras=True)
        flat += [
            inspect.Parameter(one.name, parameter.KEYWORD_ONLY, default=one.default, annotation=of_fields[one.name])
            for one in fields(groups[name])
        ]

    @wraps(verb)
    def run(**given: Any) -> Any:
        made = {name: kind(**{one.name: given.pop(one.name) for one in fields(kind)}) for name, kind in groups.items()}
        return verb(**given, **made)

    run.__signature__ = inspect.Signature(flat)  # pyright: ignore[reportAttributeAccessIssue]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return run


# Options of all verbs that deploy or export a trained network.
RunFolderArgument = Annotated[Path, typer.Argument(help="A run folder, as 'glstm train' makes it.", show_default=False)]
ModelFolderArgument = Annotated[
    Path, typer.Argument(help="A run folder of 'glstm train', or any that save_pretrained wrote.", show_default=False)
]
ThresholdOption = Annotated[
    float | None,
    typer.Option("--threshold", "-t", help="Close units at k <= this; the run's own, or 0.01.", show_default=False),
]
DataOption = Annotated[
    Path | None, option("Folder of data files; without it, the variable GLSTM_DATA or your cache folder.", MACHINE)
]
DeviceOption = Annotated[
    Literal["auto", "cpu", "cuda", "mps"] | None, option("Where to run; auto takes CUDA where there is one.", MACHINE)
]


@dataclass(frozen=True)
class NetworkOptions:
    cell: Annotated[str | None, option(f"{', '.join(CELLS)}, or your own as package.module:Cell.", NETWORK)] = None
    units: Annotated[int | None, option("Hidden units in a layer.", NETWORK)] = None
    layers: Annotated[int | None, option("Recurrent layers.", NETWORK)] = None
    head: Annotated[
        str | None,
        option(
            f"What reads the last state: {', '.join(HEADS)} (256-256 with Drop-Connect), or package.module:head.",
            NETWORK,
        ),
    ] = None
    reads: Annotated[
        Literal["last", "every", "mean", "max"] | None,
        option("What the head reads: the last state, every step's, or the mean or maximum of all.", NETWORK),
    ] = None
    candidate: Annotated[
        Literal["tanh", "sigmoid"] | None,
        option("The cell's candidate; the paper prints sigmoid, everybody uses tanh.", NETWORK),
    ] = None
    cell_option: Annotated[
        list[str] | None, option("NAME=VALUE: what else the cell is made with. Repeat it for more.", NETWORK)
    ] = None
    init: Annotated[
        Literal["orthogonal", "xavier", "own"] | None,
        option("How the recurrent weights start; own: as the cell does by itself.", NETWORK),
    ] = None
    forget_bias: Annotated[float | None, option("Where the forget gate's bias starts.", NETWORK)] = None
    chrono: Annotated[
        float | None, option("Chrono initialisation of the biases, with this T_max, instead of --forget-bias.", NETWORK)
    ] = None
    segment: Annotated[
        int | None,
        option("Keep the state only every so many steps and compute the rest again: for very long sequences.", NETWORK),
    ] = None


@dataclass(frozen=True)
class GateOptions:
    gate: Annotated[
        str | None,
        option(f"Of the cell gated: {', '.join(GATES)}, or your own as package.module:Gate.", GATE),
    ] = None
    mu: Annotated[
        str | None, option("When units open, in steps or the unit of the times: one number, or LOW,HIGH.", GATE)
    ] = None
    sigma: Annotated[str | None, option("For how long, in the same unit: one number, or LOW,HIGH.", GATE)] = None
    gate_value: Annotated[
        list[str] | None,
        option("NAME=NUMBER or NAME=LOW,HIGH: any value of any gate, such as tau=1000. Repeat it for more.", GATE),
    ] = None
    threshold: Annotated[
        float | None, option("v_T while training: units with k at or below it are closed and copied.", GATE)
    ] = None
    gate_lr: Annotated[float | None, option("Learning rate of the gate's values; 0 freezes them.", GATE)] = None
    budget: Annotated[
        float | None, option("lambda: charge this much times the mean openness, or the share of updates.", GATE)
    ] = None
    budget_epochs: Annotated[int | None, option("First epochs over which lambda rises to its value.", GATE)] = None
    curriculum: Annotated[
        bool | None,
        option("Widen narrow gates epoch by epoch until an LSTM is left.", GATE, "--curriculum/--no-curriculum"),
    ] = None
    alpha: Annotated[float | None, option("Curriculum: how much a sigma grows at a time, as a share.", GATE)] = None
    rho: Annotated[
        float | None, option("Curriculum: the share of units, the narrowest, that grow each epoch.", GATE)
    ] = None
    open_epochs: Annotated[int | None, option("Curriculum: last epochs with every gate wide open.", GATE)] = None
    open_sigma: Annotated[float | None, option("Curriculum: sigma in those epochs.", GATE)] = None


@dataclass(frozen=True)
class OptimiserOptions:
    optimizer: Annotated[Literal["adam", "rmsprop", "sgd"] | None, option("Which optimiser.", OPTIMISER)] = None
    lr: Annotated[float | None, option("Learning rate of the weights.", OPTIMISER)] = None
    decay: Annotated[float | None, option("RMSProp's decay.", OPTIMISER)] = None
    schedule: Annotated[
        Literal["constant", "linear", "cosine"] | None,
        option("How both learning rates fall to 0 over the epochs.", OPTIMISER),
    ] = None
    sparsity: Annotated[
        float | None,
        option("Prune: set this share of an LSTM's weights to 0, the smallest, epoch by epoch.", OPTIMISER),
    ] = None
    prune_from: Annotated[float | None, option("Prune: after which share of the epochs that begins.", OPTIMISER)] = None
    prune_until: Annotated[float | None, option("Prune: after which share of the epochs it ends.", OPTIMISER)] = None
    weight_drop: Annotated[
        float | None,
        option("Leave out this share of the recurrent weights, drawn anew for each update.", OPTIMISER),
    ] = None
    clip: Annotated[
        float | None, option("Clip the norm of the weights' gradient to this; 0 turns it off.", OPTIMISER)
    ] = None
    on_nan: Annotated[
        Literal["stop", "skip"] | None,
        option("When a loss or a value becomes nan or infinite: stop, or skip that update and go on.", OPTIMISER),
    ] = None


@dataclass(frozen=True)
class DataOptions:
    epochs: Annotated[int | None, option("How often to go through the training set.", DATA)] = None
    patience: Annotated[
        int | None, option("Stop so many epochs after the best by validation; 0: after the last epoch.", DATA)
    ] = None
    batch: Annotated[int | None, option("Sequences in a batch, over all devices.", DATA)] = None
    steps: Annotated[
        int | None, option("adding: length of a sequence; the preset's mu and sigma stretch along.", DATA)
    ] = None
    train_size: Annotated[int | None, option("Use only this many training sequences.", DATA)] = None
    test_size: Annotated[int | None, option("Use only this many test sequences.", DATA)] = None
    shift: Annotated[int | None, option("Images: move each by up to so many pixels, anew in every epoch.", DATA)] = None
    task_option: Annotated[
        list[str] | None, option("NAME=VALUE: what else the task is made with. Repeat it for more.", DATA)
    ] = None
    seed: Annotated[int | None, option("Seed of the weights, the gates and the order of the data.", DATA)] = None
    seeds: Annotated[
        int | None, option("Train so many networks together, with seeds counted up from --seed.", DATA)
    ] = None


@dataclass(frozen=True)
class FileOptions:
    """Of tasks made from files."""

    test: Annotated[
        str | None, option("The file with the test part; or the share of all sequences to test on, 0.2.", FILES)
    ] = None
    validation: Annotated[
        str | None, option("The file with the validation part; or the share of the first file's sequences, 0.2.", FILES)
    ] = None
    id: Annotated[str | None, option("Tables: the column that says which sequence a row is part of.", FILES)] = None
    time: Annotated[str | None, option("Tables: the column with the time of a row.", FILES)] = None
    target: Annotated[list[str] | None, option("Tables: the column to learn. Repeat it for several values.", FILES)] = (
        None
    )
    input: Annotated[
        list[str] | None, option("Tables: a column to learn from. Repeat it; without it, all others.", FILES)
    ] = None
    values: Annotated[
        bool | None,
        option("The targets are numbers to predict, not classes, though they are whole.", FILES, "--values"),
    ] = None
    missing: Annotated[
        Literal["refuse", "carry", "mask"] | None,
        option("What a missing input means: an error, the last value again, or that with a mask channel.", FILES),
    ] = None
    window: Annotated[
        int | None,
        option(
            "Cut long sequences into windows of so many steps; with targets of steps, parts are in time order.", FILES
        ),
    ] = None
    from_start: Annotated[
        bool | None,
        option("Times count from each sequence's first step, or are as they are.", FILES, "--from-start/--as-they-are"),
    ] = None
    standardize: Annotated[
        bool | None, option("Whether the network standardises its inputs.", FILES, "--standardize/--no-standardize")
    ] = None
    split_seed: Annotated[int | None, option("Seed of the split into parts; without it, 0.", FILES)] = None


@dataclass(frozen=True)
class MachineOptions:
    data: DataOption = None
    device: DeviceOption = None
    devices: Annotated[int | None, option("How many devices on each machine; without it, 1.", MACHINE)] = None
    nodes: Annotated[int | None, option("How many machines; without it, 1.", MACHINE)] = None
    precision: Annotated[
        Literal["32-true", "64-true", "bf16-mixed"] | None, option("Arithmetic; without it, 32-true.", MACHINE)
    ] = None
    tensorboard: Annotated[
        bool | None, option("Also write the curves for TensorBoard, into RUN/tensorboard.", MACHINE, "--tensorboard")
    ] = None
    matmul: Annotated[
        Literal["high", "highest"] | None,
        option("CUDA: how exactly float32 matrices are multiplied; without it, high, as cuDNN's LSTM does.", MACHINE),
    ] = None
    engine: Annotated[
        Literal["local", "ray"] | None,
        option(
            "Who trains: without it local, this process and those it starts; or ray, the workers of a Ray cluster, "
            "which all see these folders. RAY_ADDRESS says which cluster.",
            MACHINE,
        ),
    ] = None


def require_folder(path: Path | None, what: str = "--data is a folder of data files") -> None:
    if path is not None and not path.is_dir():
        raise UserError(f"{what}, but {path} is {'a file' if path.exists() else 'not there'}")


def checked_threshold(value: float) -> float:
    try:
        return check_threshold(value)
    except ValueError as error:
        raise UserError(str(error)) from None


def parse_spread(name: str, text: str) -> float | tuple[float, float]:
    """'40' or '300,700'."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    match numbers:
        case (value,):
            return value
        case (low, high):
            return low, high
        case _:
            raise UserError(f"--{name} takes one number or LOW,HIGH, such as 40 or 300,700, not {text!r}")


def parse_named(option: str, texts: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE: true, false, whole numbers, numbers, several of these with commas between; anything else is text."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UserError(f"--{option} takes NAME=VALUE, such as width=5, not {text!r}")
        parts = tuple(_parse(part) for part in value.split(","))
        found[name] = parts[0] if len(parts) == 1 else parts
    return found


def share_or_path(text: str) -> float | str:
    """0.2, or the path of a file, whole: a run may be looked at from another folder."""
    found = _parse(text)
    return float(found) if isinstance(found, int | float) else str(Path(text).resolve())


def _parse(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def require_own(path: Path, marks: Iterable[bytes], otherwise: str) -> None:
    """An earlier page, which has one of the marks, may be replaced; a file of somebody else must not be lost."""
    try:
        with path.open("rb") as file:
            start = file.read(1000)
    except OSError:  # there is none; if it cannot be written to, writing says so
        return
    if start and not any(mark in start for mark in marks):
        raise UserError(f"{path} is there, and {otherwise}")
