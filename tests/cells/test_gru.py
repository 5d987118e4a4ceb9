"""The GRU as torch's: names, values and results, whoever computes a call; and how it trains."""

import inspect
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from glstm import SequenceModel
from glstm.analysis import operations_of
from glstm.cells import CELLS, gru
from glstm.cells.gru import GRU
from glstm.describe import build, describe
from glstm.ops import cpu
from helpers import copies, relative_error
from small_runs import RECIPES, SMALL, population

native = pytest.mark.skipif(cpu.engine() is None, reason="the C engine was not built")


def twins(*sizes, **options):
    """Ours, and torch's in float64 with the same values."""
    torch.manual_seed(2)
    ours, theirs = GRU(*sizes, **options), nn.GRU(*sizes, **options)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs.double()


@pytest.fixture
def calls(monkeypatch):
    """How often the operator was called."""
    made, run = [], gru.gated_gru
    monkeypatch.setattr(gru, "gated_gru", lambda *given, **more: made.append(1) or run(*given, **more))
    return made


def test_it_is_made_and_saved_as_torchs_is():
    assert CELLS["gru"] is GRU
    ours, theirs = twins(3, 5, 2)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    takes = list(inspect.signature(GRU).parameters)
    assert takes == ["input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional",
                     "device", "dtype"]  # fmt: skip
    made = SequenceModel(GRU(3, 5, 2, bias=False, batch_first=True), nn.Linear(5, 2))
    described = describe(made)
    assert described["layer"]["class"] == "glstm.cells.gru:GRU"
    again = build(described)
    assert type(again.layer) is GRU
    assert (again.layer.num_layers, again.layer.bias, again.layer.batch_first) == (2, False, True)
    assert operations_of(ours, 7) == operations_of(theirs, 7)


@native
@pytest.mark.parametrize(
    ("sizes", "options", "steps", "batch"),
    [
        ((1, 16), {}, 30, 20),
        ((3, 7, 3), {}, 9, 5),
        ((2, 33, 2), {"bias": False}, 6, 1),
        ((2, 5), {"batch_first": True}, 1, 3),
        ((1, 1), {}, 1, 1),
    ],
)
@pytest.mark.parametrize("given", [False, True])
def test_outputs_and_gradients_are_torchs(sizes, options, steps, batch, given, calls):
    ours, theirs = twins(*sizes, **options)
    layers = ours.num_layers
    shape = (batch, steps) if options.get("batch_first") else (steps, batch)
    x, h0 = torch.randn(*shape, sizes[0]), torch.randn(layers, batch, sizes[1])
    found = []
    for layer, kind in ((ours, torch.float32), (theirs, torch.float64)):
        leaves = [part.detach().clone().to(kind).requires_grad_() for part in ((x, h0) if given else (x,))]
        output, h_n = layer(*leaves)
        ((output * output.detach().cos()).sum() + h_n.square().sum()).backward()
        found.append([output, h_n, *(leaf.grad for leaf in leaves), *(one.grad for one in layer.parameters())])
    assert len(calls) == layers
    for one, right in zip(*found, strict=True):
        assert relative_error(one, right) < 2e-5


def test_what_no_engine_computes_is_torchs(calls):
    x = torch.randn(6, 3, 2)
    for options, given in (
        ({"bidirectional": True}, x),
        ({}, x[:, 0]),
        ({}, pack_sequence([x[:4, 0], x[:2, 1]])),
        ({"dtype": torch.float64}, x.double()),
    ):
        torch.manual_seed(1)
        ours = GRU(2, 4, **options)
        theirs = nn.GRU(2, 4, **options)
        theirs.load_state_dict(ours.state_dict())
        for one, right in zip(ours(given), theirs(given), strict=True):
            torch.testing.assert_close(one, right, rtol=0, atol=0)
        assert ours(given, sequence=False)[0] is None
    assert not calls


@pytest.mark.filterwarnings("ignore:The tensor attributes self._flat_weights")  # so does torch's
def test_what_records_it_gets_torchs_own():
    ours, theirs = twins(2, 4)
    x = torch.randn(6, 3, 2)
    program = torch.export.export(ours.eval(), (x,))
    assert not [node for node in program.graph.nodes if "glstm" in str(node.target)]
    assert relative_error(program.module()(x)[0], theirs(x.double())[0]) < 1e-6
    shapes = [tuple(part.shape) for part in ours.to("meta")(x.to("meta"))]
    assert shapes == [(6, 3, 4), (1, 3, 4)]


@native
def test_the_last_state_alone_and_wrong_inputs():
    ours, theirs = twins(2, 4, 2)
    x = torch.randn(6, 3, 2)
    output, h_n = ours(x, sequence=False)
    assert output is None
    assert relative_error(h_n, theirs(x.double())[1]) < 1e-6
    model = SequenceModel(ours, nn.Linear(4, 1))
    assert model(x).shape == (3, 1)
    assert model(x, lengths=torch.tensor([6, 2, 3])).shape == (3, 1)
    with pytest.raises(RuntimeError, match=r"input.size\(-1\) must be equal to input_size. Expected 2, got 5"):
        ours(torch.randn(6, 3, 5))
    with pytest.raises(RuntimeError, match="Expected hidden size"):
        ours(x, torch.zeros(1, 3, 4))
    with pytest.raises(ValueError, match="does not match weight dtype"):
        ours(x.double())
    assert all(relative_error(copy(x)[0], ours(x)[0]) == 0 for copy in copies(ours))


@native
def test_dropout_is_between_layers_and_in_training_only():
    ours, theirs = twins(2, 4, 2, dropout=0.5)
    x = torch.randn(6, 3, 2)
    assert relative_error(ours.eval()(x)[0], theirs.eval()(x.double())[0]) < 1e-6
    ours.train()
    assert not torch.equal(ours(x)[0], ours(x)[0])


@native
def test_networks_train_alone_as_in_a_population_and_learn(calls):
    recipes = [SMALL.changed(cell="gru", chrono=12.0), RECIPES["GRU"].changed(seed=3, lr=1e-2)]
    found = population(recipes)
    together = population(recipes, together=True)
    before: list[Any] = [one.error for one in found.test()]
    for epoch in range(1, recipes[0].epochs + 1):
        found.train(epoch)
        together.train(epoch)
    assert len(calls) > 0
    assert [len(group.rows) for group in together.stack.groups] == [2]
    assert relative_error(together.stack.flat, found.stack.flat) < 1e-4
    for row, recipe in enumerate(recipes):
        alone = population([recipe])
        for epoch in range(1, recipe.epochs + 1):
            alone.train(epoch)
        parts = zip(alone.stack.own(alone.stack.flat, 0), found.stack.own(found.stack.flat, row), strict=True)
        assert all(torch.equal(one, part) for one, part in parts)
    assert all(after.error < error for after, error in zip(found.test(), before, strict=True))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # which torch itself uses there
def test_derivatives_forwards_are_torchs():
    ours, theirs = GRU(2, 5), nn.GRU(2, 5)
    theirs.load_state_dict(ours.state_dict())
    x, moved = torch.randn(4, 3, 2), torch.randn(4, 3, 2)
    found, right = (torch.func.jvp(lambda x, one=one: one(x)[0], (x,), (moved,)) for one in (ours, theirs))
    torch.testing.assert_close(found, right)
