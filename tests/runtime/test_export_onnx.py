"""ONNX models in ONNX Runtime beside PyTorch: any length, any batch, step by step."""

import onnx
import pytest
import torch
from networks import KINDS, STEPS, deep_network, network

import glstm
from glstm.errors import UserError
from glstm.runtime.check_onnx import LENGTHS, differences, session
from glstm.runtime.export_onnx import export_step, export_whole

V_T = 0.01


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [network, deep_network])
def test_onnx_runtime_says_what_pytorch_says(kind, make):
    model = make(kind)
    model.layer.threshold = V_T
    found = differences(model, export_whole(model), export_step(model), STEPS)
    assert len(found) == len(LENGTHS) + 2
    assert all(difference < 1e-5 for difference in found.values())


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("batch_first", [False, True])
def test_both_directions(layers, batch_first):
    layer = glstm.GLSTM(2, 6, layers, bidirectional=True, batch_first=batch_first, mu=(1, 40), sigma=9.0)
    model = glstm.SequenceModel(layer, torch.nn.Linear(12, 3)).eval()
    runs = session(export_whole(model))
    for steps, batch in ((1, 1), (40, 5), (90, 2)):
        x = torch.randn((batch, steps, 2) if batch_first else (steps, batch, 2))
        with torch.no_grad():
            assert torch.allclose(torch.from_numpy(runs.run(None, {"x": x.numpy()})[0]), model(x), atol=1e-6)
    with pytest.raises(ValueError, match="there is no single step to export"):
        export_step(model)


def test_differences_are_seen():
    """The comparison itself: it refuses the graph of another network, and NaN."""
    model = network("g-LSTM")
    for change in (0.1, torch.nan):
        other = network("g-LSTM")
        with torch.no_grad():
            other.head.get_parameter("bias").add_(change)
        for whole, step in ((other, model), (model, other)):
            with pytest.raises(UserError, match="the exported graph is off by"):
                differences(model, export_whole(whole), export_step(step), STEPS)


def test_sizes_stay_open():
    graph = export_whole(network("stack")).graph
    shapes = [[axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim] for value in graph.input]
    assert shapes == [["steps", "batch", 3]]
    assert [node.op_type for node in graph.node].count("Scan") == 2


def of_gate(openness) -> glstm.SequenceModel:
    """A network whose gate computes just that, from times and a value for each unit."""

    class Own(glstm.Gate):
        names = ("at",)
        at = (1.0, 50.0)

        def openness(self, times, unit, training):
            return openness(times.unsqueeze(-1), unit["at"])

    return glstm.SequenceModel(glstm.GatedLSTM(1, 5, gate=Own()), torch.nn.Linear(5, 2)).eval()


FORMULAS = {
    "exponential": lambda t, at: torch.exp(-((t - at) / 7).abs()),
    "cosine": lambda t, at: (0.5 + 0.5 * torch.cos(0.3 * (t - at))).clamp(min=0.2),
    "logistic": lambda t, at: torch.sigmoid(2 - (t - at).square() / 40),
    "bell": lambda t, at: 1 / (1 + ((t - at) / 5) ** 2),
    "remainder of either sign": lambda t, at: torch.remainder(at - t, -7.0) / -7.0,
    "steps": lambda t, at: torch.where((t > at) & ~(t > at + 9), 1.0, torch.floor(t / 5000)),
    "minimum": lambda t, at: torch.minimum((t / 50).clamp(max=1.0), torch.maximum(at / 60, t * 0)),
    "truth values": lambda t, at: (t > at) * torch.exp(-(t - at) / 9) + 0.25 * (t <= at),
    "no unit differs": lambda t, at: torch.tanh(t / 30) ** 3,
    "seen by nobody": lambda t, at: torch.zeros_like(t - at) + 1 - 0.5 * (t <= at).to(t.dtype),
    "distribution function": lambda t, at: 0.5 + 0.5 * torch.erf((t - at) / 9),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_any_gate_is_written_from_what_it_computes(name):
    model = of_gate(FORMULAS[name])
    assert max(differences(model, export_whole(model), export_step(model), 60).values()) < 1e-5
    assert max(differences(model, *with_times(model), 60).values()) < 1e-5


def with_times(model):
    """Graphs that get their times when they run."""
    step = None if model.layer.bidirectional else export_step(model, wide_times=True)
    return export_whole(model, times_as_input=True), step


@pytest.mark.parametrize("kind", KINDS)
def test_times_are_an_input(kind):
    """Irregular ones, the same for all sequences and each its own; `differences` gives both."""
    model = deep_network(kind)
    model.layer.threshold = V_T
    assert max(differences(model, *with_times(model), STEPS).values()) < 1e-5


@pytest.mark.parametrize("batch_first", [False, True])
def test_times_are_an_input_of_both_directions(batch_first):
    layer = glstm.GLSTM(2, 6, bidirectional=True, batch_first=batch_first, mu=(1, 40), sigma=9.0)
    model = glstm.SequenceModel(layer, torch.nn.Linear(12, 3), reads="every").eval()
    whole, _ = with_times(model)
    assert max(differences(model, whole, None, STEPS).values()) < 1e-5
    layout = ["one_or_batch", "steps"] if batch_first else ["steps", "one_or_batch"]
    assert session(whole).get_inputs()[1].shape == layout


def test_a_gate_that_computes_what_onnx_cannot_is_named():
    model = of_gate(lambda t, at: torch.special.bessel_j0(t - at).abs())
    with pytest.raises(
        UserError, match="the gate Own cannot be written as ONNX: it computes with torch's special_bessel_j0"
    ):
        export_whole(model)


def test_the_models_are_valid_onnx():
    for graph in (export_whole(network("Phased LSTM")), export_step(network("Phased LSTM"))):
        onnx.checker.check_model(graph, full_check=True)
