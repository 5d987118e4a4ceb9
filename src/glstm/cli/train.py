"""`glstm train`: a network on a task, by one of the paper's recipes or your own."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from glstm.cli.stopping import INTERRUPTED, StopOnSignal
from glstm.errors import UserError

NETWORK, GATE, OPTIMISER, LENGTH, MACHINE = "Network", "Gate", "Optimiser", "Data and length", "Machine and folders"


GATE_VALUES = {"mu", "sigma", "tau", "s", "r", "threshold", "gate_lr", "alpha", "rho", "open_epochs", "open_sigma"}


def Opt(help: str, panel: str, *names: str, **more):
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **more)


def train(
    context: typer.Context,
    task: Annotated[
        str | None,
        typer.Argument(help="adding, smnist, pmnist or scifar (with --resume: leave it out).", show_default=False),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="The recipe to start from; without it, the paper's Table 1. Any option below changes a value "
            "of it. adding: adding-1000, adding-2000, adding-mu500, adding-a1, adding-a2, adding-a3, "
            "adding-plstm. smnist: smnist, smnist-budget. pmnist: pmnist. scifar: scifar, "
            "scifar-curriculum.",
            show_default=False,
        ),
    ] = None,
    cell: Annotated[
        Literal["glstm", "plstm", "lstm"] | None, Opt("Gaussian-gated, phased, or plain LSTM.", NETWORK)
    ] = None,
    units: Annotated[int | None, Opt("Hidden units in a layer.", NETWORK)] = None,
    layers: Annotated[int | None, Opt("Recurrent layers.", NETWORK)] = None,
    head: Annotated[
        Literal["linear", "deep"] | None,
        Opt("What reads the last state: one linear layer, or 256-256 with Drop-Connect.", NETWORK),
    ] = None,
    candidate: Annotated[
        Literal["tanh", "sigmoid"] | None,
        Opt("The cell's candidate; the paper prints sigmoid, everybody uses tanh.", NETWORK),
    ] = None,
    init: Annotated[
        Literal["orthogonal", "xavier", "torch"] | None, Opt("How the recurrent layer's weights start.", NETWORK)
    ] = None,
    forget_bias: Annotated[float | None, Opt("Where the forget gate's bias starts.", NETWORK)] = None,
    chrono: Annotated[
        float | None, Opt("Chrono initialisation of the biases, with this T_max, instead of --forget-bias.", NETWORK)
    ] = None,
    mu: Annotated[str | None, Opt("When units open, in steps: one number, or LOW,HIGH to draw from.", GATE)] = None,
    sigma: Annotated[str | None, Opt("For how long, in steps: one number, or LOW,HIGH.", GATE)] = None,
    tau: Annotated[str | None, Opt("plstm: period of the gate, a number or LOW,HIGH.", GATE)] = None,
    s: Annotated[str | None, Opt("plstm: shift of the gate, a number or LOW,HIGH.", GATE)] = None,
    r: Annotated[str | None, Opt("plstm: open share of a period, a number or LOW,HIGH.", GATE)] = None,
    threshold: Annotated[
        float | None, Opt("v_T while training: units with k at or below it are closed and copied.", GATE)
    ] = None,
    gate_lr: Annotated[float | None, Opt("Learning rate of the gate's values; 0 freezes them.", GATE)] = None,
    budget: Annotated[float | None, Opt("lambda: charge this much times the mean openness.", GATE)] = None,
    budget_epochs: Annotated[int | None, Opt("First epochs over which lambda rises to its value.", GATE)] = None,
    curriculum: Annotated[
        bool | None,
        Opt("Widen narrow gates epoch by epoch until an LSTM is left.", GATE, "--curriculum/--no-curriculum"),
    ] = None,
    alpha: Annotated[float | None, Opt("Curriculum: how much a sigma grows at a time, as a share.", GATE)] = None,
    rho: Annotated[
        float | None, Opt("Curriculum: the share of units, the narrowest, that grow each epoch.", GATE)
    ] = None,
    open_epochs: Annotated[int | None, Opt("Curriculum: last epochs with every gate wide open.", GATE)] = None,
    open_sigma: Annotated[float | None, Opt("Curriculum: sigma in those epochs.", GATE)] = None,
    optimizer: Annotated[Literal["adam", "rmsprop", "sgd"] | None, Opt("Which optimiser.", OPTIMISER)] = None,
    lr: Annotated[float | None, Opt("Learning rate of the weights.", OPTIMISER)] = None,
    decay: Annotated[float | None, Opt("RMSProp's decay.", OPTIMISER)] = None,
    schedule: Annotated[
        Literal["constant", "linear", "cosine"] | None,
        Opt("How both learning rates fall to 0 over the epochs.", OPTIMISER),
    ] = None,
    clip: Annotated[
        float | None, Opt("Clip the norm of the weights' gradient to this; 0 turns it off.", OPTIMISER)
    ] = None,
    epochs: Annotated[int | None, Opt("How often to go through the training set.", LENGTH)] = None,
    batch: Annotated[int | None, Opt("Sequences in a batch, over all devices.", LENGTH)] = None,
    segment: Annotated[
        int | None,
        Opt("Keep the state only every so many steps and compute the rest again: for very long sequences.", LENGTH),
    ] = None,
    steps: Annotated[
        int | None, Opt("adding: length of a sequence; the preset's mu and sigma stretch along.", LENGTH)
    ] = None,
    train_size: Annotated[int | None, Opt("Use only this many training sequences.", LENGTH)] = None,
    test_size: Annotated[int | None, Opt("Use only this many test sequences.", LENGTH)] = None,
    shift: Annotated[int | None, Opt("Images: move each by up to so many pixels, anew in every epoch.", LENGTH)] = None,
    seed: Annotated[int | None, Opt("Seed of the weights, the gates and the order of the data.", LENGTH)] = None,
    seeds: Annotated[
        int | None, Opt("Train so many networks together, with seeds counted up from --seed.", LENGTH)
    ] = None,
    out: Annotated[
        Path | None,
        Opt("Run folder to make; without it, runs/TASK-CELL-seedN. With --seeds it gets a folder for each.", MACHINE),
    ] = None,
    resume: Annotated[
        list[Path] | None,
        Opt(
            "Go on with the run in this folder, or the runs in its folders, where they stopped; only --epochs may "
            "change. Give it several times for several runs.",
            MACHINE,
        ),
    ] = None,
    data: Annotated[
        Path | None, Opt("Folder of data files; without it, the variable GLSTM_DATA or your cache folder.", MACHINE)
    ] = None,
    device: Annotated[
        Literal["auto", "cpu", "cuda", "mps"] | None,
        Opt("Where to train; auto takes CUDA where there is one.", MACHINE),
    ] = None,
    devices: Annotated[int | None, Opt("How many devices on each machine; without it, 1.", MACHINE)] = None,
    nodes: Annotated[int | None, Opt("How many machines; without it, 1.", MACHINE)] = None,
    precision: Annotated[
        Literal["32-true", "64-true", "bf16-mixed"] | None, Opt("Arithmetic; without it, 32-true.", MACHINE)
    ] = None,
    matmul: Annotated[
        Literal["high", "highest"] | None,
        Opt("CUDA: how exactly float32 matrices are multiplied; without it, high, as cuDNN's LSTM does.", MACHINE),
    ] = None,
) -> None:
    """Train a network and keep everything about it in a run folder.

    [bold]glstm train adding[/] trains the paper's g-LSTM on its adding task; [bold]glstm train adding --cell lstm[/]
    its plain twin; [bold]glstm train smnist --preset smnist-budget --epochs 20[/] a thrifty one on MNIST. Press
    Ctrl-C once to stop after the present batch; [bold]glstm train --resume RUN[/] goes on from there, on a CPU, with
    as many threads, to the same final bits as if it had not stopped. [bold]glstm train smnist --seeds 10[/] trains ten networks together, each as
    if it were alone, for little more than the price of one on a GPU. The folder holds config.json, metrics.csv, losses.csv, the network, a
    checkpoint and two pictures.
    """
    from glstm.training.recipe import Recipe
    from glstm.training.recipe import preset as find_preset
    from glstm.training.run import RunFolder, runs_in

    asked = {
        name: value
        for name, value in context.params.items()
        if name in Recipe.__dataclass_fields__ and name != "task" and value is not None
    }
    for name in ("mu", "sigma", "tau", "s", "r"):
        if name in asked:
            asked[name] = parse_spread(name, asked[name])
    require_folder(data)
    machine = {"device": device, "devices": devices, "nodes": nodes, "precision": precision, "matmul": matmul}
    where = {"device": "auto", "devices": 1, "nodes": 1, "precision": "32-true", "matmul": "high"}
    if resume:
        folders = [folder for path in resume for folder in runs_in(path)]
        recipes = [folder.recipe() for folder in folders]
        if task not in (None, recipes[0].task):
            raise UserError(f"{folders[0].path} is a run of {recipes[0].task}, not of {task}: leave the task out")
        given = {"preset": preset, "out": out, "seeds": seeds}
        refused = sorted(set(asked) - {"epochs"}) + [name for name, value in given.items() if value is not None]
        if refused:
            raise UserError(
                f"a resumed run keeps its recipe and its folder: leave out --{refused[0].replace('_', '-')}"
            )
        recipes = [recipe.changed(**asked) for recipe in recipes]
        where |= {name: value for name, value in folders[0].where().items() if name in where}
        for folder in folders:
            for name, given in (("precision", precision), ("matmul", matmul)):
                if (own := folder.where().get(name)) not in (None, given or where[name]):
                    raise UserError(f"{folder.path} was trained with --{name} {own}: resume it alone, without --{name}")
        data, again = data or folders[0].data(), resume
    else:
        if task is None:
            raise UserError("say which task to train on: adding, smnist, pmnist or scifar")
        recipe = find_preset(task, preset)
        if steps is not None:
            recipe = recipe.at_length(steps)
        recipe = recipe.changed(**asked)
        if recipe.cell == "lstm" and (idle := sorted(set(asked) & GATE_VALUES)):
            raise UserError(f"the lstm cell has no gate: leave out --{idle[0].replace('_', '-')}")
        if seeds is not None and seeds < 1:
            raise UserError(f"--seeds is how many networks to train, at least 1, not {seeds}")
        recipes = [recipe.changed(seed=recipe.seed + number) for number in range(seeds or 1)]
        folders = [RunFolder(_new_folder(own, out, len(recipes))) for own in recipes]
        again = [out] if out else [folder.path for folder in folders]
    where |= {name: value for name, value in machine.items() if value is not None}
    _run(recipes, folders, bool(resume), again, data, where)


def _new_folder(recipe, out: Path | None, networks: int) -> Path:
    if out is None:
        return Path("runs") / f"{recipe.task}-{recipe.cell}-seed{recipe.seed}"
    return out if networks == 1 else out / f"seed{recipe.seed}"


def require_folder(path: Path | None, what: str = "--data is a folder of data files") -> None:
    if path is not None and not path.is_dir():
        raise UserError(f"{what}, but {path} is {'a file' if path.exists() else 'not there'}")


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


def _run(recipes: list, folders: list, resuming: bool, again: list[Path], data, where: dict) -> None:
    """`again` is what to give to --resume after a stop."""
    from glstm.training.display import display_for
    from glstm.training.fabric import make_fabric, part, set_matmul
    from glstm.training.loop import Trainer

    console = Console()
    fabric = make_fabric(where["device"], where["devices"], where["nodes"])
    if fabric.global_rank == 0 and not resuming:
        for folder in folders:
            folder.require_unused()
    fabric.launch()
    set_matmul(fabric, where["matmul"])
    trainer = Trainer(recipes, folders, fabric, data, where["precision"])
    if resuming:
        trainer.resume()
    else:
        trainer.begin(**where, data=str(Path(data).resolve()) if data else None)
    before = [len(run.history) for run in trainer.runs]
    with StopOnSignal() as should_stop:
        finished = trainer.fit(display_for(console), should_stop)
        trainer.finish()
    part(fabric)
    if not fabric.is_global_zero:
        return
    if finished:
        results = [_result(run, trainer.task, epochs) for run, epochs in zip(trainer.runs, before, strict=True)]
    else:
        options = " ".join(f"--resume {path}" for path in again)
        results = [f"stopped in epoch {trainer.epoch}; go on with: glstm train {options}"]
    for result in results:
        console.print(result, highlight=False, soft_wrap=True, markup=False)
    if not finished:
        raise typer.Exit(INTERRUPTED)  # so that 'train && evaluate' does not go on


def _result(run, task, before: int) -> str:
    """One sentence about a finished run that had so many epochs when it was taken up."""
    if len(run.history) == before:
        more = "; give more --epochs to go on" if run.recipe.schedule == "constant" else ""
        return f"{run.folder.path} is finished, after {before} epochs{more}"
    last = run.history[-1]
    return f"{run.folder.path}: {task.metric} {task.format_error(last.test_error)} in epoch {last.epoch}"
