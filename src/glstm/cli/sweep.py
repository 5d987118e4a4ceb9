"""`glstm sweep`: which recipe is the best by validation."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from glstm import registry
from glstm.cli.options import DataOption, FileOptions, require_folder
from glstm.cli.reproduce import Engines, machine_of, trained_by
from glstm.errors import UserError
from glstm.extras import require
from glstm.stopping import INTERRUPTED

if TYPE_CHECKING:
    from glstm.recipes import Recipe
    from glstm.sweeps.plan import Plan
    from glstm.sweeps.sweep import Sweep

SHOWN = 20  # recipes in the table


def sweep(
    plan: Annotated[Path, typer.Argument(help="A TOML file that says what to try.", metavar="PLAN.toml")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the sweep; without it, runs/ and the plan's name.", show_default=False),
    ] = None,
    data: DataOption = None,
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to train.")] = "auto",
    matmul: Annotated[
        Literal["high", "highest"], typer.Option(help="CUDA: how exactly matrices are multiplied.")
    ] = "high",
    engine: Engines = "local",
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="Stop after so long; the same command goes on.", show_default=False)
    ] = None,
) -> None:
    """Train many recipes, and show which is the best on validation data. The test part is not used for the choice.

    The plan names a task, what all recipes have in common, and a grid of values, or ranges for a search by Optuna; the
    page 'sweeps' of the documentation has examples. Recipes of one shape train together. Press Ctrl-C to stop; the same
    command goes on. Started several times, on several GPUs, it shares the work. At the end the folder has sweep.json,
    with every recipe, its error and its run folder, and sweep.png.
    """
    from glstm.experiments.runner import Runner
    from glstm.experiments.store import Store
    from glstm.sweeps.plan import read_plan
    from glstm.sweeps.sweep import Sweep, check
    from glstm.training.fabric import make_fabric, set_matmul

    require("glstm sweep", "matplotlib")
    require_folder(data)
    asked = read_plan(plan)
    for name in asked.names():
        registry.require_trust(name, plan)
    folder = out or Path("runs") / plan.stem
    fabric = make_fabric(device)
    set_matmul(fabric, matmul)
    where = {"device": str(fabric.device), "matmul": matmul, "data": str(data.resolve()) if data else None}
    runner = Runner(Store(folder / "networks"), fabric, data, where, machine_of(fabric.device))
    whole = Sweep(asked, _base(asked), runner.store)
    console = Console()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("making each network once", total=None)
        check(whole, runner, lambda done, of: progress.update(bar, completed=done, total=of))
    deadline = time.monotonic() + 60 * minutes if minutes else float("inf")
    try:
        finished = trained_by(engine, runner, console, whole.wanted, deadline)
    finally:
        _write(console, folder, whole)
    if not finished:
        console.print("stopped; the same command goes on from here")
        raise typer.Exit(INTERRUPTED)


def _base(plan: "Plan") -> "Recipe":
    from glstm.cli.train import start
    from glstm.experiments.experiment import HELD_OUT

    recipe = start(plan.task, plan.preset, FileOptions())
    own = plan.recipe.get("data", {}).keys() | {
        name.partition(".")[2] for name in plan.recipe if name.startswith("data.")
    }
    if recipe.task in ("smnist", "pmnist", "scifar", "adding") and "validation" not in own:
        recipe = recipe.changed(data={"validation": HELD_OUT})
    return recipe


def _write(console: Console, folder: Path, whole: "Sweep") -> None:
    """What is known so far: the table, the picture and the JSON."""
    from glstm.storage import write_json
    from glstm.sweeps.picture import draw

    ranked = whole.ranked()
    if not ranked:
        return
    summary = whole.store.summary(ranked[0].recipes[0])
    if summary is None:
        raise UserError(f"{folder} has changed while the sweep ran: start it again")
    trials = [trial.as_dict(whole.store) for trial in ranked]
    left = len(whole.trials) - len(ranked)
    metric, as_percent = summary["metric"], summary["as_percent"]
    write_json(folder / "sweep.json", {"metric": metric, "not_trained": left, "trials": trials})
    draw(folder / "sweep.png", trials, metric, as_percent)
    names = list(trials[0]["values"])
    table = Table(*names, f"validation {metric}", box=None, pad_edge=False)
    for trial in trials[:SHOWN]:
        error, spread = trial["validation_error"], trial["standard_deviation"]
        shown = "diverged" if error is None else _form(error, as_percent)
        shown += "" if spread is None else f" ± {_form(spread, as_percent)}"
        table.add_row(*(f"{trial['values'][name]}" for name in names), shown)
    console.print(table)
    if trials[0]["validation_error"] is None:
        said = "every recipe diverged"
    else:
        said = f"networks of the best recipe: {', '.join(trials[0]['folders'])}"
    console.print(f"{said}; all are in {folder / 'sweep.json'}", soft_wrap=True, markup=False)


def _form(value: float, as_percent: bool) -> str:
    return f"{100 * value:.2f} %" if as_percent else f"{value:.2e}"
