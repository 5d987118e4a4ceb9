"""`glstm explore`: a page on which trained networks can be looked at and tried."""

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from glstm.cli.folders import ScheduleOptions, Subject, load
from glstm.cli.options import DataOption, DeviceOption, grouped, require_own
from glstm.errors import UserError
from glstm.storage import write_atomically

if TYPE_CHECKING:
    from glstm.explore.gather import Shown

MOST_RUNS = 4


@grouped
def explore(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Run folders of 'glstm train', or any that save_pretrained wrote; several are shown side by side.",
            show_default=False,
        ),
    ],
    static: Annotated[
        Path | None,
        typer.Option(
            help="Write the page to this file, which needs no other, instead of serving it.", show_default=False
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Serve on this port; without it, on a free one.", min=1, max=65535, show_default=False),
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")] = False,
    sequences: Annotated[
        int | None,
        typer.Option(
            help="How many sequences to measure errors on; without it, up to 500, in about a minute.",
            min=1,
            show_default=False,
        ),
    ] = None,
    last: Annotated[
        bool, typer.Option("--last", help="Show the last epoch's network, not the best by validation.")
    ] = False,
    data: DataOption = None,
    device: DeviceOption = None,
    *,
    given: ScheduleOptions,
) -> None:
    """Look at trained networks in a browser: which unit opens when, and what a threshold costs and saves.

    The page is served on this machine only, until Ctrl-C, or written by [bold]--static page.html[/]. Errors are
    measured beforehand, at some thresholds, on validation sequences if there are some, else on test sequences. Openness
    and operations are exact at every threshold, and the network itself runs in the page. A folder of save_pretrained
    knows no data: give --steps for its gates alone, or --test for all of it.
    """
    from glstm.explore.page import MARK
    from glstm.training.fabric import available_device

    if len(folders) > MOST_RUNS:
        raise UserError(f"a page shows up to {MOST_RUNS} networks side by side, not {len(folders)}")
    if static is not None and (port is not None or no_browser):
        raise UserError("--static writes a file and serves nothing: leave out --port and --no-browser")
    if static is not None:
        require_own(
            static, (MARK.encode(),), "glstm explore did not write it: choose another --static, or move it away"
        )
    where = available_device(device or "auto")
    names = _names(folders)
    networks = [_shown(load(one, given, data, where, last=last), names[one]) for one in folders]
    text = page_of(networks, sequences)
    if static is not None:
        write_atomically(static, text.encode())
        Console().print(f"{static}", highlight=False, soft_wrap=True, markup=False)
        return
    _serve(text, port or 0, not no_browser)


def _names(folders: list[Path]) -> dict[Path, str]:
    """By the last parts of their paths, as many as tell them apart."""
    parts = 1
    while parts < 9 and len({folder.resolve().parts[-parts:] for folder in folders}) < len(folders):
        parts += 1
    return {folder: "/".join(folder.resolve().parts[-parts:]) for folder in folders}


def _shown(subject: Subject, name: str) -> "Shown":
    from glstm.explore.gather import Shown

    task = subject.task
    times = task.grid() if task is not None and task.own_times else subject.schedule()
    return Shown(name, subject.model, task, times, subject.path)


def page_of(networks: "list[Shown]", sequences: int | None = None) -> str:
    """The page as text, with a bar while errors are measured."""
    from glstm.explore.gather import count_steps, gather
    from glstm.explore.page import page

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("measuring errors", total=count_steps(networks))
        return page(gather(networks, sequences, lambda: progress.advance(bar)))


def _serve(text: str, port: int, open_browser: bool) -> None:
    from glstm.explore.server import ADDRESS, make_server

    server = make_server(text, port)
    address = f"http://{ADDRESS}:{server.server_port}/"
    console = Console()
    console.print(f"{address} (Ctrl-C ends it)", highlight=False, soft_wrap=True)
    if open_browser:
        webbrowser.open(address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        console.print("ended", highlight=False)
    finally:
        server.server_close()
