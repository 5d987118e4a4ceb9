"""The GRU on every engine: against torch.nn.GRU, and with tables of openness against a plain loop, in float64."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from glstm.errors import ShapeError, UserError
from glstm.ops import cpu, gpu
from glstm.ops.gru import as_four_sums, has_engine
from gru_cases import check, gated_gru, operands, results

native = pytest.mark.skipif(cpu.engine() is None, reason="the C engine was not built")

# T, B, D, H
SIZES = [(7, 3, 2, 5), (1, 1, 1, 1), (20, 13, 3, 17), (9, 1, 2, 33), (30, 100, 1, 16), (5, 7, 40, 70)]


@pytest.fixture(params=[4, 8, 16])
def lanes(request):
    library = cpu.engine()
    assert library is not None
    if library.glstm_lanes(request.param) != request.param:
        library.glstm_lanes(0)
        pytest.skip("this machine has no vectors of that width")
    yield
    library.glstm_lanes(0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("table", [None, "shared", "own"])
def test_the_reference_is_the_equations(size, table):
    check(operands(*size, table=table), backend="reference")


@native
@pytest.mark.usefixtures("lanes")
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("table", "sequence"), [(None, True), ("shared", False), ("own", True)])
def test_the_c_engine_is_the_equations(size, table, sequence):
    check(operands(*size, table=table), sequence, backend="native")


@native
@pytest.mark.parametrize("threads", [1, 3])
def test_the_c_engine_without_biases_with_large_states_and_by_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check(operands(12, 5, 2, 100, bias=False), backend="native")
        check(operands(12, 5, 2, 20, table="own", large=4.0), gradients=1e-4, backend="native")
        one, two = (results(gated_gru, operands(12, 7, 2, 20), backend="native") for _ in range(2))
    finally:
        torch.set_num_threads(before)
    for mine, others in zip(one, two, strict=True):  # the same bits at every call
        assert all(part is others[name] or torch.equal(part, others[name]) for name, part in mine.items())


@pytest.mark.parametrize("backend", ["reference", pytest.param("native", marks=native)])
def test_a_closed_unit_keeps_its_h_and_reads_nothing(backend):
    tensors = operands(4, 3, 2, 5, table="shared")
    tensors["k"][1] = 0
    tensors["k"][:, 2] = 0
    right = results(gated_gru, tensors, backend=backend)
    tensors["x"][1] = torch.nan
    outputs, gradients = results(gated_gru, tensors, backend=backend)
    assert torch.equal(outputs["h"][:, :, 2], tensors["h0"][:, 2].expand(4, -1))
    assert (gradients["k"][tensors["k"] == 0] == 0).all()
    for name, part in right[1].items():
        assert torch.equal(part, gradients[name])
    assert torch.equal(right[0]["h"], outputs["h"])


@pytest.mark.parametrize("backend", ["reference", pytest.param("native", marks=native)])
def test_no_steps_change_nothing(backend):
    tensors = operands(0, 2, 3, 4)
    outputs, gradients = results(gated_gru, tensors, backend=backend)
    assert torch.equal(outputs["h_n"], tensors["h0"])
    assert outputs["h"].shape == (0, 2, 4)
    assert not gradients["w_hh"].any()


@pytest.mark.parametrize("size", [(6, 4, 3, 5), (1, 1, 2, 1)])
def test_without_a_table_it_is_torchs(size):
    steps, batch, inputs, hidden = size
    layer = nn.GRU(inputs, hidden).double()
    x, h0 = torch.randn(steps, batch, inputs).double(), torch.randn(batch, hidden).double()
    h, h_n = gated_gru(x, *layer.parameters(), h0)
    torch.testing.assert_close((h, h_n.unsqueeze(0)), layer(x, h0.unsqueeze(0)), rtol=0, atol=1e-12)


def test_gradients_and_their_gradients():
    tensors = operands(3, 2, 2, 3, table="own")
    tensors["k"] = 0.2 + 0.7 * torch.rand(tensors["k"].shape)  # a closed unit's slope is defined as 0
    leaves = [part.double().requires_grad_() for part in tensors.values()]

    def run(*given):
        return gated_gru(*given[:-1], k=given[-1], backend="reference")

    assert torch.autograd.gradcheck(run, leaves)
    assert torch.autograd.gradgradcheck(run, leaves)


@pytest.mark.parametrize("backend", ["reference", pytest.param("native", marks=native)])
def test_vmap_over_weights_is_one_after_the_other(backend):
    tensors = operands(5, 3, 2, 4, models=(3,))
    x, _, *own = tensors.pop("x"), tensors.pop("k"), *tensors.values()

    def loss(*own):
        h, h_n = gated_gru(x, *own, backend=backend)
        return (h * h).sum() + h_n.sum()

    found = torch.vmap(torch.func.grad(loss, argnums=tuple(range(5))))(*own)
    for model in range(3):
        alone = torch.func.grad(loss, argnums=tuple(range(5)))(*(part[model] for part in own))
        for all_of_them, one in zip(found, alone, strict=True):
            torch.testing.assert_close(all_of_them[model], one)
    h, _ = torch.vmap(lambda *own: gated_gru(x, *own, backend=backend))(*own)
    torch.testing.assert_close(h, gated_gru(x, *own, backend=backend)[0])  # a model axis says the same


def test_torch_compile_goes_through_it():
    tensors = operands(4, 3, 2, 5)
    given = [part for part in tensors.values() if part is not None]
    compiled = torch.compile(lambda *given: gated_gru(*given, backend="reference"), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*given), gated_gru(*given, backend="reference"))
    chosen = torch.compile(gated_gru, backend="eager", fullgraph=True)(
        *given
    )  # which engine is not asked while tracing
    torch.testing.assert_close(chosen, gated_gru(*given))
    inputs = (given[0], *as_four_sums(*given[1:5]), torch.ones(4, 5), None, given[5], given[5].clone())
    torch.library.opcheck(
        torch.ops.glstm.gated_lstm.default, (*inputs, "gru", True, False, True, "reference"),
        test_utils=("test_schema", "test_faketensor"),
    )  # fmt: skip


def test_an_exported_call_chooses_its_engine_where_it_runs():
    class Run(nn.Module):
        def forward(self, x, *given):
            return gated_gru(x, *given)[1]

    given = tuple(part for part in operands(4, 3, 2, 5).values() if part is not None)
    exported = torch.export.export(Run(), given)
    calls = [node for node in exported.graph.nodes if node.target is torch.ops.glstm.gated_lstm.default]
    assert ["auto" in node.args for node in calls] == [True]
    torch.testing.assert_close(exported.module()(*given), Run()(*given))


def test_what_it_refuses():
    given = [part for part in operands(4, 3, 2, 5).values() if part is not None]
    with pytest.raises(ValueError, match="backend must be one of auto, native, cuda, reference, not 'fast'"):
        gated_gru(*given, backend="fast")
    with pytest.raises(ShapeError, match=r"w_hh must have 3H = 15 rows, but has shape \(20, 5\)"):
        gated_gru(*given[:2], torch.zeros(20, 5), *given[3:])
    with pytest.raises(ValueError, match="a GRU has both biases, or none"):
        gated_gru(*given[:4], None, given[5])
    with pytest.raises(ShapeError, match="k must be"):
        gated_gru(*given, k=torch.ones(3, 5))


@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_the_older_exporter_of_onnx_is_told_what_it_knows():
    class Run(nn.Module):
        def forward(self, x, *given):
            return gated_gru(x, *given)[1]

    pytest.importorskip("onnx")
    given = tuple(part for part in operands(4, 3, 2, 5).values() if part is not None)
    with pytest.raises(UserError, match=r"knows torch\.nn\.GRU, not gated_gru"):
        torch.onnx.export(Run(), given, "/dev/null", dynamo=False)


def test_a_layer_too_large_for_one_kernel_is_the_references(monkeypatch):
    monkeypatch.setattr(cpu, "usable", lambda *_: False)
    monkeypatch.setattr(gpu, "usable", lambda *_: True)
    monkeypatch.setattr(gpu, "in_one_kernel", lambda hidden, *_: hidden <= 384)
    x = torch.randn(2, 3, 1)
    assert has_engine(x, torch.zeros(3 * 384, 384))
    assert not has_engine(x, torch.zeros(3 * 385, 385))
    layer = nn.GRU(1, 385)
    h, _ = gated_gru(x, *layer.parameters(), torch.zeros(3, 385))
    torch.testing.assert_close(h, layer(x)[0])
    with pytest.raises(ValueError, match=r"two tables or a GRU for up to .* for a GRU of 385 units"):
        gated_gru(x, *layer.parameters(), torch.zeros(3, 385), backend="cuda")


def test_zeros_of_the_four_sums_are_no_operations():
    given = [part for part in operands(4, 3, 2, 5).values() if part is not None]
    given[1].requires_grad_()
    with FlopCounterMode(display=False) as counter:
        gated_gru(*given, backend="reference")[1].sum().backward()
    assert counter.get_total_flops() == 3 * (2 * 4 * 3 * 15 * (2 + 5))  # backward has twice as many
