"""A model with the operator in it goes through torch.compile and torch.export, batch and length left open."""

import pytest
import torch

from glstm import GatedLSTM, Gaussian, Periodic, SequenceModel


@pytest.fixture(params=[Gaussian(mu=(1, 10), sigma=4.0), Periodic(mu=(1, 10), sigma=1.5, tau=6.3)], ids=type)
def model(request):
    layer = GatedLSTM(3, 5, num_layers=2, bidirectional=True, gate=request.param, threshold=0.05)
    return SequenceModel(layer, torch.nn.Linear(10, 2))


def test_compile_without_a_graph_break_at_several_sizes(model):
    graphs = []

    def count(graph, _):
        graphs.append(graph)
        return graph

    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=count)
    for steps, batch in ((7, 4), (9, 5), (40, 2)):
        x = torch.randn(steps, batch, 3)
        assert torch.equal(compiled(x), model(x))
    assert len(graphs) == 1  # one graph serves every batch and length


def test_compiled_training_has_the_same_gradients(model):
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    x = torch.randn(8, 4, 3)
    compiled(x).square().sum().backward()
    found = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    model(x).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert torch.allclose(found[name], parameter.grad, atol=1e-6), name


def test_inductor_compiles_it(model):
    compiled = torch.compile(model.eval(), fullgraph=True, dynamic=True)
    with torch.no_grad():
        for steps, batch in ((5, 2), (6, 3)):
            x = torch.randn(steps, batch, 3)
            assert torch.allclose(compiled(x), model(x), atol=1e-6)


def test_export_with_dynamic_batch_and_length(model):
    model.eval()
    steps, batch = torch.export.Dim("steps"), torch.export.Dim("batch")
    program = torch.export.export(model, (torch.randn(7, 4, 3),), dynamic_shapes=({0: steps, 1: batch},))
    for steps, batch in ((1, 1), (20, 6), (784, 2)):
        x = torch.randn(steps, batch, 3)
        assert torch.allclose(program.module()(x), model(x), atol=1e-6)
    operators = {str(node.target) for node in program.graph.nodes}
    assert "glstm.gated_lstm.default" in operators
    calls = [node for node in program.graph.nodes if str(node.target) == "glstm.gated_lstm.default"]
    assert all(node.meta["val"][-1].numel() == 0 for node in calls)  # no tape for a backward pass nobody will run


def test_export_with_times_as_an_input(model):
    model.eval()
    steps, batch = torch.export.Dim("steps"), torch.export.Dim("batch")
    inputs = (torch.randn(7, 3, 3), torch.arange(1.0, 8.0))
    program = torch.export.export(model, inputs, dynamic_shapes=({0: steps, 1: batch}, {0: steps}))
    x, times = torch.randn(11, 2, 3), torch.rand(11).cumsum(0)
    assert torch.allclose(program.module()(x, times), model(x, times), atol=1e-6)
