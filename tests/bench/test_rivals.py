"""The benchmark of all cells, in a tiny form: what it makes, what it counts, and what it does with one that fails."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from typer.testing import CliRunner

from glstm.bench import rivals
from glstm.bench.markdown import cells_of, learning_table, rivals_table, rivals_that_failed
from glstm.cells import CELLS
from glstm.cells.clockwork import ClockworkRNN
from glstm.cli.main import app
from glstm.errors import UserError


class Broken(ClockworkRNN):
    """A cell that can be made but not run."""

    bench: ClassVar = {"units": 4, "options": {"periods": (1, 2)}}
    way = "not at all"

    def run_layer(self, layer: Any, x: Any, state: Any, valid: Any) -> Any:
        raise RuntimeError("it is broken\nin many ways")


@pytest.fixture
def tiny(monkeypatch):
    for name, value in (("STEPS", 9), ("BATCH", 4), ("UNITS", 10)):
        monkeypatch.setattr(rivals, name, value)


def test_every_cell_is_there_with_one_size():
    found = {case.name: case for case in rivals.cases()}
    assert set(found) == set(CELLS) - {"gated"}
    deep = {name for name, case in found.items() if (case.units, case.layers) != (110, 1)}
    assert deep == {"indrnn", "tcn"}
    assert found["bn-lstm"].options["t_max"] == 784
    assert found["glstm"].way == found["r-lstm"].way == found["gru"].way == "shared operator"
    assert rivals.way_of(torch.nn.GRU) == "cuDNN"
    assert rivals.recipe_for("glstm").head == rivals.recipe_for("r-lstm").head == "linear"


@pytest.mark.usefixtures("tiny")
def test_the_whole_benchmark_in_a_tiny_form(tmp_path, monkeypatch):
    monkeypatch.setitem(CELLS, "broken", Broken)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "new" / "rivals.json"
    command = ["bench", "rivals", "--runs", "1", "--out", str(out)]
    for name in ("lstm", "broken", "bn-lstm", "gru"):
        command += ["--cell", name]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())
    lstm, broken, normalised, gru = found["results"]
    assert (lstm["units"], lstm["size"], lstm["parameters"]) == (10, "10", 4 * 10 * (1 + 10 + 2))
    assert lstm["operations"] == 9 * 10 * (8 + 80 + 29)
    assert normalised["operations"] == 9 * 10 * (8 + 80 + 39)
    assert gru["operations"] == 9 * 10 * (6 + 60 + 21)
    for one in (lstm, normalised, gru):
        assert one["cpu_inference"] > 0
        assert one["cpu_training"] > 0
        assert one["cuda_step"] is None
        assert one["failed"] == {}
    assert (broken["size"], broken["way"]) == ("4", "not at all")
    assert set(broken["failed"]) == {"inference on the CPU", "training on the CPU"}
    assert broken["operations"] > 0
    text = out.with_suffix(".md").read_text()
    assert text.startswith("\n".join(rivals_table(found["results"])))
    assert "- broken, inference on the CPU: RuntimeError: it is broken\n" in text
    assert rivals_that_failed([lstm]) == []


def test_a_cell_that_does_not_exist():
    with pytest.raises(UserError, match="there is no cell 'lstmm' to measure; there are glstm, plstm"):
        app(["bench", "rivals", "--cell", "lstmm"], standalone_mode=False)


def test_a_row_of_the_table():
    case = rivals.Case("slow", 128, 6, {}, rivals.BY_STEPS)
    result = rivals.Result(case, 1234567, 7.89e7, cuda_step=0.02, captured=False, cpu_inference=0.5, cpu_training=10.0)
    row = cells_of(rivals_table([result.as_json()])[2])
    assert row[:5] == ["slow", "6 x 128", f"{rivals.BY_STEPS}, not captured", "1,234,567", "78.9 M"]
    assert row[5:] == ["20 ms", "12.0 s", "500 ms", "100 ms"]
    empty = cells_of(rivals_table([rivals.Result(case).as_json()])[2])
    assert empty[2:] == [rivals.BY_STEPS, "", "", "", "", "", ""]


def test_the_document_shows_the_figures_of_the_benchmark():
    root = Path(__file__).parents[2]
    figures = json.loads((root / "benchmarks" / "rivals.json").read_text())["results"]
    text = (root / "docs" / "rivals.md").read_text()
    assert "\n".join(rivals_table(figures)) in text
    assert [name for name in CELLS if name not in rivals.LEFT_OUT and f"| `{name}`" not in text] == []
    learned = json.loads((root / "benchmarks" / "rivals-learning.json").read_text())["results"]
    assert "\n".join(learning_table(learned)) in text
    for rows in ([row["name"] for row in figures], [row["cell"] for row in learned]):
        assert rows == [name for name in CELLS if name not in rivals.LEFT_OUT]


@pytest.mark.usefixtures("tiny")
def test_figures_of_two_machines_side_by_side(tmp_path):
    first, second = tmp_path / "cpu.json", tmp_path / "both.json"

    def measure(*options: str) -> dict[str, Any]:
        result = CliRunner().invoke(app, ["bench", "rivals", "--cell", "gru", "--no-cuda", *options])
        assert result.exit_code == 0, result.output
        return json.loads(Path(options[-1]).read_text())

    measured = measure("--runs", "1", "--out", str(first))
    there = {**measured, "device": "a device", "results": [{**measured["results"][0], "cuda_step": 0.5}]}
    first.write_text(json.dumps(there))
    joined = measure("--no-cpu", "--beside", str(first), "--out", str(second))
    assert joined["device"] == "a device"
    assert joined["results"] == there["results"]
    first.write_text("[]")
    result = CliRunner().invoke(app, ["bench", "rivals", "--beside", str(first)])
    assert isinstance(result.exception, UserError)
