"""Networks that take and return raw numbers do so after deployment as before: whole, in streams, in C and in ONNX."""

import copy
import json
import subprocess

import numpy as np
import pytest
import torch
from networks import MEANS, OUTPUT_SCALES, SCALES, STEPS, raw_network, raw_sequences, thresholded
from test_export_c import COMPILERS, STRICT, built, needs_gcc, run

from glstm import GLSTM, LSTM, SequenceModel, deploy
from glstm.errors import StreamWarning, UserError
from glstm.models import deep_head, linear_head
from glstm.runtime.check_onnx import differences, session
from glstm.runtime.export_c import export_c, vectors_from
from glstm.runtime.export_onnx import export_step, export_whole
from glstm.runtime.plan import constant_bytes
from glstm.runtime.quantize import dequantized, quantize
from glstm.scaling import Rescale, Standardize

V_T = 0.01
ODD_NAMES = ("what??!", 'a "b" \\n', "Grüße 1")


def ends_with_relu(inputs, outputs):
    return torch.nn.Sequential(torch.nn.Linear(inputs, outputs), torch.nn.ReLU())


WAYS = {
    "raw": ("refuse", {}),
    "carried": ("carry", {}),
    "masked": ("mask", {}),
    "rescaled": ("refuse", {"rescaled": True}),
    "deep, rescaled": ("carry", {"rescaled": True, "head": lambda i, o: deep_head(i, o, width=17)}),
    "relu, rescaled": ("refuse", {"rescaled": True, "head": ends_with_relu}),
    "every": ("mask", {"reads": "every"}),
    "mean": ("mask", {"reads": "mean", "rescaled": True}),
    "max": ("carry", {"reads": "max"}),
    "mean of one LSTM": ("refuse", {"reads": "mean", "layer": LSTM, "layers": 1}),
    "max of an LSTM": ("carry", {"reads": "max", "layer": LSTM}),
    "classes": ("carry", {"classes": ODD_NAMES}),
    "batch first, every": ("carry", {"reads": "every", "batch_first": True, "rescaled": True}),
    "batch first, mean": ("mask", {"reads": "mean", "batch_first": True}),
}


def made(way) -> tuple[SequenceModel, torch.Tensor]:
    missing, options = WAYS[way]
    return raw_network(missing, **options), raw_sequences(missing)


def said(model, x, times=None) -> torch.Tensor:
    """By the model, for x (T, B, D), with steps in front, in double precision."""
    model, first = copy.deepcopy(model).double(), model.layer.batch_first
    y = thresholded(model, V_T, x.double().transpose(0, 1) if first else x.double(), times)
    return y.transpose(0, 1) if first and y.dim() == 3 else y


def off(model, ours, expected) -> float:
    """The largest difference in the unit of the outputs, less what float32 cannot say of a number far from 0."""
    error = np.abs(np.asarray(ours, np.float64) - np.asarray(expected)) - 2.4e-7 * np.abs(np.asarray(expected))
    return float((error / (1.0 if model.outputs is None else OUTPUT_SCALES.double().numpy())).max())


@pytest.mark.parametrize("way", WAYS)
def test_whole_sequences(way):
    model, x = made(way)
    runtime = deploy(model, STEPS, V_T)
    assert runtime.plan.inputs == 3
    given = x.transpose(0, 1) if model.layer.batch_first else x
    expected = said(model, x)
    ours = runtime(given)
    assert ours.shape == model(given).shape
    ours = ours.transpose(0, 1) if ours.dim() == 3 and model.layer.batch_first else ours
    assert off(model, ours, expected) < 3e-6
    one = runtime(x[:, 1].numpy())
    assert off(model, one, expected[..., 1, :]) < 3e-6
    shorter = runtime(given[:, :23] if model.layer.batch_first else given[:23])
    shorter = shorter.transpose(0, 1) if shorter.dim() == 3 and model.layer.batch_first else shorter
    assert off(model, shorter, said(model, x[:23])) < 3e-6


@pytest.mark.parametrize("way", WAYS)
def test_streams(way, tmp_path):
    """At every step a stream says what the model says of the sequence so far, also after its state was saved."""
    model, x = made(way)
    runtime = deploy(model, STEPS, V_T)
    stream = runtime.stream()
    assert runtime.memory.state == stream._words.nbytes + stream._numbers.nbytes
    for sequence in (1, 0):
        stream.reset()
        for number, sample in enumerate(x[:, sequence].numpy(), 1):
            if number == 20:
                stream.save(tmp_path / "state")
                stream = runtime.stream()
                stream.load(tmp_path / "state")
            y = stream.step(sample)
            if number in (1, 2, 19, 20, 40, STEPS):
                now = said(model, x[:number, sequence : sequence + 1])[-1]
                now = now[0] if now.dim() == 2 else now
                assert off(model, stream.output(), now) < 3e-6
                assert (y is not None) == (model.reads == "every" or number == STEPS)
                assert y is None or off(model, y, now) < 3e-6
    before = stream._numbers.copy()
    with pytest.warns(StreamWarning, match="later samples are ignored"):
        stream.step(MEANS + SCALES)  # one too many
    assert np.array_equal(stream._numbers, before)


def exported(model, x, folder, int8=False, times=STEPS, name="net"):
    plan = deploy(model, times, V_T).plan
    quantized = quantize(plan, x) if int8 else None
    says = dequantized(model, plan, quantized) if quantized else model
    vectors = vectors_from(says, V_T, x, plan.times)
    export_c(plan, str(folder), name, vectors, quantized)
    return plan, vectors


@needs_gcc
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("int8", [False, True])
def test_c_checks_itself(way, int8, tmp_path):
    model, x = made(way)
    plan, _ = exported(model, x, tmp_path, int8)
    done = run(built(["gcc", "-std=c99"], tmp_path, "-DNET_TEST"))
    assert done.returncode == 0, done.stdout
    (tmp_path / "size.c").write_text(
        '#include "net.h"\n#include <stdio.h>\nint main(void) { printf("%d", (int)sizeof(net_state)); }'
    )
    subprocess.run(["gcc", "size.c", "-o", "size"], cwd=tmp_path, check=True)
    assert int(run(tmp_path / "size").stdout) == plan.state_bytes
    assert "raw numbers" in (tmp_path / "net.h").read_text()
    assert ("NAN is a missing value" in (tmp_path / "net.h").read_text()) == (plan.missing != "refuse")


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("way", ["classes", "mean", "every"])
def test_every_compiler_takes_it(compiler, way, tmp_path):
    model, x = made(way)
    exported(model, x, tmp_path)
    assert run(built(compiler, tmp_path, "-DNET_TEST")).returncode == 0
    built([*compiler, "-c"], tmp_path)
    built(compiler, tmp_path, "-DNET_MAIN")


def move_mean(model, part: str, channel: int) -> None:
    """By a thousandth of its unit."""
    module = getattr(model, part)
    module.mean[channel] += 0.001 * module.scale[channel]


@needs_gcc
def test_the_self_test_sees_a_wrong_mean_and_a_small_unit(tmp_path):
    """An output in the unit 1e-6 must be right to 1e-11; a mean that is off by a thousandth of its unit is found."""
    model, x = made("rescaled")
    vectors = vectors_from(model, V_T, x)
    for part, channel in (("inputs", 0), ("outputs", 1)):
        wrong = copy.deepcopy(model)
        move_mean(wrong, part, channel)
        export_c(deploy(wrong, STEPS, V_T).plan, tmp_path, "net", vectors)
        assert run(built(["gcc", "-std=c99"], tmp_path, "-DNET_TEST")).returncode == 1


@needs_gcc
def test_main_takes_nan_and_names_the_class(tmp_path):
    model, x = made("classes")
    _, vectors = exported(model, x, tmp_path)
    program = built(["gcc", "-std=c99", "-trigraphs"], tmp_path, "-DNET_MAIN", "-Wno-trigraphs")
    done = run(program, " ".join(f"{value:.9g}" for value in vectors.x.flatten().tolist()))
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert np.allclose([list(map(float, numbers.split())) for numbers, _ in rows], vectors.y, atol=1e-5)
    assert [name for _, name in rows] == [ODD_NAMES[best] for best in vectors.y.argmax(1)]


@needs_gcc
def test_main_of_a_network_that_reads_every_step(tmp_path):
    model, x = made("every")
    _, vectors = exported(model, x, tmp_path)
    program = built(["gcc", "-std=c99"], tmp_path, "-DNET_MAIN")
    text = " ".join(f"{value:.9g}" for value in vectors.x.flatten().tolist()[: 3 * (STEPS + 20)])
    done = run(program, text)
    ours = np.array([line.split() for line in done.stdout.splitlines()], np.float32)
    assert np.allclose(ours, vectors.y.reshape(-1, 3)[: STEPS + 20], atol=1e-5)
    assert done.stderr == "net: the last sequence has only 20 of 60 samples\n"


NAMES = [
    *ODD_NAMES,
    "??/??'??=",
    "\x07bell\t1",
    "7\x017",
    "語😀9",
    "%s %d",
    "",
]


@needs_gcc
@pytest.mark.parametrize("trigraphs", [[], ["-trigraphs", "-Wno-trigraphs"]])
def test_any_name_of_a_class_arrives(trigraphs, tmp_path):
    model = SequenceModel(GLSTM(1, 4, mu=(1, 9), sigma=3.0), linear_head(4, len(NAMES)), classes=NAMES).eval()
    exported(model, torch.randn(9, 1, 1), tmp_path, times=9)
    (tmp_path / "tell.c").write_text(
        '#include <stdio.h>\n#include "net.h"\n'
        "int main(void) {\n  int n;\n"
        "  for (n = 0; n < NET_OUTPUTS; n++) fputs(net_classes[n], stdout), putchar(0);\n  return 0;\n}\n"
    )
    for compiler in (["gcc", "-std=c99"], ["g++", "-x", "c++"]):
        command = [*compiler, *STRICT, *trigraphs, "tell.c", "net.c", "-o", "program"]
        subprocess.run(command, cwd=tmp_path, check=True)
        said = subprocess.run([tmp_path / "program"], capture_output=True).stdout
        assert said.decode().split("\0")[:-1] == NAMES


def test_what_a_network_does_not_do_costs_nothing(tmp_path):
    plain = raw_network()
    plain.inputs = None
    x = torch.randn(STEPS, 2, 3)
    plan, _ = exported(plain, x, tmp_path)
    text = (tmp_path / "net.c").read_text() + (tmp_path / "net.h").read_text()
    assert "#define GLSTM_RAW\n" not in text
    assert "#define GLSTM_POOL\n" not in text
    assert "_classes" not in text
    bare = constant_bytes(plan), plan.state_bytes
    for missing, carried in (("refuse", 0), ("carry", 12)):
        model = raw_network(missing)
        assert constant_bytes(deploy(model, STEPS, V_T).plan) == bare[0] + 24
        assert deploy(model, STEPS, V_T).plan.state_bytes == bare[1] + carried
    pooled = deploy(raw_network("carry", reads="mean"), STEPS, V_T).plan
    assert pooled.state_bytes == bare[1] + 12 + 4 * pooled.layers[-1].units


@pytest.mark.parametrize("way", WAYS)
def test_onnx(way):
    model, x = made(way)
    model.layer.threshold = V_T
    whole, step = export_whole(model), export_step(model)
    assert max(differences(model, whole, step, STEPS).values()) < 1e-5
    given = x.transpose(0, 1) if model.layer.batch_first else x
    ours = np.asarray(session(whole).run(None, {"x": given.numpy()})[0])
    ours = ours.swapaxes(0, 1) if ours.ndim == 3 and model.layer.batch_first else ours
    assert off(model, ours, said(model, x)) < 1e-5
    states = {value.name for value in step.graph.input} - {"x", "t", "h", "c"}
    pooled = {"pool", "n"} if model.reads in ("mean", "max") else set()
    assert states == pooled | ({"last"} if WAYS[way][0] != "refuse" else set())


def test_onnx_says_what_it_takes_and_what_its_outputs_are():
    for graph in (export_whole, export_step):
        about = {prop.key: json.loads(prop.value) for prop in graph(made("classes")[0]).metadata_props}
        assert about["classes"] == list(ODD_NAMES)
        assert about["inputs"]["size"] == 3
        assert about["inputs"]["missing"] == "carry"
        assert np.allclose(about["inputs"]["mean"], MEANS)
        about = {prop.key: json.loads(prop.value) for prop in graph(made("masked")[0]).metadata_props}
        assert "classes" not in about


def test_onnx_sees_a_wrong_mean():
    model, _ = made("carried")
    other = copy.deepcopy(model)
    move_mean(other, "inputs", 0)
    for whole, step in ((other, model), (model, other)):
        with pytest.raises(UserError, match="the exported graph is off by"):
            differences(model, export_whole(whole), export_step(step), STEPS)


@pytest.mark.parametrize("reads", ["last", "every", "mean", "max"])
def test_when_and_what_the_head_reads(reads):
    """`deploy` says when; the model says what: its last h, or all of them pooled so far."""
    model, x = raw_network("carry", reads=reads), raw_sequences("carry")
    so_far = torch.stack([said(model, x[:step]).view(-1, 4, 3)[-1] for step in range(1, STEPS + 1)])
    assert off(model, deploy(model, STEPS, V_T, reads="every")(x), so_far) < 3e-6
    assert off(model, deploy(model, STEPS, V_T, reads=[7, 40])(x), so_far[[6, 39]]) < 3e-6
    assert off(model, deploy(model, STEPS, V_T, reads="last")(x), so_far[-1]) < 3e-6
    assert deploy(model, STEPS, V_T, reads=[40])(x[:7]).shape == (0, 4, 3)


def test_numbers_of_int8_follow_standardised_inputs():
    """Scales chosen on raw numbers of 1e4 would see nothing but the mean."""
    model, x = made("raw")
    plan = deploy(model, STEPS, V_T).plan
    bare = copy.deepcopy(model)
    assert model.inputs is not None
    standard, bare.inputs = model.inputs(x), None
    ours, theirs = quantize(plan, x), quantize(deploy(bare, STEPS, V_T).plan, standard)
    for one, other in zip(ours.layers, theirs.layers, strict=True):
        assert np.array_equal(one.w_x, other.w_x)
        assert np.array_equal(one.scale_h, other.scale_h)
    assert 0 < off(model, deploy(dequantized(model, plan, ours), STEPS, V_T)(x), said(model, x)) < 0.1


def test_infinite_values_stay_what_they_are():
    model, x = made("carried")
    x[5, 0, 0] = torch.inf
    stream = deploy(model, STEPS, V_T).stream()
    for sample in x[:20, 0].numpy():
        stream.step(sample)
    assert np.allclose(stream.output(), said(model, x[:20, :1])[0], atol=1e-5, equal_nan=True)


def test_what_does_not_fit_is_named():
    class Own(torch.nn.Module):
        pass

    for changed, value, says in (
        ("inputs", Own(), "go through a Standardize, not a Own"),
        ("inputs", Standardize(2), "gives 2 numbers, but the layer has 3 inputs"),
        ("outputs", Own(), "go through a Rescale, not a Own"),
        ("outputs", Rescale(2), "is for 2 outputs, but the head has 3"),
        ("classes", ("a", "b"), "the network has 2 names of classes, but the head has 3 outputs"),
    ):
        model = raw_network()
        setattr(model, changed, value)
        for use in (lambda m: deploy(m, STEPS), export_whole, export_step):
            with pytest.raises(ValueError, match=says):
                use(model)


@needs_gcc
def test_the_self_test_is_at_the_times_of_its_plan(tmp_path):
    model = raw_network("carry")
    x, times = raw_sequences("carry", steps=25), np.linspace(0.5, 55.5, 25)
    exported(model, x, tmp_path, times=times)
    assert run(built(["gcc", "-std=c99"], tmp_path, "-DNET_TEST")).returncode == 0
    plan = deploy(model, times, V_T).plan
    with pytest.raises(UserError, match=r"other times than the plan's: make them with vectors_from\(.*plan.times\)"):
        export_c(plan, tmp_path, "net", vectors_from(model, V_T, x))
    with pytest.raises(UserError, match=r"must have shape \(4, 25, 3\), but have \(4, 20, 3\)"):
        export_c(plan, tmp_path, "net", vectors_from(model, V_T, x[:20]))
