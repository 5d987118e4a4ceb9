"""Exported C, compiled by real compilers with every warning an error, says what PyTorch says."""

import re
import shutil
import subprocess

import numpy as np
import pytest
import torch
from networks import KINDS, STEPS, deep_network, network

import glstm
from glstm import deploy
from glstm.errors import UserError
from glstm.runtime.export_c import export_c, vectors_from
from glstm.runtime.quantize import dequantized, quantize

V_T = 0.01
STRICT = ["-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-O2"]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover", "-O1"]
COMPILERS = [
    pytest.param(
        command,
        id=" ".join(command),
        marks=pytest.mark.skipif(not shutil.which(command[0]), reason=f"no {command[0]}"),
    )
    for command in (["gcc", "-std=c99"], ["clang", "-std=c99"], ["g++", "-x", "c++"], ["clang++", "-x", "c++"])
]  # fmt: skip
needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")


def exported(model, folder, name="net", int8=False, sequences=4):
    """The files, with what the runtime says to random sequences in the self-test."""
    runtime = deploy(model, STEPS, V_T)
    x = torch.randn(STEPS, sequences, model.layer.input_size, generator=torch.Generator().manual_seed(3))
    quantized = quantize(runtime.plan, x) if int8 else None
    says = dequantized(model, runtime.plan, quantized) if quantized else model
    vectors = vectors_from(says, V_T, x)
    return runtime, vectors, export_c(runtime.plan, folder, name, vectors, quantized)


def built(compiler, folder, *more, name="net"):
    command = [*compiler, *STRICT, *more, f"{name}.c", "-o", "program"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "program"


def run(program, text=""):
    return subprocess.run([program], input=text, capture_output=True, text=True)


@needs_gcc
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("int8", [False, True])
def test_the_self_test_passes(kind, int8, tmp_path):
    exported(deep_network(kind), tmp_path, int8=int8)
    done = run(built(["gcc", "-std=c99"], tmp_path, "-DNET_TEST"))
    assert done.returncode == 0, done.stdout
    assert re.fullmatch(r"net: largest difference from PyTorch( with the same int8 weights)? [-.e\d]+\n", done.stdout)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("int8", [False, True])
def test_every_compiler_takes_it_without_a_warning(compiler, int8, tmp_path):
    exported(network("stack"), tmp_path, int8=int8)
    assert run(built(compiler, tmp_path, "-DNET_TEST")).returncode == 0
    built([*compiler, "-c"], tmp_path)
    built(compiler, tmp_path, "-DNET_MAIN")


@needs_gcc
def test_the_self_test_can_fail(tmp_path):
    _, _, (_, source) = exported(network("g-LSTM"), tmp_path)
    text = source.read_text()
    start = text.index("test_y[] = {") + len("test_y[] = {")
    for wrong in (" 9.0f +", " 0.0f / 0.0f +"):  # also if a number is none
        source.write_text(text[:start] + wrong + text[start:])
        done = run(built(["gcc", "-std=c99"], tmp_path, "-DNET_TEST", "-Wno-div-by-zero"))
        assert done.returncode == 1
        assert "net: output 0 of sequence 0 is" in done.stdout


@needs_gcc
def test_the_self_test_knows_more_than_the_plan(tmp_path):
    """Its figures come from PyTorch: a plan that lost its biases is found out."""
    model = network("g-LSTM")
    x = torch.randn(STEPS, 4, 1)
    wrong = network("g-LSTM")
    with torch.no_grad():
        wrong.layer.bias_ih_l0.zero_()
    export_c(deploy(wrong, STEPS, V_T).plan, tmp_path, "net", vectors_from(model, V_T, x))
    assert run(built(["gcc", "-std=c99"], tmp_path, "-DNET_TEST")).returncode == 1


@needs_gcc
def test_main_reads_samples_from_standard_input(tmp_path):
    runtime, vectors, _ = exported(network("stack"), tmp_path)
    program = built(["gcc", "-std=c99"], tmp_path, "-DNET_MAIN")
    text = " ".join(map(str, vectors.x.flatten().tolist()))
    answers = np.array([line.split() for line in run(program, text).stdout.splitlines()], np.float32)
    assert np.allclose(answers, vectors.y, atol=1e-5)
    done = run(program, " ".join(map(str, vectors.x[0, :20].flatten().tolist())))
    early = done.stdout
    assert done.stderr == "net: the last sequence has only 20 of 60 samples\n"
    expected = runtime(torch.from_numpy(vectors.x[0, :20]))
    assert np.allclose(np.array(early.split(), np.float32), expected, atol=1e-5)
    early = [" ".join(map(str, part.flatten().tolist())) for part in (vectors.x[0, :7], vectors.x[1], vectors.x[2, :1])]
    done = run(program, "\n\n".join(early) + "\n\n")  # an empty line ends a sequence that is shorter
    assert done.stderr == ""
    expected = [runtime(torch.from_numpy(x)) for x in (vectors.x[0, :7], vectors.x[1], vectors.x[2, :1])]
    answers = np.array([line.split() for line in done.stdout.splitlines()], np.float32)
    assert np.allclose(answers, np.stack(expected), atol=1e-5)
    assert run(program).stdout == ""
    for wrong, says in (("1 2 three", "something that is no number"), ("1 2", "ends within a sample of 3 numbers")):
        done = run(program, wrong)
        assert done.returncode == 1
        assert says in done.stderr


@needs_gcc
def test_it_needs_nothing_and_keeps_nothing(tmp_path):
    """Of other libraries only memory functions, which a compiler may call on its own; nothing can be written to."""
    exported(deep_network("stack"), tmp_path)
    subprocess.run(["gcc", "-std=c99", "-O2", "-c", "net.c"], cwd=tmp_path, check=True)
    symbols = subprocess.run(["nm", "net.o"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    kinds = {line.split()[-1]: line.split()[-2] for line in symbols.splitlines()}
    assert {name for name, kind in kinds.items() if kind == "U"} <= {"memcpy", "memset", "memmove", "__stack_chk_fail"}
    assert {kind for kind in kinds.values()} <= set("UTtrRd")
    assert not [
        name for name, kind in kinds.items() if kind == "d" and not name.startswith("net_")
    ]  # pointers in tables
    assert {name for name, kind in kinds.items() if kind == "T"} == {"net_reset", "net_step", "net_output"}


COUNTER = """#include <stdio.h>
static unsigned long long done;
#define GLSTM_COUNT(operations) (done += (operations))
__attribute__((destructor)) static void tell(void) { printf("%llu\\n", done); }
"""


@needs_gcc
@pytest.mark.parametrize("kind", KINDS)
def test_the_operations_counted_are_those_done(kind, tmp_path):
    runtime, vectors, _ = exported(network(kind), tmp_path)
    (tmp_path / "counter.h").write_text(COUNTER)
    command = ["gcc", "-include", "counter.h", "-DNET_TEST", "net.c", "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert int(run(tmp_path / "program").stdout.split()[-1]) == runtime.ops * len(vectors.x)


@needs_gcc
def test_two_networks_live_in_one_program(tmp_path):
    exported(network("g-LSTM"), tmp_path, "one")
    exported(network("LSTM"), tmp_path, "two", int8=True)
    (tmp_path / "both.c").write_text(
        '#include "one.h"\n#include "two.h"\n'
        "int main(void) { one_state a; two_state b; one_reset(&a); two_reset(&b); return (int)(a.step + b.step); }\n"
    )
    command = ["gcc", "-std=c99", *STRICT, "both.c", "one.c", "two.c", "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert run(tmp_path / "program").returncode == 0


@pytest.mark.parametrize(
    ("name", "says"),
    [
        *((name, "a name for C is made of") for name in ("", "Digits", "1st", "a-b", "../x", "a b", "é", "_x")),
        *((name, f"{name} is a keyword of C or C") for name in ("int", "restrict", "class", "while")),
        *((name, f"{name} is the name of the standard header {name}.h") for name in ("string", "math", "time")),
        *((name, f"{name} is a name of the standard library") for name in ("main", "stdin", "uint8_t")),
        *((name, f"{name} is a name that the exported files use") for name in ("glstm", "glstm_layer")),
        *((name, f"{name} is the name of {name}.h, which headers") for name in ("features", "endian", "alloca")),
        ("a" * 300, "a name for C has at most 60 characters, not 300"),
        ("a__b", "a__b is a name with two underscores in a row"),
    ],
)
def test_a_name_that_is_none_in_c_is_refused(name, says, tmp_path):
    with pytest.raises(UserError, match=re.escape(says)):
        exported(network("g-LSTM"), tmp_path, name)
    assert list(tmp_path.iterdir()) == []


@needs_gcc
@pytest.mark.parametrize("int8", [False, True])
def test_sanitizers_find_nothing(int8, tmp_path):
    exported(deep_network("stack"), str(tmp_path), int8=int8)
    done = run(built(["gcc", "-std=c99"], tmp_path, "-DNET_TEST", *SANITIZED))
    assert (done.returncode, done.stderr) == (0, "")


def test_both_files_or_none(tmp_path):
    (tmp_path / "net.c").mkdir()
    with pytest.raises(UserError, match=r"net.c cannot be written: it is a folder"):
        exported(network("g-LSTM"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["net.c"]


def test_int8_is_close_and_small(tmp_path):
    model = network("g-LSTM")
    plan = deploy(model, STEPS, V_T).plan
    x = torch.randn(STEPS, 50, 1)
    int8 = quantize(plan, x)
    exact, close = (deploy(one, STEPS, V_T)(x) for one in (model, dequantized(model, plan, int8)))
    assert 0 < (close - exact).abs().max() < 0.05 * exact.abs().max()
    assert all(np.abs(layer.w_h).max() <= 127 for layer in int8.layers)


def test_scales_follow_the_data():
    """A large weight on an input that is always 0 need not be met: it is cut, where the others gain by finer steps."""
    model = network("LSTM")
    with torch.no_grad():
        model.layer.weight_ih_l0[:, 1] = 20.0
    plan = deploy(model, STEPS, V_T).plan
    x = torch.randn(STEPS, 20, 2)
    x[..., 1] = 0
    quiet, busy = quantize(plan, x), quantize(plan, torch.randn(STEPS, 20, 2))
    assert (busy.layers[0].scale_x == busy.layers[0].scale_x.max()).all()
    assert (quiet.layers[0].scale_x < busy.layers[0].scale_x).mean() > 0.8


@pytest.mark.parametrize(
    ("times", "says"),
    [
        (np.arange(1, STEPS + 1), "Times: a sample every 1, the first at 1; steps are counted."),
        (0.5 * np.arange(STEPS), "Times: a sample every 0.5, the first at 0; in the unit of the times of training."),
        (np.arange(STEPS) ** 2 / 16, "at these, in the unit of the times of training: 0, 0.0625, 0.25, 0.5625, 1, "),
        (np.array([2.5]), "Times: one sample, at 2.5; in the unit of the times of training."),
    ],
)
def test_the_header_says_when_samples_are_due(times, says, tmp_path):
    model = glstm.SequenceModel(glstm.GLSTM(2, 4), torch.nn.Linear(4, 1))
    plan = deploy(model, times, V_T).plan
    export_c(plan, tmp_path, "net", vectors_from(model, V_T, torch.randn(len(times), 1, 2), plan.times))
    header = (tmp_path / "net.h").read_text()
    comment = header[: header.index("*/")]
    assert says in " ".join(comment.split())
    assert max(map(len, comment.splitlines())) <= 120
