"""Bidirectional networks on whole windows: deployed, in C and with int8 weights, they say what PyTorch says."""

import numpy as np
import pytest
import torch
from networks import STEPS, thresholded
from test_export_c import COMPILERS, SANITIZED, built, needs_gcc, run
from test_head import usual

import glstm
from glstm import deploy
from glstm.errors import UserError
from glstm.runtime.check_onnx import differences
from glstm.runtime.export_c import export_c, vectors_from
from glstm.runtime.export_onnx import export_whole
from glstm.runtime.quantize import dequantized, quantize
from glstm.scaling import Standardize

V_T = 0.01


def both_ways(reads="last", layers=1, missing="refuse", *, raw=False, batch_first=False, **options):
    """Some of its units never open."""
    torch.manual_seed(0)
    inputs = Standardize(2, missing) if raw else None
    if inputs is not None:
        inputs.mean.copy_(torch.tensor([100.0, 0.0]))
    size = 2 if inputs is None else inputs.outputs
    gates = {"mu": (-30, STEPS + 30), "sigma": 6.0}
    layer = glstm.GLSTM(size, 9, layers, bidirectional=True, batch_first=batch_first, **gates)
    for parameter in layer.parameters():
        if parameter.dim() == 2:
            torch.nn.init.uniform_(parameter, -0.9, 0.9)
    model = glstm.SequenceModel(layer, usual(18, 3), reads=reads, inputs=inputs, **options).eval()
    x = torch.randn(STEPS, 4, 2, generator=torch.Generator().manual_seed(3))
    if raw:
        x[..., 0] += 100.0
    if missing != "refuse":
        x[torch.rand(x.shape) < 0.3] = torch.nan
    return model, x


@pytest.mark.parametrize("reads", ["last", "every", "mean", "max"])
@pytest.mark.parametrize("layers", [1, 2])
def test_whole_windows_and_shorter_ones(reads, layers):
    model, x = both_ways(reads, layers, "mask", raw=True)
    runtime = deploy(model, STEPS, V_T)
    assert max(runtime.units) < 9
    assert len(runtime.units) == 2 * layers
    for steps in (STEPS, 33, 1):
        assert torch.allclose(runtime(x[:steps]), thresholded(model, V_T, x[:steps]), atol=1e-6)
    assert torch.allclose(runtime(x[:, 1]), runtime(x)[..., 1, :], atol=1e-6)
    above = 2 * (layers - 1) * glstm.count_ops(STEPS, 9, 18)
    assert runtime.lstm_ops == 2 * glstm.count_ops(STEPS, 9, 4) + above


def test_batches_first_and_chosen_steps():
    model, x = both_ways("every", batch_first=True)
    x = x.transpose(0, 1)
    expected = thresholded(model, V_T, x)
    assert torch.allclose(deploy(model, STEPS, V_T)(x), expected, atol=1e-6)
    chosen = deploy(model, STEPS, V_T, reads=[7, 40])
    assert torch.allclose(chosen(x), expected[:, [6, 39]], atol=1e-6)
    assert chosen.plan.every  # so that exported C says it of all steps


def test_what_only_a_stream_could_do_is_refused(tmp_path):
    model, x = both_ways()
    runtime, vectors = deploy(model, STEPS, V_T), vectors_from(model, V_T, x)
    for use in (
        runtime.stream,
        lambda: runtime.windows(20, 5),
        lambda: export_c(runtime.plan, tmp_path, "net", vectors, windows=(20, 5)),
    ):
        with pytest.raises(ValueError, match="no sample can be taken as it comes: call the runtime with whole windows"):
            use()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"reads as in the model, 'last', .* not 'every'"):
        deploy(model, STEPS, reads="every")
    with pytest.raises(ValueError, match=r"reads as in the model, 'every', .* not 'last'"):
        deploy(both_ways("every")[0], STEPS, reads="last")


def written(model, x, folder, int8=False):
    plan = deploy(model, STEPS, V_T).plan
    quantized = quantize(plan, x) if int8 else None
    says = dequantized(model, plan, quantized) if quantized else model
    vectors = vectors_from(says, V_T, x)
    export_c(plan, folder, "net", vectors, quantized)
    return plan, vectors


CASES = [
    ("last", 1, "refuse", False, False),
    ("last", 2, "refuse", True, True),
    ("every", 1, "refuse", False, True),
    ("mean", 1, "carry", True, False),
    ("max", 2, "mask", True, True),
]


@needs_gcc
@pytest.mark.parametrize(("reads", "layers", "missing", "raw", "int8"), CASES)
def test_c_checks_itself(reads, layers, missing, raw, int8, tmp_path):
    plan, _ = written(*both_ways(reads, layers, missing, raw=raw), tmp_path, int8)
    done = run(built(["gcc", "-std=c99"], tmp_path, "-DNET_TEST", *SANITIZED))
    assert done.returncode == 0, done.stdout + done.stderr
    header = (tmp_path / "net.h").read_text()
    assert "void net_run(net_state *state, const float *x, float *y);" in header
    assert "net_step" not in header
    assert (f"float room[{plan.room}];" in header) == bool(plan.room)
    assert (plan.room > 0) == (layers > 1 or reads == "every" or raw)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_compiler_takes_it(compiler, tmp_path):
    """And its program reads windows and names the class of each step."""
    model, x = both_ways("every", 2, raw=True, classes=("a", "b", "c"))
    _, vectors = written(model, x, tmp_path)
    done = run(built(compiler, tmp_path, "-DNET_MAIN"), " ".join(f"{one:.9g}" for one in vectors.x.flatten().tolist()))
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    ours = np.array([numbers.split() for numbers, _ in rows], np.float32)
    expected = vectors.y.reshape(-1, 3)
    assert np.allclose(ours, expected, atol=1e-5)
    assert [name for _, name in rows] == ["abc"[best] for best in expected.argmax(1)]
    done = run(tmp_path / "program", "1 2 3")
    assert done.returncode == 1
    assert "the input ends within a window of 120 numbers" in done.stderr


def test_onnx_has_no_single_step():
    model, _ = both_ways("mean", 2, "carry", raw=True)
    assert max(differences(model, export_whole(model), None, STEPS).values()) < 1e-5


def test_a_self_test_of_other_windows_is_refused(tmp_path):
    model, x = both_ways()
    plan = deploy(model, STEPS, V_T).plan
    with pytest.raises(UserError, match="the self-test's sequences must have shape"):
        export_c(plan, tmp_path, "net", vectors_from(model, V_T, x[:20]))
