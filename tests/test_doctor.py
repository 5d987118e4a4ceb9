"""What `glstm doctor` finds: on this machine, and where something is missing or broken."""

import copy
import json
import os
import subprocess
import sys

import pytest
import torch

from glstm import doctor
from glstm.data import DATASETS
from glstm.extras import EXTRA_WITH
from glstm.ops import cpu


def named(report: doctor.Report) -> dict[str, doctor.Finding]:
    return {finding.name: finding for finding in report.findings}


def test_the_cpu_works_here():
    report = doctor.examine()
    found = named(report)
    assert report.works
    assert found["reference"].works
    assert found["C"].works == (cpu.engine() is not None)
    difference = found["reference"].difference
    assert difference is not None
    assert 0 < difference < 1e-5
    assert found["CUDA"].works == (torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0))
    assert f"torch {torch.__version__}" in found


def test_every_optional_package_has_a_purpose():
    assert set(doctor.NEEDED_FOR) == set(EXTRA_WITH), "say in NEEDED_FOR what each optional package is for"
    for package in EXTRA_WITH:
        finding = named(doctor.examine())[package]
        assert finding.works == finding.there
        assert doctor.NEEDED_FOR[package] in finding.says


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    found = doctor.find_spec
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "sklearn" else found(name))
    report = doctor.examine()
    finding = named(report)["sklearn"]
    assert not finding.works
    assert "pip install 'glstm[sklearn]'" in finding.says
    assert report.works


def test_data_sets_are_counted(tmp_path):
    finding = named(doctor.examine(tmp_path))["mnist"]
    assert not finding.works
    assert "0 of 4 files" in finding.says
    assert "glstm data fetch mnist" in finding.says
    dataset = DATASETS["mnist"]
    folder = tmp_path / dataset.folders[0]
    folder.mkdir(parents=True)
    for file in dataset.files:
        (folder / file.name).touch()
    assert named(doctor.examine(tmp_path))["mnist"].works


def test_without_a_compiler_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    finding = named(doctor.examine())["C compiler"]
    assert not finding.works
    assert "install GCC or clang" in finding.says


@pytest.mark.parametrize(
    ("found", "works", "says"), [("2.13.1+cpu", True, "was tested with"), ("2.10.0", False, "newer")]
)
def test_versions_of_torch(monkeypatch, found, works, says):
    monkeypatch.setattr(torch, "__version__", found)
    (finding,) = doctor._torch()
    assert finding.works == works
    assert says in finding.says


def test_an_engine_with_wrong_numbers_is_found(monkeypatch):
    """Weights that only the network under test has: as if the engine had computed with others."""
    numbers = doctor._numbers

    def other(layer, x, backend, device, dtype):
        if dtype is torch.float32:
            layer = copy.deepcopy(layer)
            layer.weight_hh_l0.data.mul_(1.01)
        return numbers(layer, x, backend, device, dtype)

    monkeypatch.setattr(doctor, "_numbers", other)
    report = doctor.examine()
    assert not report.works
    assert "computes wrong numbers" in named(report)["reference"].says


def test_an_engine_that_fails_is_found(monkeypatch):
    def fails(*arguments):
        raise RuntimeError("the engine's own words")

    monkeypatch.setattr(doctor, "_numbers", fails)
    report = doctor.examine()
    assert not report.works
    assert "the engine's own words" in named(report)["reference"].says


def test_an_engine_that_cannot_be_loaded_is_found(tmp_path):
    broken = tmp_path / "engine.so"
    broken.write_bytes(b"no library")
    code = "import json; from glstm.doctor import examine; print(json.dumps(examine().as_dict()))"
    environment = os.environ | {"GLSTM_ENGINE": str(broken)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    report = json.loads(done.stdout)
    engine = next(finding for finding in report["findings"] if finding["name"] == "C")
    assert not report["works"]
    assert "cannot be loaded" in engine["says"]


def test_without_the_engine_the_reference_is_enough(tmp_path):
    environment = os.environ | {"GLSTM_ENGINE": str(tmp_path / "nothing.so")}
    done = subprocess.run(
        [sys.executable, "-m", "glstm", "doctor", "--json"], capture_output=True, text=True, env=environment
    )
    report = json.loads(done.stdout)
    engine = next(finding for finding in report["findings"] if finding["name"] == "C")
    assert (done.returncode, report["works"], engine["works"]) == (0, True, False)
    assert "with GCC or clang there, install it again" in engine["says"]


def test_the_command_prints_a_table_or_json():
    run = [sys.executable, "-m", "glstm", "doctor"]
    done = subprocess.run(run, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    assert "self check" in done.stdout
    for name in ("reference", "CUDA", "mnist", "lightning", "C compiler"):
        assert name in done.stdout
