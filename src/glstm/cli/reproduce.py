"""`glstm reproduce`: the paper's experiments, and ours, from training to results."""

import os
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from glstm.cli.options import DataOption, require_folder
from glstm.errors import UserError
from glstm.stopping import INTERRUPTED, StopOnSignal
from glstm.storage import remove_temporary

if TYPE_CHECKING:
    from glstm.experiments.runner import Runner
    from glstm.experiments.work import Wants


SHARED = "networks: of its searches and its tests; one that several experiments need is trained once"
Engines = Annotated[
    Literal["local", "ray"],
    typer.Option(
        help="Who trains: this process, or the workers of a Ray cluster, which all see these folders. RAY_ADDRESS says "
        "which cluster; without it, one is started on this machine."
    ),
]


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Experiments, or all. Without any, a list of them.", show_default=False)
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="Small networks, few epochs: minutes on a CPU, and no figure to quote.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Where results go; results, or runs/small/results.")] = None,
    store: Annotated[Path | None, typer.Option(help="Where networks are kept; runs/reproduce, or runs/small.")] = None,
    track: Annotated[
        Literal["paper", "best", "given"] | None,
        typer.Option(help="Only networks of this track; the others are named as missing.", show_default=False),
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(help="Only networks of the arm with this key; several are allowed.", show_default=False),
    ] = None,
    data: DataOption = None,
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to train.")] = "auto",
    matmul: Annotated[
        Literal["high", "highest"], typer.Option(help="CUDA: how exactly matrices are multiplied.")
    ] = "high",
    sharing: Annotated[
        int, typer.Option(min=1, help="So many of these commands share the device: each counts its part of the time.")
    ] = 1,
    together: Annotated[
        int | None,
        typer.Option(min=1, help="How many networks train at once at most; else what suits the device."),
    ] = None,
    engine: Engines = "local",
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="Stop after so long; the same command goes on.", show_default=False)
    ] = None,
) -> None:
    """Run experiments of the paper. What is trained already is not trained again, whichever experiment asked for it.

    Results are a memory: networks that are in those of --out are not trained again, on this machine or another. Another
    --out with another --store begins afresh.

    Networks of one shape train together. Press Ctrl-C to stop; the same command goes on. Started several times over one
    store, it shares the work out: no network is trained by two.
    """
    from glstm.experiments import EXPERIMENTS
    from glstm.experiments.experiment import SMALL
    from glstm.experiments.known import adopt
    from glstm.experiments.runner import Runner, wanted, write_result
    from glstm.experiments.store import Store
    from glstm.training.fabric import make_fabric, set_matmul

    console = Console()
    if not names:
        console.print(_contents(EXPERIMENTS.values()))
        return
    if unknown := sorted(set(names) - {*EXPERIMENTS, "all"}):
        raise UserError(f"there is no experiment {unknown[0]!r}; there are {', '.join(EXPERIMENTS)}, and all")
    require_folder(data)
    chosen = [one.at(SMALL if small else None) for one in EXPERIMENTS.values() if one.name in names or "all" in names]
    keys = {one.key for experiment in chosen for one in experiment.only(track).arms}
    if unknown := sorted(set(arm or ()) - keys):
        which = f" of the track {track}" if track else ""
        known = ", ".join(sorted(keys)) or "none"
        raise UserError(f"no experiment named here has an arm {unknown[0]!r}{which}; there are {known}")
    keep = Store(store or Path("runs/small" if small else "runs/reproduce"))
    results = out or (Path("runs/small/results") if small else Path("results"))
    if known := adopt(chosen, results, keep):
        console.print(f"{known} networks are known from {results}", highlight=False, soft_wrap=True, markup=False)
    asked_for = [one.only(track, arm or ()) for one in chosen]
    fabric = make_fabric(device)
    set_matmul(fabric, matmul)
    where = {"device": str(fabric.device), "matmul": matmul, "data": str(data.resolve()) if data else None}
    runner = Runner(keep, fabric, data, where, machine_of(fabric.device), sharing)
    deadline = time.monotonic() + 60 * minutes if minutes else float("inf")
    try:
        if not trained_by(engine, runner, console, lambda: wanted(asked_for, keep), deadline, together):
            console.print("stopped; the same command goes on from here")
            raise typer.Exit(INTERRUPTED)
    finally:  # what is complete is written, stopped or not
        with keep.alone():
            remove_temporary(results, of_others=True)
            for one in chosen:
                path = results / f"{one.name}.json"
                if write_result(one, keep, results, small):
                    console.print(str(path), highlight=False, soft_wrap=True, markup=False)
                elif path.exists():
                    why = (
                        "stays as it is: nothing new is known, or it is of another scale; --out puts results elsewhere"
                    )
                    console.print(f"{path} {why}", highlight=False, soft_wrap=True, markup=False)


def trained_by(
    name: str, runner: "Runner", console: Console, wants: "Wants", deadline: float, together: int | None = None
) -> bool:
    """Whether everything is trained, by the engine of this name; False: stopped before the end, or at the deadline."""
    from glstm.experiments.work import Rays, ThisProcess
    from glstm.fleet import Fleet
    from glstm.training.display import display_for

    def say(sentence: str) -> None:
        console.print(sentence, highlight=False, soft_wrap=True, markup=False)

    with ExitStack() as stack:
        if name == "ray":
            engine = Rays(runner, stack.enter_context(Fleet()), machine_of, together)
        else:
            engine = ThisProcess(runner, lambda: display_for(console), together)
        asked = stack.enter_context(StopOnSignal())
        return engine.train(wants, say, lambda: asked() or time.monotonic() > deadline)


def _contents(experiments) -> Table:
    table = Table("experiment", "what", "networks", box=None, pad_edge=False, caption=SHARED, caption_justify="left")
    for one in experiments:
        decide = {recipe for arm in one.arms for some in arm.searched() for recipe in some}
        table.add_row(one.name, one.title, str(len(decide) + sum(len(arm.seeds) for arm in one.arms)))
    return table


def machine_of(device) -> dict[str, object]:
    import torch

    from glstm.bench.machine import describe

    machine = describe()
    if device.type == "cuda":
        del machine["engine"]  # the engine is the CPU's
        name = torch.cuda.get_device_name(device)
    else:
        name = machine["machine"]
    return {**machine, "device": name, "matmul": torch.get_float32_matmul_precision(), "commit": _commit()}


def _commit() -> str:
    """The commit of the source tree, if there is one; GLSTM_COMMIT sets it if git is not available."""
    if given := os.environ.get("GLSTM_COMMIT"):
        return given
    try:
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
