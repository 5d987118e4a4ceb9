"""The benchmark of streams, in a tiny form: what it compares is the same, and it says what it found."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from glstm.bench import cortex_m4, streams
from glstm.cli.main import app

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no cc")


def test_both_networks_are_as_open():
    for share in streams.SHARES:
        known, again = streams.deploy(streams.one_shot(share), streams.PERIOD, streams.V_T), streams.periodic(share)
        assert known.openness == pytest.approx(share, rel=0.02)
        assert streams.timed(again).openness == pytest.approx(share, rel=0.05)


def test_a_tiny_run(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "PIECE", 200)
    monkeypatch.setattr(streams, "SHARES", (0.05,))
    monkeypatch.setattr(cortex_m4, "missing_tools", lambda: ["an emulator"])
    monkeypatch.setattr(streams.irregular, "__defaults__", (300, 0.05))
    out = tmp_path / "streams.json"
    done = CliRunner().invoke(app, ["bench", "streams", "--steps", "4000", "--seconds", "0.02", "--out", str(out)])
    assert done.exit_code == 0, done.output
    found = json.loads(out.read_text())
    for where in ("python", "c", "onnx"):
        assert where == "onnx" or found["endless"][where]["largest_difference"] < 1e-5
        for one in found["irregular"].values():
            assert one["largest_difference"][where] < 1e-5
    assert found["endless"]["largest_output"] > 0.01
    assert set(found["speed"][0]["periodic_by_known"]) == {"C", "Python"}
    assert CliRunner().invoke(app, ["bench", "streams", "--steps", "4001"]).exit_code == 1
