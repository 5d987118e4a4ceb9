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
    """The comparison itself: another network's graph is not this one's, and what is no number is nobody's."""
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


def test_a_gate_without_a_formula_is_named():
    class Odd(glstm.Gate):
        def openness(self, times, unit, training):
            return torch.ones_like(times).unsqueeze(-1)

    model = glstm.SequenceModel(glstm.GatedLSTM(1, 3, gate=Odd()), torch.nn.Linear(3, 1))
    with pytest.raises(ValueError, match="there is no ONNX for a gate of the kind Odd"):
        export_whole(model)


def test_the_models_are_valid_onnx():
    for graph in (export_whole(network("Phased LSTM")), export_step(network("Phased LSTM"))):
        onnx.checker.check_model(graph, full_check=True)
