"""The engine as a C program of its own: built for plain machines here, and for ARM where a cross compiler is."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ENGINE = sorted((HERE.parents[1] / "src" / "glstm" / "native").glob("*.c"))
FLAGS = ["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-ffp-contract=fast"]


def build(compiler: str, folder: Path, *options: str) -> Path:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not here")
    # The check itself without optimisation: gcc 12 for ARM trips over it, and nothing in it is to be fast.
    for name, sources, level in (
        ("check.o", [HERE / "check.c"], "-O0"),
        ("check", [*ENGINE, folder / "check.o"], "-O2"),
    ):
        last = ["-c"] if name.endswith(".o") else ["-lm", "-lpthread"]
        command = [compiler, *FLAGS, level, *options, "-o", folder / name, *sources, *last]
        subprocess.run(command, check=True, capture_output=True, text=True)
    return folder / "check"


@pytest.mark.parametrize("compiler", ["cc", "clang"])
def test_the_engine_alone(compiler, tmp_path):
    program = build(compiler, tmp_path)
    result = subprocess.run([program], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "the engine is right\n")


def test_threads_of_the_engine_do_not_race(tmp_path):
    """Under the thread sanitizer; OpenMP's threads are made by openmp.c, whose hand-overs it understands."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not here")
    watched = ["gcc", "-std=gnu99", "-O1", "-g", "-ffp-contract=fast", "-fsanitize=thread"]
    sources = [HERE / "check.c", HERE / "openmp.c", *ENGINE]
    subprocess.run([*watched, "-fopenmp", "-DTHREADS=3", "-c", *sources], check=True, cwd=tmp_path)
    subprocess.run([*watched, "-o", "check", *tmp_path.glob("*.o"), "-lm", "-lpthread"], check=True, cwd=tmp_path)
    result = subprocess.run([tmp_path / "check"], capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "the engine is right\n", "")


def test_the_engine_on_arm(tmp_path):
    program = build("aarch64-linux-gnu-gcc", tmp_path, "-static")
    if emulator := shutil.which("qemu-aarch64"):
        result = subprocess.run([emulator, program], capture_output=True, text=True)
        assert (result.returncode, result.stdout) == (0, "the engine is right\n")
