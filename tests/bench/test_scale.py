"""What docs/scale.md says is what was measured."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FIGURES = json.loads((ROOT / "benchmarks/scale.json").read_text())


@pytest.fixture(scope="module")
def scale() -> Any:
    spec = importlib.util.spec_from_file_location("scale", ROOT / "benchmarks/scale.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_exponents_is_that_of_the_points(scale):
    assert scale.exponents(FIGURES["points"]) == FIGURES["exponents"]
    page = (ROOT / "docs/scale.md").read_text()
    rows = [
        f"| {axis} | {scale.KINDS[kind]} | {own['seconds']:.2f} | {own['bytes']:.2f} |"
        for axis, kinds in FIGURES["exponents"].items()
        for kind, own in kinds.items()
    ]
    assert "\n".join(rows) in page


def test_an_exponent_is_the_slope_of_the_last_points(scale):
    rows = [{"steps": steps, "seconds": 5.0 + 2e-9 * steps**1.5} for steps in (1, 10, 10**9, 10**10, 10**11)]
    assert scale.exponent(rows, "steps", "seconds") == pytest.approx(1.5, abs=1e-3)


def test_a_point_is_measured(scale):
    for axis in ("batch", "networks"):
        row = scale.measure({"axis": axis, "kind": "narrow", "steps": 20, "units": 8, "batch": 2, "networks": 2})
        assert row["seconds"] > 0
        assert row["bytes"] >= 0
