"""What a run shows while it trains."""

import io
from dataclasses import replace

from rich.console import Console

from glstm.data import Adding
from glstm.training.display import EpochRow, Lines, LiveTable, LossRow, display_for
from glstm.training.settings import Settings

SETTINGS = Settings(epochs=4, batch=10)
ROW = EpochRow(2, train_loss=0.25, test_loss=0.2, test_error=0.125, mean_k=0.5, open_share=0.75, seconds=1.0,
               test_seconds=0.5)  # fmt: skip
OTHER = replace(ROW, train_loss=0.75, test_error=0.375, mean_k=0.1)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def play(display, rows: list[EpochRow]) -> None:
    display.start(
        [SETTINGS.changed(seed=41 + n) for n in range(len(rows))], Adding(10, train_size=50), [[]] * len(rows)
    )
    display.loss([LossRow(2, 4, 0.3125)] * len(rows))
    display.batch(2, 5, 5)
    display.epoch(rows)
    display.stop()


def test_a_terminal_shows_the_latest_figures_and_the_way_left():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    display = display_for(console)
    assert isinstance(display, LiveTable)
    play(display, [ROW])
    shown = text(console)
    for word in ("test mse", "0.3125", "1.25e-01", "0.500", "75.0 %", "epoch 2/4", "50 %", "left"):
        assert word in shown, word


def test_elsewhere_there_is_a_line_an_epoch():
    console = Console(file=io.StringIO(), width=30)
    display = display_for(console)
    assert isinstance(display, Lines)
    play(display, [ROW])
    lines = text(console).splitlines()
    assert len(lines) == 1  # never broken, however narrow
    assert lines[0].startswith("epoch 2/4: loss 0.25, mse 1.25e-01, mean k 0.500, 1.5 s, 0:00:0")


def test_a_long_epoch_gives_a_sign_of_life():
    console = Console(file=io.StringIO(), width=100)
    display = Lines(console, every=0.0)
    display.start([SETTINGS], Adding(10, train_size=50), [[]])
    display.batch(1, 1, 5)
    display.loss([LossRow(1, 2, 0.3125)])
    display.batch(1, 2, 5)
    assert text(console).splitlines() == ["epoch 1, batch 1/5", "epoch 1, batch 2/5: loss 0.3125"]


def test_several_runs_have_a_line_each_on_a_terminal():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    play(display_for(console), [ROW, OTHER])
    last = text(console).rsplit("seed", 1)[1]
    for words in (("41", "0.3125", "1.25e-01", "0.500"), ("42", "0.3125", "3.75e-01", "0.100")):
        assert any(all(word in line for word in words) for line in last.splitlines()), words


def test_several_runs_are_a_mean_and_a_range_elsewhere():
    console = Console(file=io.StringIO(), width=30)
    play(display_for(console), [ROW, OTHER])
    (line,) = text(console).splitlines()
    assert line.startswith(
        "epoch 2/4: loss 0.5 (0.25 to 0.75), mse 2.50e-01 (1.25e-01 to 3.75e-01), mean k 0.300 (0.100 to 0.500), 1.5 s"
    )


def test_networks_without_gates_show_none_and_those_that_skip_show_how_much():
    for row, shown in (
        (replace(ROW, mean_k=None, open_share=None), "mse 1.25e-01, 1.5 s"),
        (replace(ROW, mean_k=None, open_share=0.25), "mse 1.25e-01, updates 25.0 %, 1.5 s"),
    ):
        console = Console(file=io.StringIO(), width=100)
        play(display_for(console), [row])
        assert shown in text(console)
        terminal = Console(file=io.StringIO(), force_terminal=True, width=100)
        play(display_for(terminal), [row])
        assert ("25.0 %" in text(terminal)) == (row.open_share is not None)
