"""`glstm bench`: the speed on this machine, compared with the peers."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from glstm.cli.export import calibration, load_with_task
from glstm.cli.options import DataOption, RunFolderArgument, ThresholdOption
from glstm.errors import UserError
from glstm.forms import read_json

app = typer.Typer(no_args_is_help=True, help="Speed beside torch's LSTM, ONNX Runtime and a plain loop, as ratios.")


@app.command()
def cpu(
    seconds: Annotated[float, typer.Option(min=0.01, help="For each contender and number of threads.")] = 1.5,
    sizes: Annotated[bool, typer.Option(help="Also the sizes of seven programs that use an LSTM.")] = True,
    curves: Annotated[bool, typer.Option(help="Also how time grows with openness, T and H.")] = True,
    out: Annotated[
        Path, typer.Option(help="Where to write the figures, as JSON; the table beside it, as Markdown.")
    ] = Path("runs/bench/cpu.json"),
    picture: Annotated[Path | None, typer.Option(help="Where to draw the curves.", show_default=False)] = None,
) -> None:
    """The CPU engine: training and inference at H = 110, D = 1, T = 784, float32, best number of threads for each.

    Two figures in a cell: as it comes / in a process in which subnormal numbers count as 0 for all, which matters most
    on Intel's processors. Takes an hour on two cores that do nothing else meanwhile; 20 minutes of it for the curves,
    30 for the sizes.
    """
    from glstm.bench import cpu as bench
    from glstm.bench.flushing import Flushing
    from glstm.bench.machine import describe
    from glstm.bench.markdown import table as in_markdown
    from glstm.bench.picture import curves as draw
    from glstm.plots import save
    from glstm.storage import make_folder, write_atomically, write_json

    for path in (out, picture):
        if path is not None:
            make_folder(path.parent)
    console = Console()
    cases = [*bench.PROMISES, *(bench.size_cases() if sizes else ())]
    points = list(bench.curve_cases()) if curves else []
    about = describe()
    console.print(f"{about['machine']}; {about['engine']}")
    with progress_bar(console) as progress, Flushing() as flushing:
        task = progress.add_task("", total=len(cases) + len(points))

        def done(result: bench.Result) -> bench.Result:
            progress.advance(task)
            if not console.is_terminal:
                console.print(f"{result.case}: {in_words(result)} times")
            return result

        results, curve = [], []
        for case in cases:
            progress.update(task, description=str(case))
            results.append(done(bench.measure(case, seconds, beside=flushing.contenders(case))))
        for vary, _, case in points:
            progress.update(task, description=str(case))
            curve.append({"vary": vary, **done(bench.measure(case, seconds / 3, without=(bench.EAGER,))).as_json()})
    console.print(table(results))
    figures = [result.as_json() for result in results]
    write_json(out, {**about, "results": figures, "curves": curve})
    write_atomically(out.with_suffix(".md"), ("\n".join(in_markdown(figures)) + "\n").encode())
    console.print(f"written to {out} and {out.with_suffix('.md').name}")
    if picture is not None and curve:
        save(draw(curve), picture)
        console.print(f"drawn in {picture}")


@app.command()
def gpu(
    runs: Annotated[int, typer.Option(min=3, help="Of each; the median counts.")] = 15,
    eager: Annotated[bool, typer.Option(help="Also the eager loop, which takes a while.")] = True,
    out: Annotated[Path, typer.Option(help="Where to write the figures, as JSON.")] = Path("runs/bench/gpu.json"),
) -> None:
    """The CUDA engine through the layer, in training and inference, beside cuDNN's LSTM, which has no gates."""
    import torch

    from glstm.bench import gpu as bench
    from glstm.bench.machine import describe
    from glstm.bench.markdown import gpu_table
    from glstm.storage import make_folder, write_atomically, write_json

    if not torch.cuda.is_available():
        raise UserError("this benchmark needs a CUDA device, and torch sees none here")
    make_folder(out.parent)
    console = Console()
    with progress_bar(console) as progress:
        task = progress.add_task("", total=len(bench.CASES))
        results = []
        for case in bench.CASES:
            progress.update(task, description=str(case))
            results.append(bench.measure(case, runs, eager))
            progress.advance(task)
    lines = gpu_table(results)
    console.print(_from_markdown(lines, figures_from=1))
    write_json(out, {**describe(), "device": torch.cuda.get_device_name(), "results": results})
    write_atomically(out.with_suffix(".md"), ("\n".join(lines) + "\n").encode())
    console.print(f"written to {out} and {out.with_suffix('.md').name}")


@app.command()
def rivals(
    cell: Annotated[
        list[str] | None, typer.Option(help="Only this cell; may be repeated.", show_default="all of them")
    ] = None,
    batches: Annotated[int, typer.Option(min=1, help="Timed on CUDA, after some to warm up.")] = 20,
    runs: Annotated[int, typer.Option(min=1, help="On the CPU.")] = 3,
    cuda: Annotated[bool, typer.Option(help="Measure on CUDA, if there is a device.")] = True,
    cpu: Annotated[bool, typer.Option(help="Measure on the CPU.")] = True,
    beside: Annotated[
        Path | None,
        typer.Option(help="Figures of another machine, as JSON: what is not measured here is taken from there."),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Where to write the figures, as JSON; the table beside it, as Markdown.")
    ] = Path("runs/bench/rivals.json"),
) -> None:
    """Every cell at the shape of sequential MNIST: training on CUDA, if there is a device, and training and inference
    on the CPU.

    Images are random, so no data is needed. An epoch is 600 times the step that was measured. Some minutes on two
    cores.
    """
    import torch

    from glstm.bench import rivals as bench
    from glstm.bench.machine import describe
    from glstm.bench.markdown import rivals_table, rivals_that_failed
    from glstm.cells import CELLS
    from glstm.storage import make_folder, write_atomically, write_json

    if wrong := [name for name in cell or () if name not in CELLS or name in bench.LEFT_OUT]:
        known = ", ".join(name for name in CELLS if name not in bench.LEFT_OUT)
        raise UserError(f"there is no cell {wrong[0]!r:.50} to measure; there are {known}")
    earlier = {} if beside is None else _figures_in(beside)
    make_folder(out.parent)
    console = Console()
    on_cuda = cuda and torch.cuda.is_available()
    found = []
    with progress_bar(console) as progress:
        todo = list(bench.cases(tuple(cell or ())))
        bar = progress.add_task("", total=len(todo))
        for case in todo:
            progress.update(bar, description=case.name)
            found.append(bench.measure(case, batches, runs, on_cuda, cpu).as_json())
            progress.advance(bar)
    found = bench.joined(found, earlier.get("results", []))
    lines, failed = rivals_table(found), rivals_that_failed(found)
    console.print(_from_markdown(lines, figures_from=3))
    for line in failed:
        console.print(line, highlight=False, markup=False)
    device = torch.cuda.get_device_name() if on_cuda else earlier.get("device")
    about = describe()
    about = about if cpu else {name: earlier.get(name, value) for name, value in about.items()}
    shape = {"steps": bench.STEPS, "batch": bench.BATCH, "batches_an_epoch": bench.EPOCH, "inputs": "random images"}
    write_json(out, {**about, "device": device, **shape, "results": found})
    write_atomically(out.with_suffix(".md"), ("\n".join([*lines, *[""] * bool(failed), *failed]) + "\n").encode())
    console.print(f"written to {out} and {out.with_suffix('.md').name}")


def _from_markdown(lines: list[str], figures_from: int) -> Table:
    """The table for a terminal; columns of figures are to the right."""
    from glstm.bench.markdown import cells_of

    rows = Table(*cells_of(lines[0]))
    for column in rows.columns[figures_from:]:
        column.justify = "right"
    for line in lines[2:]:
        rows.add_row(*cells_of(line))
    return rows


def _figures_in(path: Path) -> dict[str, Any]:
    from glstm.bench.rivals import EARLIER

    return read_json(path, "a file of figures that glstm bench rivals wrote", EARLIER)


@app.command()
def choice(
    seconds: Annotated[float, typer.Option(min=0.01, help="For each way and number of threads.")] = 0.3,
    all_rows: Annotated[bool, typer.Option("--all", help="Every row, not only losses over 5 %.")] = False,
) -> None:
    """Dense or sparse: run both over many shapes, and see what the automatic choice costs at worst."""
    from glstm.bench import choice as bench
    from glstm.bench.cpu import thread_counts

    console = Console()
    todo = [(case, threads) for case in bench.cases() for threads in thread_counts()]
    found = []
    with progress_bar(console) as progress:
        task = progress.add_task("", total=len(todo))
        for case, threads in todo:
            progress.update(task, description=f"{case}, H = {case.hidden}")
            found.append(bench.measure(case, threads, seconds))
            progress.advance(task)
    rows = Table("case", "H", "threads", "dense", "sparse", "chosen", "loss")
    for column in rows.columns[1:]:
        column.justify = "right"
    for one in sorted(found, key=lambda one: -one.loss):
        if all_rows or one.loss > 0.05:
            times = (f"{1e3 * value:.3g} ms" for value in (one.dense, one.sparse, one.chosen))
            rows.add_row(str(one.case), str(one.case.hidden), str(one.threads), *times, f"{100 * one.loss:.0f} %")
    console.print(rows)
    slower = sum(one.chosen > 1.05 * one.dense for one in found)
    console.print(f"of {len(found)} choices, {slower} took over 5 % longer than the dense path would have")


def progress_bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def table(results) -> Table:
    """As in the document, and beside each ratio what we ask for."""
    from glstm.bench.cpu import FLUSHING
    from glstm.bench.markdown import NAMES, both, milliseconds

    table = Table("case", *NAMES, "ratio", "asked")
    for column in table.columns[1:]:
        column.justify = "right"
    for result in results:
        cells = []
        for name in NAMES:
            timings = (result.timings.get(name + kind) for kind in ("", FLUSHING))
            cells.append(both(*("" if timing is None else milliseconds(timing.seconds) for timing in timings)))
        asked = (result.case.asked, result.case.asked_flushing)
        table.add_row(
            str(result.case), *cells, in_words(result), both(*("" if goal is None else f"{goal:g}" for goal in asked))
        )
    return table


def in_words(result) -> str:
    """The ratio to the fastest peer, as it comes / with flushing: green where it is what we ask for, red where not."""
    from glstm.bench.markdown import both

    parts = []
    for ratio, goal in zip(
        (result.best_ratio(), result.best_ratio(flushing=True)), (result.case.asked, result.case.asked_flushing)
    ):
        colour = "" if goal is None or ratio is None else "green" if ratio >= goal else "red"
        words = "" if ratio is None else f"{ratio:.1f}"
        parts.append(f"[{colour}]{words}[/]" if colour else words)
    return both(*parts)


@app.command("cortex-m4")
def cortex_m4(
    run: RunFolderArgument,
    threshold: ThresholdOption = None,
    data: DataOption = None,
    out: Annotated[Path, typer.Option(help="Where to write the figures, as JSON.")] = Path("runs/bench/cortex-m4.json"),
) -> None:
    """Exported C on an emulated Cortex-M4 board, beside a plain LSTM of the same size exported the same way.

    Needs gcc-arm-none-eabi with newlib, and qemu-system-arm.
    """
    from dataclasses import asdict

    from glstm.bench.cortex_m4 import dense_twin, measure
    from glstm.bench.machine import describe
    from glstm.runtime import deploy
    from glstm.runtime.export_c import vectors_from, whole_vectors
    from glstm.runtime.int8_states import int8_states
    from glstm.runtime.quantize import dequantized
    from glstm.storage import make_folder, write_json

    make_folder(out.parent)
    model, task, threshold = load_with_task(run, threshold, data)
    x, _ = task.test_samples(slice(0, 3))
    steps, schedule = task.steps, task.schedule()
    runtime = deploy(model, schedule, threshold)
    found = {}
    with progress_bar(Console()) as progress:
        bar = progress.add_task("", total=6)
        for name, one, count in (("LSTM", dense_twin(model), 20), ("this", model, 500)):
            plan = deploy(one, schedule, threshold).plan
            states = int8_states(plan, calibration(task, count))
            eight = dequantized(one, plan, states.weights)
            kinds = {
                "float32": (vectors_from(one, threshold, x, plan.times), None),
                "int8": (vectors_from(eight, threshold, x, plan.times), states.weights),
                "all int8": (whole_vectors(states, x), states),
            }
            for kind, (vectors, int8) in kinds.items():
                progress.update(bar, description=f"{name}, {kind}")
                found[f"{name}, {kind}"] = measure(plan, vectors, int8)
                progress.advance(bar)
    table = Table("", "flash", "state", "stack", "M instr.", "a step", "fewer", "off by")
    table.title = "bytes, and instructions of one sequence"
    for column in table.columns[1:]:
        column.justify = "right"
    table.columns[0].no_wrap = True
    for name, one in found.items():
        dense = found[f"LSTM, {name.split(', ')[1]}"]
        sizes = [f"{number:,}" for number in (one.flash, one.state, one.stack)]
        millions, ratio = f"{one.instructions / 1e6:.2f}", f"{dense.instructions / one.instructions:.1f}"
        table.add_row(name, *sizes, millions, f"{one.per_step(steps):,.0f}", ratio, f"{one.difference:.0e}")
    Console().print(table)
    figures = {name: asdict(one) for name, one in found.items()}
    about = {"steps": steps, "threshold": threshold, "operations": runtime.ops, "openness": runtime.openness}
    write_json(out, {**describe(), **about, **figures})
    Console().print(f"written to {out}")


@app.command()
def streams(
    steps: Annotated[int, typer.Option(min=1, help="Of the stream without an end.")] = 10_000_000,
    seconds: Annotated[float, typer.Option(min=0.01, help="For each contender.")] = 1.5,
    out: Annotated[Path, typer.Option(help="Where to write the figures, as JSON.")] = Path("runs/bench/streams.json"),
) -> None:
    """Streams without an end and with gaps: that they are the layer, what a step costs, in Python, C and a Cortex-M4.

    Needs a C compiler and the extra onnx; the Cortex-M4 is left out where its compiler or emulator is not there.
    """
    from glstm.bench import streams as bench
    from glstm.bench.cortex_m4 import missing_tools
    from glstm.bench.machine import describe
    from glstm.storage import make_folder, write_json

    if steps % (10 * bench.PIECE):
        raise UserError(f"--steps is a multiple of {10 * bench.PIECE:,}, not {steps}")
    make_folder(out.parent)
    console = Console()
    parts = {
        "endless": lambda: bench.endless(steps),
        "irregular": bench.irregular,
        "speed": lambda: bench.speed(seconds),
        "cortex-m4": (lambda: {}) if missing_tools() else bench.on_a_cortex_m4,
    }
    found = {}
    with progress_bar(console) as progress:
        bar = progress.add_task("", total=len(parts))
        for name, part in parts.items():
            progress.update(bar, description=name)
            found[name] = part()
            progress.advance(bar)
    endless, speed = (
        found["endless"],
        Table("open", "known window", "periodic", "times", title="C, microseconds a step"),
    )
    for where in ("python", "c"):
        one = endless[where]
        console.print(
            f"{where}: {steps:,} steps at {one['microseconds_a_step']:.2f} us, within "
            f"{one['largest_difference']:.1e} of the layer",
            highlight=False,
        )
    for name, one in found["irregular"].items():
        both = " and ".join(f"{value:.1e} in {where}" for where, value in one["largest_difference"].items())
        console.print(f"irregular, {name}: within {both}", highlight=False)
    for one in found["speed"]:
        us = one["microseconds_a_step"]
        speed.add_row(
            f"{100 * one['openness']['periodic']:.1f} %", f"{us['known window, C']:.3f}", f"{us['periodic, C']:.3f}",
            f"{one['periodic_by_known']['C']:.2f}",
        )  # fmt: skip
    console.print(speed)
    if found["cortex-m4"]:
        console.print(_sizes(found["cortex-m4"], bench.PERIOD))
    write_json(out, {**describe(), **found})
    console.print(f"written to {out}")


def _sizes(figures: dict, steps: int) -> Table:
    table = Table("on a Cortex-M4", "flash", "state", "stack", "instructions a step", "off by")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, one in figures.items():
        sizes = [f"{one[size]:,}" for size in ("flash", "state", "stack")]
        table.add_row(name, *sizes, f"{one['instructions'] / steps:,.0f}", f"{one['difference']:.0e}")
    return table
