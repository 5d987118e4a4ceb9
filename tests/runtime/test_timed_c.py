"""Exported streams in time: counted, or with times, in windows; from every compiler, without warnings or faults."""

import copy
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch
from networks import KINDS, deep_network, network, raw_network, raw_sequences
from test_export_c import COMPILERS, COUNTER, STRICT, built, needs_gcc, run
from test_head import none, usual
from test_timed import STEPS, V_T, endless, irregular, quietly

from glstm import deploy
from glstm.errors import UserError
from glstm.runtime.export_c import Times, export_c, vectors_from
from glstm.runtime.plan import constant_bytes
from glstm.runtime.quantize import dequantized, quantize

TICK = 0.001
SANITIZED = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def whole_ticks() -> np.ndarray:
    return np.unique(np.round(irregular() / TICK)) * TICK


def exported(model, folder, x, times=None, int8=False, name="net", **options):
    """Compared after every sample."""
    model = copy.deepcopy(model)
    model.reads = "every" if model.reads == "last" else model.reads
    plan = endless(model, V_T).plan
    steps = len(x) if times is None else len(times)
    quantized = quantize(plan.at(np.arange(1.0, steps + 1) if times is None else times), x[:steps]) if int8 else None
    says = dequantized(model, plan, quantized) if quantized else model
    vectors = vectors_from(says, V_T, x[:steps], times)
    export_c(plan, folder, name, vectors, quantized, times=None if times is None else Times(TICK), **options)
    return plan, vectors


def sequences(model, steps=STEPS) -> torch.Tensor:
    return torch.randn(steps, 3, model.layer.input_size, generator=torch.Generator().manual_seed(3))


@needs_gcc
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("timed", [False, True])
def test_the_self_test_passes_under_sanitizers(kind, timed, tmp_path):
    model = deep_network(kind)
    exported(model, tmp_path, sequences(model), whole_ticks() if timed else None, int8=kind in ("stack", "clocks"))
    done = run(built(["gcc", "-std=c99"], tmp_path, "-DNET_TEST", *SANITIZED))
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.fullmatch(
        r"net: largest difference from PyTorch( with the same int8 weights)? ([-.e\d]+)\n", done.stdout
    )
    assert found is not None
    assert float(found[2]) < 1e-5


@needs_gcc
@pytest.mark.parametrize(("head", "timed", "int8"), [(usual, False, True), (usual, True, False), (none, True, True)])
def test_heads_with_functions(head, timed, int8, tmp_path):
    model = network("gates that come back", head)
    exported(model, tmp_path, sequences(model), whole_ticks() if timed else None, int8)
    done = run(built(["gcc", "-std=c99"], tmp_path, "-DNET_TEST", *SANITIZED))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "GLSTM_HEAD\n" in (tmp_path / "net.c").read_text()


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("timed", [False, True])
def test_every_compiler_takes_it_without_a_warning(compiler, timed, tmp_path):
    model = network("gates that come back", usual)
    windows = None if timed else (50, 20)
    exported(model, tmp_path, sequences(model), whole_ticks() if timed else None, windows=windows)
    assert run(built(compiler, tmp_path, "-DNET_TEST")).returncode == 0
    built([*compiler, "-c"], tmp_path)
    built(compiler, tmp_path, "-DNET_MAIN")


@needs_gcc
def test_it_needs_nothing_and_keeps_nothing(tmp_path):
    model = deep_network("Phased LSTM")
    plan, _ = exported(model, tmp_path, sequences(model), whole_ticks())
    subprocess.run(["gcc", "-std=c99", "-O2", "-c", "net.c"], cwd=tmp_path, check=True)
    symbols = subprocess.run(["nm", "net.o"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    kinds = {line.split()[-1]: line.split()[-2] for line in symbols.splitlines()}
    assert {name for name, kind in kinds.items() if kind == "U"} <= {"memcpy", "memset", "memmove", "__stack_chk_fail"}
    own = {"net_reset", "net_step", "net_output", "net_finished"}
    assert {name for name, kind in kinds.items() if kind == "T"} == own
    text = (tmp_path / "net.c").read_text() + (tmp_path / "net.h").read_text()
    assert "GLSTM_TIMED\n" not in text  # the code has only what this kind of network needs
    assert "glstm_place" not in text
    (tmp_path / "size.c").write_text(
        '#include "net.h"\n#include <stdio.h>\nint main(void) { printf("%d", (int)sizeof(net_state)); }'
    )
    subprocess.run(["gcc", "size.c", "-o", "size"], cwd=tmp_path, check=True)
    assert int(run(tmp_path / "size").stdout) == plan.state_bytes
    arrays = [array for layer in plan.layers for array in layer.constants]
    assert constant_bytes(plan) > sum(array.nbytes for array in arrays)


@needs_gcc
@pytest.mark.parametrize("kind", KINDS)
def test_the_operations_counted_are_those_done(kind, tmp_path):
    model = network(kind)
    x = sequences(model)
    plan, vectors = exported(model, tmp_path, x)
    (tmp_path / "counter.h").write_text(COUNTER)
    command = ["gcc", "-include", "counter.h", "-DNET_TEST", "net.c", "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done, counted = int(run(tmp_path / "program").stdout.split()[-1]), plan.ops_of(STEPS) * len(vectors.x)
    # Of units that closed before the first sample the plan cannot know, and they are read, as zeros.
    assert counted < done < 1.05 * counted if kind == "some never open" else done == counted


@needs_gcc
def test_the_self_test_can_fail(tmp_path):
    model = network("gates that come back")
    exported(model, tmp_path, sequences(model), whole_ticks())
    source = tmp_path / "net.c"
    text = source.read_text()
    start = text.index("test_t[] = {") + len("test_t[] = {")
    for wrong in (" 100000u +", " 900000000u +"):  # another time; one after that of the second sample
        source.write_text(text[:start] + wrong + text[start:])
        done = run(built(["gcc", "-std=c99"], tmp_path, "-DNET_TEST"))
        assert done.returncode == 1
        assert re.search(r"net: output \d of sequence 0 is|net: sample 1 of sequence 0 is not taken", done.stdout)


def text_of(x, times=None) -> str:
    rows = [" ".join(f"{value:.9g}" for value in row) for row in x.tolist()]
    ticks = [""] * len(rows) if times is None else [f"{round(time / TICK)} " for time in times]
    return "\n".join(tick + row for tick, row in zip(ticks, rows, strict=True)) + "\n"


@needs_gcc
@pytest.mark.parametrize("reads", ["last", "every"])
def test_main_reads_times_and_ends_at_an_empty_line(reads, tmp_path):
    model = raw_network("carry", classes=("a", "b", "c"), reads=reads)
    x, times = raw_sequences("carry", steps=STEPS)[: len(whole_ticks())].numpy(), whole_ticks()
    plan = endless(model, V_T, reads).plan
    export_c(plan, tmp_path, "net", vectors_from(model, V_T, torch.from_numpy(x), times), times=Times(TICK))
    program = built(["gcc", "-std=c99"], tmp_path, "-DNET_MAIN")
    parts = [(0, 20), (1, 7), (2, 60)]
    done = run(program, "\n\n".join(text_of(x[:steps, one], times[:steps]) for one, steps in parts))
    ours = np.array([line.split("\t")[0].split() for line in done.stdout.splitlines()], np.float32)
    runtime = endless(model, V_T)
    each = [quietly(runtime.stream(), x[:steps, one], times[:steps]) for one, steps in parts]
    expected = np.concatenate(each) if reads == "every" else np.stack([one[-1] for one in each])
    assert np.allclose(ours, expected, atol=1e-5)
    assert {line.split("\t")[1] for line in done.stdout.splitlines()} <= {"a", "b", "c"}
    assert run(program).stdout == ""
    for wrong, says in (
        ("1 2 3 x", "a sample has a time and 3 numbers, and one in the input has not"),
        ("1 2 3", "a sample has a time and 3 numbers, and one in the input has not"),
        ("5 1 2 3\n5 1 2 3", "times must increase, and not by too much, but one is 5"),
    ):
        done = run(program, wrong)
        assert done.returncode == 1
        assert done.stderr == f"net: {says}\n"


@needs_gcc
def test_main_counts_samples(tmp_path):
    model = network("clocks")
    x = sequences(model)
    exported(model, tmp_path, x)
    program = built(["gcc", "-std=c99"], tmp_path, "-DNET_MAIN")
    done = run(program, text_of(x[:40, 0].numpy()) + "\n" + text_of(x[:9, 1].numpy()))
    ours = np.array([line.split() for line in done.stdout.splitlines()], np.float32)
    runtime = endless(model, V_T)
    expected = [quietly(runtime.stream(), x[:steps, one].numpy()) for one, steps in ((0, 40), (1, 9))]
    assert np.allclose(ours, np.concatenate(expected), atol=1e-5)
    assert run(program, "1 two").stderr == "net: a sample has 1 numbers, and one in the input has not\n"


@needs_gcc
def test_it_says_when_it_has_finished_and_refuses_what_cannot_be(tmp_path):
    model = network("g-LSTM")
    x = sequences(model)
    plan, _ = exported(model, tmp_path, x, whole_ticks())
    last = int(plan.last_closing / TICK)
    longest = plan.scale.clock(TICK).longest
    (tmp_path / "use.c").write_text(
        f"""#include <stdio.h>
#include "net.h"
int main(void) {{
  static net_state s;
  float x[1] = {{0.5f}};
  net_reset(&s);
  printf("%d %d ", net_finished(&s), net_step(&s, x, 0));
  printf("%d ", net_step(&s, x, 0));
  printf("%d %d ", net_step(&s, x, {last - 1}u), net_finished(&s));
  printf("%d ", net_step(&s, x, {last - 1}u + {longest + 1}u));
  printf("%d ", net_step(&s, x, {last + 2}u));
  printf("%d\\n", net_finished(&s));
  return 0;
}}
"""
    )
    subprocess.run(["gcc", "-std=c99", *STRICT, *SANITIZED, "use.c", "net.c", "-o", "use"], cwd=tmp_path, check=True)
    assert run(tmp_path / "use").stdout == "0 1 -1 1 0 -1 0 1\n"


WINDOWS = """#include <stdio.h>
#include "net.h"
int main(void) {
  static net_windows windows;
  float x[NET_INPUTS], y[NET_OUTPUTS];
  int n = 0, i;
  net_windows_reset(&windows);
  while (scanf("%f", x + n) == 1) {
    if (++n < NET_INPUTS) continue;
    n = 0;
    if (!net_windows_step(&windows, x, y)) continue;
    printf("%d", (int)windows.start);
    for (i = 0; i < NET_OUTPUTS; i++) printf(" %.9g", (double)y[i]);
    puts("");
  }
  return (int)(sizeof windows.state / NET_WINDOWS % 4);
}
"""


@needs_gcc
@pytest.mark.parametrize(("length", "hop"), [(60, 7), (60, 60), (25, 40), (13, 1)])
@pytest.mark.parametrize("known", [True, False])
def test_windows_are_the_same_as_from_python(length, hop, known, tmp_path):
    model = network("stack", usual)
    x = sequences(model)
    runtime = deploy(model, 60 if known else None, V_T)
    vectors = vectors_from(model, V_T, x[:60])
    export_c(runtime.plan, tmp_path, "net", vectors, windows=(length, hop))
    (tmp_path / "use.c").write_text(WINDOWS)
    subprocess.run(["gcc", "-std=c99", *STRICT, *SANITIZED, "use.c", "net.c", "-o", "use"], cwd=tmp_path, check=True)
    done = run(tmp_path / "use", text_of(x[:, 0].numpy()))
    ours = np.array([line.split() for line in done.stdout.splitlines()], np.float64)
    windows = runtime.windows(length, hop)
    expected = [[window.start, *window.output] for window in windows.feed(x[:, 0].numpy())]
    assert len(expected) == (STEPS - length) // hop + 1
    assert np.allclose(ours, expected, atol=1e-6)
    header = " ".join((tmp_path / "net.h").read_text().split())
    assert f"{windows.ops:,.0f} operations a sample, {windows.state_bytes:,} bytes" in header


@needs_gcc
def test_both_kinds_of_network_live_in_one_program(tmp_path):
    """Also under the names of the files that their code comes from."""
    known, timed = network("stack"), network("clocks")
    export_c(deploy(known, 60, V_T).plan, tmp_path, "place", vectors_from(known, V_T, sequences(known)[:60]))
    exported(timed, tmp_path, sequences(timed), name="timed")
    (tmp_path / "both.c").write_text(
        '#include "place.h"\n#include "timed.h"\n'
        "int main(void) { place_state a; timed_state b; place_reset(&a); timed_reset(&b); "
        "return (int)(a.step + b.step); }\n"
    )
    command = ["gcc", "-std=c99", *STRICT, "both.c", "place.c", "timed.c", "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert run(tmp_path / "program").returncode == 0


def test_what_cannot_be_exported_is_named(tmp_path):
    model = network("gates that come back")
    x, times = sequences(model), irregular()
    plan = endless(model, V_T).plan

    def export(at=None, samples=x, **options):
        export_c(plan, tmp_path, "net", vectors_from(model, V_T, samples, at), **options)

    for wrong, says in (
        (lambda: export(times), "are for own times, but samples are counted: export it with a tick"),
        (lambda: export(times, times=Times(0.1)), "times must be whole numbers of the tick, 0.1, from 0 on"),
        (
            lambda: export(whole_ticks(), x[: len(whole_ticks())], times=Times(TICK, 5.0)),
            "of the tick, 0.001, from 5 on",
        ),
        (lambda: export(times=Times(0.0)), "the tick of times is a duration above 0"),
        (lambda: export(windows=(0, 3)), r"windows are \(length, hop\), each at least 1 sample, not \(0, 3\)"),
        (lambda: export(times=Times(1.0), windows=(9, 3)), "windows are counted in samples"),
    ):
        with pytest.raises(UserError, match=says):
            wrong()
    known = deploy(model, 60, V_T).plan
    with pytest.raises(ValueError, match="deployed for 60 steps, so a window cannot have 61"):
        export_c(known, tmp_path, "net", vectors_from(model, V_T, x[:60]), windows=(61, 3))
    with pytest.raises(UserError, match="the times of this network's steps are known already, so C is told none"):
        export_c(known, tmp_path, "net", vectors_from(model, V_T, x[:60]), times=Times(1.0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not shutil.which("clang"), reason="no clang")
def test_clang_finds_no_fault_either(tmp_path):
    model = network("stack of Phased LSTMs")
    exported(model, tmp_path, sequences(model), whole_ticks())
    assert run(built(["clang", "-std=c99"], tmp_path, "-DNET_TEST", *SANITIZED)).returncode == 0
