"""`glstm demo`: a g-LSTM and a plain LSTM (its twin) on the same long adding task, each with the same time."""

import math
import multiprocessing
import queue
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from glstm.errors import UserError
from glstm.extras import require
from glstm.storage import make_folder, write_atomically
from glstm.training.display import Display, EpochRow

PICTURE, PAGE, MARK = "demo.png", "explore.html", "made-by-glstm-demo"
THRESHOLD = 0.01  # the paper's v_T
SOLVED = 0.01  # test error
USUAL_EPOCHS = 150  # until it is solved
ON_PAGE = 200  # sequences on which the page's errors are measured


@dataclass
class Contestant:
    """What the parent process has of one network."""

    name: str
    folder: Path
    rows: list[EpochRow] = field(default_factory=list)

    @property
    def at_seconds(self) -> list[float]:
        total, at = 0.0, []
        for row in self.rows:
            total += row.seconds + row.test_seconds
            at.append(total)
        return at


def demo(
    seconds: Annotated[float, typer.Option(help="Training time for each network; both train at once.")] = 120.0,
    out: Annotated[Path, typer.Option(help="Folder for the result; made anew.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Seed of both networks.")] = 0,
) -> None:
    """Train a g-LSTM and a plain LSTM on the same long task for the same time, and compare them."""
    if not (math.isfinite(seconds) and seconds >= 1):
        raise UserError(f"--seconds must be at least 1, not {seconds:g}")
    require("glstm demo", "matplotlib")  # checked here, not in its processes or at the end
    _clear(out)
    glstm, lstm = contestants = [Contestant("g-LSTM", out / "glstm"), Contestant("LSTM", out / "lstm")]
    console = Console()
    recipe = demo_recipe(seed)
    console.print(
        f"The adding task: {recipe.data['steps']} numbers, two of them marked; say the sum of those two.\n"
        f"Always answering 1 has an error of 0.167; below 0.01 the task is solved. Each network has {recipe.units} "
        f"units and {seconds:.0f} s on one core.\nBoth have one recipe, which was made for the g-LSTM and this time. "
        "With biases for long memories an LSTM learns it, too: glstm train adding --cell lstm --chrono 1000.\n",
        highlight=False,
    )
    _race(contestants, recipe, seconds, console)
    _conclude(glstm, lstm, recipe, seconds, out, console)


def _clear(out: Path) -> None:
    """Remove the files that an earlier demo wrote to this folder. A folder of anything else is an error."""
    make_folder(out)
    if any(out.iterdir()) and not (out / MARK).is_file():
        raise UserError(f"{out} holds something that is not a demo's result; choose another --out")
    for name in ("glstm", "lstm"):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in (PICTURE, PAGE):
        (out / name).unlink(missing_ok=True)
    write_atomically(out / MARK, b"made by glstm demo, which may replace what is here\n")


def demo_recipe(seed: int):
    from glstm.ops import cpu
    from glstm.recipes import preset

    # Fewer units and smaller batches than the paper's, so that two minutes on one core are enough. The threshold is on
    # from the first step: closed work is skipped in training too.
    recipe = preset("adding").changed(
        gate={"mu": (1.0, 1000.0), "sigma": 50.0},
        options={"threshold": THRESHOLD},
        data={"train_size": 1000, "test_size": 500},
        units=40,
        lr=5e-3,
        batch=20,
        epochs=1_000_000,  # it ends when the time is up
        seed=seed,
    )
    if cpu.engine():
        return recipe
    # The reference operator is some twenty times slower: it gets a task that it can learn in the time.
    return recipe.at_length(200).changed(gate={"sigma": 20.0}, gate_lr=0.3, options={"threshold": None})


def _race(contestants: list[Contestant], recipe, seconds: float, console: Console) -> None:
    """Both networks at once, each in its own process, until their time is up."""
    spawn = multiprocessing.get_context("spawn")
    events = spawn.Queue()
    workers = []
    for one in contestants:
        own = recipe if one.name == "g-LSTM" else recipe.changed(cell="lstm")
        workers.append(spawn.Process(target=_train, args=(one.name, own, one.folder, seconds, events), daemon=True))
    for worker in workers:
        worker.start()
    bar = Progress(TextColumn("time"), BarColumn(60), TextColumn("{task.completed:.0f} of {task.total:.0f} s"))
    clock = bar.add_task("time", total=seconds)
    started: float | None = None
    by_name = {one.name: one for one in contestants}
    with Live(console=console, refresh_per_second=4) as live:
        while any(worker.is_alive() for worker in workers) or not events.empty():
            try:
                name, row = events.get(timeout=0.2)
                started = started or time.monotonic()
                if row is not None:
                    by_name[name].rows.append(row)
            except queue.Empty:
                pass
            if started is not None:
                bar.update(clock, completed=min(time.monotonic() - started, seconds))
            live.update(Group(_scores(contestants), bar))
    if failed := [worker for worker in workers if worker.exitcode]:
        raise UserError(f"a training process ended with exit code {failed[0].exitcode}; its message is above")


def _train(name: str, recipe, folder: Path, seconds: float, events) -> None:
    """In a process of its own: train until the time is up, telling the parent about every epoch."""
    import signal

    import torch

    from glstm.recipes import make_task, model_maker
    from glstm.training.loop import Trainer

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent reacts to Ctrl-C; it ends this process, too
    torch.set_num_threads(1)  # steps this small gain nothing from a second thread, and the twin needs the other core

    class Tell(Display):
        def epoch(self, rows: list[EpochRow]) -> None:
            events.put((name, rows[0]))

    task = make_task(recipe)
    trainer = Trainer(task, model_maker(recipe, task), recipe, folder)
    trainer.begin([recipe.names_as_dict()], device="cpu")
    events.put((name, None))
    deadline = time.monotonic() + seconds
    trainer.fit(Tell(), lambda: time.monotonic() > deadline)
    trainer.finish()


def _scores(contestants: list[Contestant]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("network", "epochs", "training loss", "test error", "mean k", ""):
        table.add_column(heading, justify="left" if heading in ("network", "") else "right", min_width=8)
    for one in contestants:
        if not one.rows:
            table.add_row(one.name, "starting ...")
            continue
        last = one.rows[-1]
        verdict = "[green]solved[/]" if (last.error or 0) < SOLVED else ""
        table.add_row(
            one.name,
            str(last.epoch),
            f"{last.train_loss:.5f}",
            f"{last.test_error:.5f}",
            "" if last.mean_k is None else f"{last.mean_k:.2f}",
            verdict,
        )
    return table


def _conclude(glstm: Contestant, lstm: Contestant, recipe, seconds: float, out: Path, console: Console) -> None:
    from glstm.cli.export import deployable
    from glstm.recipes import make_task
    from glstm.training.evaluate import cost, error_sums, threshold_at
    from glstm.training.run import RunFolder

    task = make_task(recipe)
    table = Table(title=f"after {seconds:.0f} s each")
    for heading in ("network", "test error", "open", "operations", "time"):
        table.add_column(heading, justify="left" if heading == "network" else "right")
    for one in (glstm, lstm):
        model = deployable(one.folder, RunFolder(one.folder).load_model())
        with threshold_at(model.layer, THRESHOLD):
            _, error = error_sums(model, task)
            price = cost(model.layer, task.steps)
        operations = price.cached_ops if one is glstm else price.lstm_ops
        table.add_row(
            one.name,
            f"{float(error) / task.test_size:.5f}",
            f"{100 * price.open_share:.0f} %",
            f"{operations / 1e6:.2f} M",
            f"{seconds:.0f} s",
        )
    console.print(table)
    console.print(
        f"(at the end of the time, some batches after the last epoch above, with units at k <= {THRESHOLD} closed; "
        "open: the share of units that are above it; operations: of one sequence, frozen work kept)",
        highlight=False,
    )
    if glstm.rows and (glstm.rows[-1].error or 0) >= SOLVED:
        console.print(
            f"The g-LSTM has not solved the task in {len(glstm.rows)} epochs. It takes about {USUAL_EPOCHS}, which a "
            f"busy machine does not reach in {seconds:.0f} s: glstm demo --seconds 300 gives it more time.",
            highlight=False,
        )
    picture = out / PICTURE
    _draw(glstm, lstm, picture, task.steps)
    console.print(f"picture: {picture}", highlight=False, soft_wrap=True, markup=False)
    page = out / PAGE
    _write_page(glstm, lstm, task, page)
    text = f"page: {page}, to open in a browser: both networks, which run there, with a threshold to move"
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def _write_page(glstm: Contestant, lstm: Contestant, task, path: Path) -> None:
    """What `glstm explore` writes, of both networks side by side."""
    from glstm.cli.explore import page_of
    from glstm.explore.gather import Shown
    from glstm.training.run import RunFolder

    networks = [
        Shown(one.name, RunFolder(one.folder).load_model(), task, task.schedule(), one.folder) for one in (glstm, lstm)
    ]
    write_atomically(path, page_of(networks, ON_PAGE).encode())


def _draw(glstm: Contestant, lstm: Contestant, path: Path, steps: int) -> None:
    import torch

    from glstm import plots
    from glstm.cli.export import deployable
    from glstm.training.checkpoint import read_extra
    from glstm.training.run import RunFolder

    run = RunFolder(glstm.folder)
    with torch.no_grad():
        after = deployable(run.path, run.load_model()).layer.openness(steps)[0].numpy()
    before = read_extra(run.checkpoint)["gates_before"].numpy()
    figure = plots.new_figure(11, 3.4)
    curves, left, right = figure.subplots(1, 3, width_ratios=[1.5, 1, 1])
    data = [plots.Curve(one.name, one.at_seconds, [row.error or 0 for row in one.rows]) for one in (glstm, lstm)]
    plots.draw_curves(curves, data, plots.Axis("seconds of training"), plots.Axis("test error", log=True))
    curves.legend(frameon=False)
    curves.set_title(f"adding task, {steps} steps", fontsize="medium", color=plots.INK)
    plots.draw_gates(left, before, "g-LSTM's gates before")
    image = plots.draw_gates(right, after, "and after training")
    right.set_ylabel("")
    figure.colorbar(image, ax=right, label="openness k")
    plots.save(figure, path)
