"""`glstm train`: a network on a task, by one of the paper's recipes or your own."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glstm import registry
from glstm.cells import CELLS
from glstm.cli.options import (
    MACHINE,
    DataOptions,
    FileOptions,
    GateOptions,
    MachineOptions,
    NetworkOptions,
    OptimiserOptions,
    grouped,
    option,
    parse_named,
    parse_spread,
    require_folder,
    share_or_path,
)
from glstm.data import TASKS
from glstm.data.reading import READERS
from glstm.errors import UserError
from glstm.extras import require
from glstm.recipes import PRESETS, Recipe, names_in, own_data
from glstm.recipes import preset as find_preset

if TYPE_CHECKING:
    from glstm.cli.job import Job
    from glstm.training.run import RunFolder

WHERE = {"device": "auto", "devices": 1, "nodes": 1, "precision": "32-true", "matmul": "high"}
OF_CURRICULUM = ("alpha", "rho", "open_epochs", "open_sigma")
OF_PRUNING = ("prune_from", "prune_until")
OF_GATES = ("mu", "sigma", "gate_value", "threshold", "gate_lr", *OF_CURRICULUM)


@grouped
def train(
    task: Annotated[
        str | None,
        typer.Argument(
            help="A file of your own (.ts, .npz, .csv, .parquet), a task of the paper "
            f"({', '.join(name for name in TASKS if name != 'file')}), or your own as package.module:task. "
            "With --resume: leave it out.",
            show_default=False,
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="For a task of the paper, the recipe to start from; without it, that of the paper's tables. Files and "
            "your own tasks have none. Any option below changes a value. "
            f"There are {', '.join(PRESETS)}.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "Run folder to make; without it, runs/TASK-CELL-seedN. With --seeds it gets a folder for each.", MACHINE
        ),
    ] = None,
    resume: Annotated[
        list[Path] | None,
        option(
            "Go on with the run in this folder, or the runs in its folders, where they stopped; only --epochs and "
            "--on-nan may change. Give it several times for several runs.",
            MACHINE,
        ),
    ] = None,
    *,
    network: NetworkOptions,
    gate: GateOptions,
    optimiser: OptimiserOptions,
    data: DataOptions,
    files: FileOptions,
    machine: MachineOptions,
) -> None:
    """Train a network and keep everything about it in a run folder.

    [bold]glstm train gestures_TRAIN.ts --test gestures_TEST.ts[/] trains a g-LSTM on your own data, and
    [bold]glstm train log.csv --id patient --time hour --target outcome[/] on a table; the best epoch is chosen on a
    validation part, and the test part is used once, at the end. [bold]glstm train adding[/] trains the paper's g-LSTM on its adding task; [bold]glstm train adding --cell lstm[/]
    its plain twin; [bold]glstm train smnist --preset smnist-budget --epochs 20[/] a thrifty one on MNIST. Press
    Ctrl-C once to stop after the present batch; [bold]glstm train --resume RUN[/] goes on from there, on a CPU, with
    as many threads, to the same final bits as if it had not stopped. [bold]glstm train smnist --seeds 10[/] trains ten
    networks together, each as if it were alone, for little more than the price of one on a GPU. Tasks, cells, gates and
    heads of your own are named as package.module:name. The folder holds config.json, metrics.csv, losses.csv, the
    network, a checkpoint and pictures.
    """
    require("glstm train", "matplotlib")
    if machine.tensorboard:
        require("glstm train --tensorboard", "tensorboard")
    require_folder(machine.data)
    asked = {name: value for one in (network, gate, optimiser, data, files) for name, value in _given(one).items()}
    where = {**WHERE, **{name: value for name, value in _given(machine).items() if name not in ("data", "engine")}}
    if resume:
        changes = {name: asked[name] for name in ("epochs", "on_nan") if name in asked}
        refused = [name for name in asked if name not in changes]
        refused += [name for name, value in (("preset", preset), ("out", out)) if value is not None]
        _train(_resumed(task, resume, refused, changes, machine, where), machine)
        return
    if task is None:
        raise UserError(
            "say what to train on: a file of yours, adding, smnist, pmnist, scifar, or your task as package.module:task"
        )
    recipe = with_options(start(task, preset, files), network, gate, optimiser, data)
    _refuse_idle(recipe, list(asked))
    if data.seeds is not None and data.seeds < 1:
        raise UserError(f"--seeds is how many networks to train, at least 1, not {data.seeds}")
    recipes = [recipe.changed(seed=recipe.seed + number) for number in range(data.seeds or 1)]
    paths = [_new_folder(own, out, len(recipes)) for own in recipes]
    from glstm.cli.job import Job

    job = Job(recipes, paths, False, [out] if out else paths, machine.data, where, data.patience is not None)
    _train(job, machine)


def _train(job: "Job", machine: MachineOptions) -> None:
    from glstm.cli.job import train_here, train_on_fleet

    if machine.engine == "ray":
        require("--engine ray", "ray")
        train_on_fleet(job)
    else:
        train_here(job)


def _given(group: Any) -> dict[str, Any]:
    return {name: value for name, value in asdict(group).items() if value not in (None, [])}


def _refuse_idle(recipe: Recipe, asked: list[str]) -> None:
    """Options that this cell, or training without a curriculum or pruning, would not read."""
    takes = recipe.cell_takes()
    if "gate" not in takes and recipe.gate_class is None and (idle := [name for name in OF_GATES if name in asked]):
        raise UserError(f"the {recipe.cell} cell has no time gate: leave out --{_dashed(idle[0])}")
    if not recipe.curriculum and (idle := [name for name in OF_CURRICULUM if name in asked]):
        raise UserError(f"--{_dashed(idle[0])} is for a temporal curriculum: give --curriculum, or leave it out")
    if not recipe.sparsity and (idle := [name for name in OF_PRUNING if name in asked]):
        raise UserError(f"--{_dashed(idle[0])} is for pruning: give --sparsity, or leave it out")
    if "candidate" in asked and "candidate" not in takes and recipe.cell in CELLS:  # your own may take any option
        raise UserError(f"the candidate of the {recipe.cell} cell cannot be chosen: leave out --candidate")


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def start(task: str, preset: str | None, files: FileOptions) -> Recipe:
    """The recipe before anything else that was asked for changes it."""
    options = _given(files)
    if not is_file(task):
        if options:
            raise UserError(
                f"--{_dashed(next(iter(options)))} is for files of your own, and {task} is not one: known endings are "
                f"{', '.join(READERS)}"
            )
        return find_preset(task, preset)
    if preset is not None:
        raise UserError(f"presets are for the paper's tasks, and {task} is a file: leave out --preset")
    for name in ("test", "validation"):
        if name in options:
            options[name] = share_or_path(options[name])
            if isinstance(options[name], float) and not 0 <= options[name] < 1:
                raise UserError(
                    f"--{name} is a share of the sequences from 0 to 1, such as 0.2, or another file, not "
                    f"{options[name]:g}"
                )
    for name, new in (("input", "inputs"), ("target", "target")):
        if name in options:
            options[new] = tuple(options.pop(name))
    if "split_seed" in options:
        options["seed"] = options.pop("split_seed")
    return own_data(Path(task).resolve(), **options)


def is_file(task: str) -> bool:
    """Whether a file is meant, which need not exist."""
    return Path(task).suffix.lower() in READERS or (":" not in task and "/" in task) or Path(task).is_file()


def with_options(
    recipe: Recipe,
    network: NetworkOptions,
    gate: GateOptions,
    optimiser: OptimiserOptions,
    data: DataOptions,
) -> Recipe:
    """The recipe, with everything changed that was asked for."""
    if gate.gate is not None:
        recipe = recipe.changed(cell=network.cell or "gated", gate={"kind": gate.gate})
    elif network.cell is not None:
        recipe = recipe.changed(cell=network.cell)
    if data.steps is not None:
        recipe = recipe.at_length(data.steps)
    values = {name: parse_spread(name, text) for name in ("mu", "sigma") if (text := getattr(gate, name)) is not None}
    values |= parse_named("gate-value", gate.gate_value)
    if "kind" in values:
        raise UserError("which kind of gate is said by --gate, not by --gate-value")
    options = {name: value for name, value in (("candidate", network.candidate), ("threshold", gate.threshold))}
    options = {name: value for name, value in options.items() if value is not None}
    options |= parse_named("cell-option", network.cell_option)
    of_task = {
        name: value for name in ("train_size", "test_size", "shift") if (value := getattr(data, name)) is not None
    }
    of_task |= parse_named("task-option", data.task_option)
    plain = {**_given(network), **_given(gate), **_given(optimiser), **_given(data)}
    spoken_for = ("cell", "candidate", "cell_option", "gate", "mu", "sigma", "gate_value", "threshold", "steps",
                  "train_size", "test_size", "shift", "task_option", "seeds")  # fmt: skip
    plain = {name: value for name, value in plain.items() if name not in spoken_for}
    if plain.get("init") == "own":
        plain["init"] = None
    return recipe.changed(gate=values, options=options, data=of_task, **plain)


def _new_folder(recipe: Recipe, out: Path | None, networks: int) -> Path:
    if out is None:
        task = Path(recipe.data["path"]).stem.removesuffix("_TRAIN") if recipe.task == "file" else recipe.task
        names = (name.rpartition(":")[2] for name in (task, recipe.cell))
        return Path("runs") / f"{'-'.join(names)}-seed{recipe.seed}"
    return out if networks == 1 else out / f"seed{recipe.seed}"


def load_recipe(folder: "RunFolder") -> Recipe:
    """The recipe that a run was begun from. What it names must be part of glstm, or trusted."""
    names, settings = folder.recipe(), folder.settings().settings_as_dict()
    for name in names_in(names):
        registry.require_trust(name, folder.config)
    try:
        return Recipe.from_dict({**names, **settings})
    except UserError as error:
        raise UserError(f"{folder.config} holds the recipe of no run: {error}") from None


def _resumed(
    task: str | None,
    resume: list[Path],
    refused: list[str],
    changes: dict[str, Any],
    machine: MachineOptions,
    where: dict[str, Any],
) -> "Job":
    from glstm.cli.job import Job
    from glstm.training.run import runs_in

    folders = [folder for path in resume for folder in runs_in(path)]
    recipes = [load_recipe(folder) for folder in folders]
    for folder in folders:
        folder.check_network()
    if task not in (None, recipes[0].task):
        raise UserError(f"{folders[0].path} is a run of {recipes[0].task}, not of {task}: leave the task out")
    if refused:
        raise UserError(f"a resumed run keeps its recipe and its folder: leave out --{_dashed(refused[0])}")
    recipes = [recipe.changed(**changes) for recipe in recipes]
    asked = _given(machine)
    where |= {name: value for name, value in folders[0].where().items() if name in WHERE and name not in asked}
    for folder in folders:
        for name in ("precision", "matmul"):
            if (own := folder.where().get(name)) not in (None, where[name]):
                raise UserError(f"{folder.path} was trained with --{name} {own}: resume it alone, without --{name}")
    return Job(recipes, [folder.path for folder in folders], True, resume, machine.data or folders[0].data(), where)
