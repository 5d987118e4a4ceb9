"""Exported C as an Arduino library and as a module for Zephyr and CMake, compiled here and for a Cortex-M4."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from networks import STEPS, network

from glstm import GLSTM, GatedLSTM, Periodic, SequenceModel, deploy
from glstm.bench.cortex_m4 import CPU
from glstm.errors import UserError
from glstm.runtime.export_c import Times, export_c, vectors_from

V_T = 0.01
STRICT = ["-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-O2"]
MAIN = "#include <Arduino.h>\nSerialPort Serial;\nint main() { setup(); for (;;) loop(); }\n"
ARDUINO = Path(__file__).parent / "arduino"
needs_gcc = pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
needs_arm = pytest.mark.skipif(not shutil.which("arm-none-eabi-g++"), reason="no arm-none-eabi-g++")
needs_cmake = pytest.mark.skipif(not shutil.which("cmake"), reason="no cmake")


def two_ways() -> SequenceModel:
    torch.manual_seed(0)
    layer = GLSTM(2, 5, bidirectional=True, mu=(1, STEPS), sigma=9.0)
    return SequenceModel(layer, torch.nn.Linear(10, 3), classes=["a", "b", "ü"]).eval()


def every() -> SequenceModel:
    model = network("wide gates")
    return SequenceModel(model.layer, model.head, reads="every").eval()


MODELS = {"last": lambda: network("stack"), "every": every, "two ways, with classes": two_ways}


def exported(model, folder, layout):
    plan = deploy(model, STEPS, V_T).plan
    x = torch.randn(STEPS, 3, plan.inputs, generator=torch.Generator().manual_seed(3))
    vectors = vectors_from(model, V_T, x)
    return vectors, export_c(plan, folder, "net", vectors, layout=layout)


def done(*command, cwd, text=None) -> str:
    made = subprocess.run([str(word) for word in command], cwd=cwd, input=text, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert made.stderr == ""
    return made.stdout


def sketched(folder, words) -> list[str]:
    """The lines that the example answers, compiled here, when it reads these words."""
    library = folder / "net"
    (folder / "main.cpp").write_text(MAIN)
    sketch = ["-x", "c++", "-include", "Arduino.h", library / "examples/serial/serial.ino", "main.cpp"]
    done("gcc", "-std=c99", *STRICT, "-c", library / "src/net.c", "-o", "net.o", cwd=folder)
    including = [f"-I{ARDUINO}", f"-I{library}/src"]
    done("g++", *STRICT, *including, *sketch, "-x", "none", "net.o", "-o", "sketch", cwd=folder)
    return done("./sketch", cwd=folder, text="\n".join(words) + "\n").splitlines()


@needs_gcc
@pytest.mark.parametrize("kind", MODELS)
def test_the_arduino_example_says_what_pytorch_says(kind, tmp_path):
    model = MODELS[kind]()
    vectors, files = exported(model, tmp_path, "arduino")
    library = tmp_path / "net"
    assert {str(file.relative_to(library)) for file in files} == {
        "library.properties", "keywords.txt", "src/net.h", "src/net.c", "examples/serial/serial.ino",
    }  # fmt: skip
    said = sketched(tmp_path, [str(one) for one in vectors.x.flatten().tolist()])
    rows = [line.split()[: vectors.y.shape[-1]] for line in said]
    assert np.abs(np.array(rows, np.float64) - vectors.y.reshape(len(rows), -1)).max() < 1e-5
    if model.classes:
        assert [line.split()[-1] for line in said] == [model.classes[n] for n in vectors.y.argmax(1)]


@needs_gcc
def test_the_arduino_example_of_a_stream_in_time(tmp_path):
    """It takes a time before each sample, and answers to each."""
    torch.manual_seed(0)
    layer = GatedLSTM(2, 6, gate=Periodic(mu=(0, 9), sigma=2.0, tau=(10, 20)))
    model = SequenceModel(layer, torch.nn.Linear(6, 3), reads="every").eval()
    ticks = torch.randint(1, 9, (40,)).cumsum(0)
    vectors = vectors_from(model, V_T, torch.randn(40, 1, 2), ticks / 2)
    export_c(deploy(model, threshold=V_T).plan, tmp_path, "net", vectors, times=Times(tick=0.5), layout="arduino")
    words = [str(word) for t, x in zip(ticks.tolist(), vectors.x[0].tolist(), strict=True) for word in (t, *x)]
    rows = [line.split() for line in sketched(tmp_path, words)]
    assert np.abs(np.array(rows, np.float64) - vectors.y[0]).max() < 1e-5
    assert "net_finished\tKEYWORD2\n" in (tmp_path / "net/keywords.txt").read_text()


@needs_arm
def test_the_arduino_library_compiles_for_a_cortex_m4(tmp_path):
    exported(network("stack"), tmp_path, "arduino")
    source, sketch = (tmp_path / "net" / name for name in ("src/net.c", "examples/serial/serial.ino"))
    done("arm-none-eabi-gcc", *CPU, "-std=c99", *STRICT, "-c", source, cwd=tmp_path)
    including = ["-include", "Arduino.h", f"-I{ARDUINO}", f"-I{tmp_path}/net/src"]
    done("arm-none-eabi-g++", *CPU, *STRICT, *including, "-x", "c++", "-c", sketch, cwd=tmp_path)


def test_what_an_arduino_editor_reads_is_complete(tmp_path):
    exported(network("g-LSTM"), tmp_path, "arduino")
    lines = (tmp_path / "net/library.properties").read_text().splitlines()
    fields = dict(line.split("=", 1) for line in lines)
    assert list(fields) == [
        "name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url", "architectures",
        "includes",
    ]  # fmt: skip
    assert (fields["name"], fields["includes"], fields["category"]) == ("net", "net.h", "Data Processing")
    assert "net_step\tKEYWORD2\n" in (tmp_path / "net/keywords.txt").read_text()


ARM = [
    "-DCMAKE_SYSTEM_NAME=Generic", "-DCMAKE_C_COMPILER=arm-none-eabi-gcc",
    "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY",
]  # fmt: skip
ZEPHYR = """cmake_minimum_required(VERSION 3.13)
project(firmware C)
function(zephyr_library_named name)
  add_library(${name} STATIC)
  set(ZEPHYR_CURRENT_LIBRARY ${name} PARENT_SCOPE)
endfunction()
function(zephyr_library_sources)
  target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()
function(zephyr_include_directories)
  target_include_directories(${ZEPHYR_CURRENT_LIBRARY} PUBLIC ${ARGN})
endfunction()
set(ZEPHYR_CURRENT_MODULE_DIR ${CMAKE_CURRENT_SOURCE_DIR}/net)
set(CONFIG_GLSTM_NET y)
add_subdirectory(net)
"""


@needs_cmake
@needs_arm
@pytest.mark.parametrize(("inside_zephyr", "toolchain"), [(False, []), (True, ARM)])
def test_the_module_builds(inside_zephyr, toolchain, tmp_path):
    """By plain CMake here; for a Cortex-M4 as Zephyr calls it, whose functions are the few defined above."""
    exported(network("stack"), tmp_path, "zephyr")
    (tmp_path / "CMakeLists.txt").write_text(ZEPHYR)
    flags = " ".join([*(CPU if toolchain else []), *STRICT])
    source = tmp_path if inside_zephyr else tmp_path / "net"
    configure = ["-S", source, "-B", "build", f"-DCMAKE_C_FLAGS={flags}", *toolchain]
    done("cmake", *configure, cwd=tmp_path)
    done("cmake", "--build", "build", cwd=tmp_path)
    assert list((tmp_path / "build").rglob("libnet.a"))


def test_zephyr_finds_the_module(tmp_path):
    exported(network("g-LSTM"), tmp_path, "zephyr")
    module = (tmp_path / "net/zephyr/module.yml").read_text()
    assert module == "name: net\nbuild:\n  cmake: .\n  kconfig: Kconfig\n"
    assert (tmp_path / "net/Kconfig").read_text().startswith("config GLSTM_NET\n\tbool ")


def test_a_folder_is_written_whole_or_not_at_all(tmp_path):
    (tmp_path / "net/src/net.c").mkdir(parents=True)
    with pytest.raises(UserError, match=r"net.c cannot be written: it is a folder"):
        exported(network("g-LSTM"), tmp_path, "arduino")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "net",
        "net/src",
        "net/src/net.c",
    ]
    with pytest.raises(UserError, match="a layout is one of plain, arduino, zephyr, not 'platformio'"):
        exported(network("g-LSTM"), tmp_path, "platformio")
