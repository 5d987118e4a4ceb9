"""The GRU on every engine: against torch.nn.GRU, and with tables of openness against a plain loop, in float64."""

from typing import Any

import pytest
import torch
from torch import nn

from glstm import ops
from glstm.errors import ShapeError, UserError
from glstm.ops import cpu, gpu
from glstm.ops.contract import Inputs
from glstm.ops.gpu import scan
from glstm.ops.gpu.runtime import compile_kernels, compiler
from glstm.ops.gru import as_four_sums, has_engine
from helpers import relative_error

gated_gru: Any = ops.gated_gru  # for a type checker: it is called with lists
native = pytest.mark.skipif(cpu.engine() is None, reason="the C engine was not built")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no NVRTC here")
on_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

# T, B, D, H
SIZES = [(7, 3, 2, 5), (1, 1, 1, 1), (20, 13, 3, 17), (0, 2, 3, 4), (9, 1, 2, 33), (30, 100, 1, 16), (5, 7, 40, 70)]
EMULATED = {"high": {"outputs": 5e-4, "gradients": 3e-3}, "highest": {"outputs": 1e-5, "gradients": 1e-4}}


def loop(x, w_ih, w_hh, b_ih, b_hh, h, *, k=None, sequence=True):
    """The equations, written once more, with torch's derivatives."""
    outputs = []
    for n, x_n in enumerate(x):
        given, own = x_n @ w_ih.T, h @ w_hh.T
        given, own = (given, own) if b_ih is None else (given + b_ih, own + b_hh)
        (r, z, of_x), (r_h, z_h, of_h) = given.chunk(3, -1), own.chunk(3, -1)
        z = (z + z_h).sigmoid()
        new = (1 - z) * (of_x + (r + r_h).sigmoid() * of_h).tanh() + z * h
        h = new if k is None else torch.where(k[n] == 0, h, k[n] * new + (1 - k[n]) * h)
        outputs.append(h)
    return torch.stack(outputs) if sequence else None, h


def operands(steps, batch, inputs, hidden, *, table=None, bias=True, models=(), large=1.0):
    """`table`: of openness, "shared" or "own" of each sample. `large`: how large h and its sums are."""
    draw = torch.Generator().manual_seed(3)

    def normal(*shape, scale=0.6):
        return scale * torch.randn(*models, *shape, generator=draw)

    k = torch.rand(*models, steps, *((batch,) if table == "own" else ()), hidden, generator=draw)
    k[..., : hidden // 2] *= torch.rand(*k.shape[:-1], 1, generator=draw) < 0.5
    biases = [normal(3 * hidden) for _ in range(2)] if bias else [None, None]
    return {
        "x": torch.randn(steps, batch, inputs, generator=draw),
        "w_ih": normal(3 * hidden, inputs),
        "w_hh": normal(3 * hidden, hidden, scale=large / hidden**0.5),
        **dict(zip(("b_ih", "b_hh"), biases, strict=True)),
        "h0": normal(batch, hidden, scale=0.3 * large),
        "k": None if table is None else torch.where(k < 0.3, 0, k),
    }


def results(run, tensors, sequence=True, **options):
    """Outputs, and the gradients of a sum that every output has a share in."""
    leaves = {name: part.detach().clone().requires_grad_() for name, part in tensors.items() if part is not None}
    *given, k = (leaves.get(name) for name in tensors)
    outputs = dict(zip(("h", "h_n"), run(*given, k=k, sequence=sequence, **options), strict=True))
    draw, loss = torch.Generator().manual_seed(4), torch.zeros(())
    for part in (part for part in outputs.values() if part is not None):
        loss = loss + (part * torch.randn(part.shape, generator=draw).to(part)).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return outputs, dict(zip(leaves, gradients, strict=True))


def errors(tensors, sequence=True, **options):
    """Of outputs and of gradients, by name, relative to float64."""
    right = results(loop, {name: part if part is None else part.double() for name, part in tensors.items()}, sequence)
    found = results(gated_gru, tensors, sequence, **options)
    return [
        {name: relative_error(ours[name], part) for name, part in exact.items() if part is not None and part.numel()}
        for ours, exact in zip(found, right, strict=True)
    ]


@pytest.fixture(params=[4, 8, 16])
def lanes(request):
    library = cpu.engine()
    assert library is not None
    if library.glstm_lanes(request.param) != request.param:
        library.glstm_lanes(0)
        pytest.skip("this machine has no vectors of that width")
    yield
    library.glstm_lanes(0)


def check(tensors, sequence=True, outputs=2e-6, gradients=2e-5, **options):
    for values, limit in zip(errors(tensors, sequence, **options), (outputs, gradients), strict=True):
        assert all(value < limit for value in values.values()), values


@pytest.mark.parametrize("size", [size for size in SIZES if size[0]])
@pytest.mark.parametrize("table", [None, "shared", "own"])
def test_the_reference_is_the_equations(size, table):
    check(operands(*size, table=table), backend="reference")


@native
@pytest.mark.usefixtures("lanes")
@pytest.mark.parametrize("size", [size for size in SIZES if size[0]], ids=str)
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
    inputs = (given[0], *as_four_sums(*given[1:5]), torch.ones(4, 5), None, given[5], given[5].clone())
    torch.library.opcheck(
        torch.ops.glstm.gated_lstm.default, (*inputs, "gru", True, False, True, "reference"),
        test_utils=("test_schema", "test_faketensor"),
    )  # fmt: skip


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


# Every layout: blocks that share a tile's units; samples of a thread; steps that are read ahead; T, B, D, H.
LAYOUTS = [
    (1, 1, 3, (5, 6, 1, 20), {}),
    (1, 2, 2, (3, 9, 6, 33), {"table": "own"}),
    (4, 2, 1, (4, 9, 1, 40), {"table": "shared", "bias": False}),
    (4, 1, 2, (3, 3, 6, 70), {"table": "own"}),
    (8, 1, 4, (3, 3, 2, 70), {}),
]


@pytest.mark.parametrize("precision", EMULATED, indirect=True)
@pytest.mark.parametrize(("ranks", "samples", "ahead", "size", "options"), LAYOUTS, ids=str)
def test_kernels_emulated_on_a_cpu(precision, ranks, samples, ahead, size, options, emulated, monkeypatch):
    emulated(ranks, samples=samples)
    monkeypatch.setattr(scan, "AHEAD", {"forward": ahead, "backward": ahead})
    check(operands(*size, **options), sequence=ranks != 4, backend="cuda", **EMULATED[precision])


@pytest.mark.parametrize("precision", EMULATED, indirect=True)
@pytest.mark.parametrize("large", [4.0, 400.0])
def test_emulated_slopes_are_bounded_where_h_and_its_sums_are_large(precision, large, emulated):
    """Slopes are shared in 16 bits, scaled by a bound on them: no number may become infinite."""
    emulated(1)
    tensors = operands(4, 5, 1, 20, large=large)
    outputs, gradients = results(gated_gru, tensors, backend="cuda")
    assert all(part.isfinite().all() for part in (*outputs.values(), *gradients.values()))
    if large < 10:
        limits = {"highest": (1e-5, 3e-4), "high": (4e-3, 3e-2)}[precision]
        check(tensors, True, *limits, backend="cuda")


@pytest.mark.parametrize("precision", ["high"], indirect=True)
def test_emulated_sums_beyond_16_bits_have_finite_slopes(precision, emulated):
    emulated(1)
    tensors = operands(2, 3, 1, 20, large=1.0)
    tensors["b_hh"][40:] = 1e6  # of the candidate's sum over h, which r multiplies
    tensors["b_ih"][:20] = -30.0
    outputs, gradients = results(gated_gru, tensors, backend="cuda")
    assert all(part.isfinite().all() for part in (*outputs.values(), *gradients.values()))


@pytest.mark.parametrize("precision", ["high"], indirect=True)
def test_emulated_models_side_by_side(precision, emulated):
    emulated(4)
    tensors = operands(4, 5, 2, 20, models=(2,))
    x, _, *own = tensors.pop("x"), tensors.pop("k"), *tensors.values()
    together, _ = torch.vmap(lambda *own: gated_gru(x, *own, backend="cuda"))(*own)
    for model in range(2):
        right, _ = loop(x, *(part[model] for part in own))
        assert relative_error(together[model], right) < EMULATED[precision]["outputs"]


def test_emulated_no_other_kernel_takes_it(emulated):
    emulated(0)
    given = [part for part in operands(4, 3, 2, 20).values() if part is not None]
    inputs = Inputs(given[0], *as_four_sums(*given[1:5]), torch.ones(4, 20), None, given[5], given[5])
    with pytest.raises(ValueError, match="no kernel computes a GRU of 20 units"):
        gpu.forward(inputs, "gru", True, False, False)


@needs_compiler
@pytest.mark.parametrize("part", ["forward", "backward"])
@pytest.mark.parametrize(
    ("hidden", "ranks", "exact"), [(16, 1, False), (110, 4, False), (128, 1, True), (384, 8, True)]
)
def test_kernels_compile(part, hidden, ranks, exact):
    shape = scan.Shape(1, 9, 5, hidden, exact, ranks, 2, 232_448)
    constants = shape.constants(part, 1, "gru", False, 1, True)
    assert compile_kernels(scan.source(part, ranks), "sm_90", constants).startswith(b"\x7fELF")


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
    with pytest.raises(ValueError, match="a GRU where one kernel takes the sequence, not with 385 units"):
        gated_gru(x, *layer.parameters(), torch.zeros(3, 385), backend="cuda")


@on_device
@pytest.mark.parametrize("precision", EMULATED, indirect=True)
@pytest.mark.parametrize("size", [(40, 37, 1, 16), (60, 9, 3, 110), (20, 5, 9, 300), (5, 3, 2, 400)])
def test_on_a_device(precision, size):
    tensors = {name: part if part is None else part.cuda() for name, part in operands(*size, table="shared").items()}
    check(tensors, **EMULATED[precision])
