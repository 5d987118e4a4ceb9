"""The CUDA engine: every kernel compiles here; where there is a device, outputs and every gradient against float64."""

from types import SimpleNamespace

import pytest
import torch

from glstm import GLSTM
from glstm.ops import gated_lstm, gpu
from glstm.ops.gpu import scan, steps
from glstm.ops.gpu.runtime import compile_kernels, compiler
from helpers import relative_error

on_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no NVRTC here")

# Errors of 16-bit operands, with sums and states in float32; and of float32 throughout.
LIMITS = {"high": {"outputs": 5e-4, "gradients": 2e-3}, "highest": {"outputs": 1e-5, "gradients": 1e-4}}
ROUNDED = 6e-3  # gradients, where the two sides of the weights' gradient are in bfloat16, too

# Few steps and samples: rounding averages out less.
EMULATED = {"high": {"outputs": 5e-4, "gradients": 3e-3}, "highest": LIMITS["highest"]}

both_precisions = pytest.mark.parametrize("precision", LIMITS, indirect=True)


# Every kernel for one architecture; for the others, whose instructions are the same, the largest ones.
LAYOUTS = [
    (110, 1, 2, 1, False), (128, 1, 1, 9, True), (110, 4, 1, 1, False), (220, 4, 2, 9, True), (384, 8, 1, 1, False),
]  # fmt: skip
ROOM = 232_448  # bytes of shared memory that a block may have
COMPILED = [
    ("sm_90", part, exact, *one) for part in ("forward", "backward") for exact in (False, True) for one in LAYOUTS
]
COMPILED += [("sm_80", "backward", True, *LAYOUTS[1]), ("sm_100", "backward", True, *LAYOUTS[1])]
COMPILED += [("sm_100", "backward", True, *LAYOUTS[3])]


@needs_compiler
@pytest.mark.parametrize(
    ("architecture", "part", "exact", "hidden", "ranks", "samples", "inputs", "per_sample"), COMPILED
)
def test_every_kernel_compiles(architecture, part, exact, hidden, ranks, samples, inputs, per_sample):
    shape = scan.Shape(1, 9, 5, hidden, exact, ranks, samples, ROOM)
    constants = shape.constants(part, inputs, "tanh", per_sample, 1, True)
    assert compile_kernels(scan.source(part, ranks), architecture, constants).startswith(b"\x7fELF")


TWO_LAYOUTS = [(110, 4, 1, False), (110, 1, 2, True), (384, 8, 2, True)]


@needs_compiler
@pytest.mark.parametrize("part", ["forward", "backward"])
@pytest.mark.parametrize(
    ("hidden", "ranks", "samples", "exact"), [(110, 4, 1, False), (110, 1, 2, True), (384, 8, 2, True)]
)
def test_kernels_for_two_tables_compile(part, hidden, ranks, samples, exact):
    shape = scan.Shape(1, 9, 5, hidden, exact, ranks, samples, ROOM)
    constants = shape.constants(part, 1, "tanh", True, 1, True, True)
    assert compile_kernels(scan.source(part, ranks), "sm_90", constants).startswith(b"\x7fELF")


def test_how_many_blocks_share_the_units():
    h200 = {"clusters": True, "multiprocessors": 132}
    assert scan.ranks_for(110, 16, **h200) == 4
    assert scan.ranks_for(110, 28, **h200) == 4
    assert scan.ranks_for(110, 29, **h200) == 1  # no more clusters of four have a multiprocessor for each block
    assert scan.ranks_for(64, 16, **h200) == 1
    assert [scan.ranks_for(hidden, 500, **h200) for hidden in (128, 129, 256, 257, 384, 385)] == [1, 4, 4, 8, 8, None]
    assert [scan.samples_for(110, batch, 1, 4, 132) for batch in (1, 112, 113)] == [1, 1, 2]
    assert [scan.samples_for(64, batch, 10, 1, 132) for batch in (52, 53)] == [1, 2]
    assert [scan.samples_for(20, batch, 1, 1, 132) for batch in (1056, 1057)] == [1, 2]
    assert [scan.ranks_for(hidden, 1, clusters=False, multiprocessors=108) for hidden in (128, 129)] == [1, None]


@needs_compiler
def test_a_kernel_that_does_not_compile_says_why():
    with pytest.raises(RuntimeError, match="does not compile for sm_90"):
        compile_kernels("nonsense", "sm_90", {})


def operands(steps, batch, inputs, hidden, per_sample=False, models=(), device="cuda"):
    """Of a call with one table. `two_tables` adds another one."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape, scale=1.0):
        return (scale * torch.randn(*models, *shape, generator=generator)).to(device)

    scale = 0.6 / hidden**0.5
    k = torch.rand(*models, steps, *((batch,) if per_sample else ()), hidden, generator=generator)
    k[..., : hidden // 2] *= (
        torch.rand(*k.shape[:-1], 1, generator=generator) < 0.5
    )  # whole blocks close, and open again
    return {
        "x": torch.randn(steps, batch, inputs, generator=generator).to(device),
        "w_ih": draw(4 * hidden, inputs, scale=scale),
        "w_hh": draw(4 * hidden, hidden, scale=scale),
        "b": draw(4 * hidden, scale=scale),
        "k": torch.where(k < 0.3, 0, k).to(device),
        "h0": draw(batch, hidden, scale=0.3),
        "c0": draw(batch, hidden, scale=0.3),
    }


def two_tables(steps, batch, inputs, hidden, per_sample, h_per_sample, models=(), device="cuda"):
    """Units may be open for c alone, for h alone, for both and for none."""
    tensors = operands(steps, batch, inputs, hidden, per_sample, models, device)
    generator = torch.Generator().manual_seed(7)
    k_h = torch.rand(*models, steps, *((batch,) if h_per_sample else ()), hidden, generator=generator)
    return {**tensors, "k_h": torch.where(k_h < 0.4, 0, k_h).to(device)}


def results(tensors, backend, weighted=True, **options):
    """Outputs, and the gradient of a sum that every output has a share in."""
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in tensors.items()}
    given = [leaf for name, leaf in leaves.items() if name != "k_h"]
    output = gated_lstm(*given, k_h=leaves.get("k_h"), backend=backend, **options)
    parts = {name: part for name, part in output._asdict().items() if part is not None}
    generator = torch.Generator().manual_seed(2)
    loss = torch.zeros((), device=tensors["x"].device)
    for part in parts.values():
        weights = torch.randn(part.shape, generator=generator) if weighted else torch.ones(())
        loss = loss + (part * weights.to(part)).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return {name: part.detach() for name, part in parts.items()}, dict(zip(leaves, gradients))


CASES = [
    (1, 3, 2, 8, {}),
    (20, 13, 1, 110, {}),
    (20, 13, 1, 110, {"sequence": False}),
    (9, 8, 3, 128, {"cells": True}),
    (11, 5, 2, 17, {"candidate": "sigmoid"}),
    (7, 20, 9, 64, {"sequence": False}),
    (300, 9, 1, 33, {}),
    (300, 60, 1, 33, {}),
    (12, 5, 2, 150, {}),
    (40, 19, 1, 220, {"sequence": False}),
    (9, 8, 5, 256, {"cells": True}),
    (1, 3, 2, 129, {}),
    (9, 6, 5, 300, {"cells": True, "candidate": "sigmoid"}),
    (30, 9, 1, 384, {}),
    (9, 6, 5, 400, {"cells": True, "candidate": "sigmoid"}),
    (7, 37, 1, 500, {"sequence": False}),
]


def errors(tensors, **options):
    """Of outputs and of gradients, by name, relative to float64."""
    outputs, gradients = results(tensors, "cuda", **options)
    right_outputs, right_gradients = results(
        {name: part.double() for name, part in tensors.items()}, "reference", **options
    )
    return (
        {name: relative_error(outputs[name], right) for name, right in right_outputs.items()},
        {name: relative_error(gradients[name], right) for name, right in right_gradients.items()},
    )


# Every layout: blocks that share a tile's units, 0 for step by step; samples of a thread; steps that are read ahead.
SMALL_CASES = [
    (1, 1, 3, (5, 6, 1, 20, False, {})),
    (1, 2, 2, (3, 9, 6, 33, True, {"cells": True, "candidate": "sigmoid"})),
    (4, 2, 1, (4, 9, 1, 40, False, {"sequence": False})),
    (4, 1, 2, (3, 3, 6, 70, True, {"cells": True, "candidate": "sigmoid"})),
    (8, 1, 4, (3, 3, 2, 70, False, {})),
    (0, 2, 1, (4, 35, 1, 20, False, {})),
    (0, 2, 1, (3, 3, 5, 40, True, {"cells": True, "candidate": "sigmoid"})),
]


def alternating(cases: list) -> list[tuple]:
    """Every case in one precision, the first in both: each pair of kernels takes seconds to compile."""
    turns = [("highest" if number % 2 else "high", *case) for number, case in enumerate(cases)]
    return [("highest", *cases[0]), *turns]


@pytest.mark.parametrize(
    ("precision", "ranks", "samples", "ahead", "case"), alternating(SMALL_CASES), ids=str, indirect=["precision"]
)
def test_kernels_emulated_on_a_cpu(precision, ranks, samples, ahead, case, emulated, monkeypatch):
    emulated(ranks, samples=samples)
    monkeypatch.setattr(scan, "AHEAD", {"forward": ahead, "backward": ahead})
    steps, batch, inputs, hidden, per_sample, options = case
    found = errors(operands(steps, batch, inputs, hidden, per_sample, device="cpu"), **options)
    for kind, values in zip(("outputs", "gradients"), found):
        assert all(value < EMULATED[precision][kind] for value in values.values()), values


@pytest.mark.parametrize("precision", ["high"], indirect=True)
@pytest.mark.parametrize(("ranks", "samples"), [(1, 2), (4, 1)])
def test_emulated_many_rows_are_kept_in_16_bits(precision, ranks, samples, emulated, monkeypatch):
    emulated(ranks, samples=samples)
    tensors = operands(4, 9, 2, 40, device="cpu")
    few = max(errors(tensors)[1].values())
    monkeypatch.setattr(scan, "FEW_ROWS", 35)
    many = max(errors(tensors)[1].values())
    assert few < EMULATED["high"]["gradients"] < many < 1.5e-2


# The same, with a table of its own for h; which of the two are per sample.
TWO_TABLES = [
    (1, 1, 3, (5, 6, 1, 20, True, True), {}),
    (1, 2, 2, (3, 9, 6, 33, False, True), {"cells": True, "candidate": "sigmoid"}),
    (4, 2, 1, (4, 9, 1, 40, True, False), {"sequence": False}),
    (4, 1, 2, (3, 3, 6, 70, True, True), {"cells": True, "candidate": "sigmoid"}),
    (8, 1, 4, (3, 3, 2, 70, False, False), {}),
]


@pytest.mark.parametrize(
    ("precision", "ranks", "samples", "ahead", "case", "options"),
    alternating(TWO_TABLES), ids=str, indirect=["precision"],
)  # fmt: skip
def test_emulated_two_tables(precision, ranks, samples, ahead, case, options, emulated, monkeypatch):
    emulated(ranks, samples=samples)
    monkeypatch.setattr(scan, "AHEAD", {"forward": ahead, "backward": ahead})
    check_two_tables(two_tables(*case, device="cpu"), EMULATED[precision], **options)


@pytest.mark.parametrize("precision", ["high"], indirect=True)
def test_emulated_two_tables_of_several_models(precision, emulated):
    emulated(4)
    check_two_tables(two_tables(4, 5, 2, 20, True, False, models=(2,), device="cpu"), EMULATED[precision])


@on_device
@both_precisions
@pytest.mark.parametrize(
    ("hidden", "per_sample", "h_per_sample"), [(33, True, True), (110, True, False), (300, False, True)]
)
def test_two_tables(precision, hidden, per_sample, h_per_sample):
    check_two_tables(two_tables(40, 37, 1, hidden, per_sample, h_per_sample), LIMITS[precision])


def check_two_tables(tensors, limits, **options):
    for kind, values in zip(("outputs", "gradients"), errors(tensors, **options)):
        assert all(value < limits[kind] for value in values.values()), values
    outputs, gradients = results(tensors, "cuda", **options)
    for name in ("k", "k_h"):
        assert (gradients[name][tensors[name] == 0] == 0).all()
    with torch.no_grad():  # without a tape
        given = [tensor for name, tensor in tensors.items() if name != "k_h"]
        alone = gated_lstm(*given, k_h=tensors["k_h"], backend="cuda", **options)
    for name, part in outputs.items():
        assert torch.equal(getattr(alone, name), part)


def test_two_tables_at_their_ends(emulated):
    """k_h = k is one table, to the bit; where a table is 0, that state is copied to the bit."""
    emulated(1)
    tensors = two_tables(5, 3, 1, 20, True, True, device="cpu")
    same = results({**tensors, "k_h": tensors["k"]}, "cuda")[0]
    one = results({name: part for name, part in tensors.items() if name != "k_h"}, "cuda")[0]
    assert all(torch.equal(part, same[name]) for name, part in one.items())
    for open_c, open_h in ((0.0, 1.0), (1.0, 0.0)):
        tables = {"k": torch.full_like(tensors["k"], open_c), "k_h": torch.full_like(tensors["k_h"], open_h)}
        made = results({**tensors, **tables}, "cuda")[0]
        assert torch.equal(made["h_n"], tensors["h0"]) == (open_h == 0)
        assert torch.equal(made["c_n"], tensors["c0"]) == (open_c == 0)


@pytest.mark.parametrize(
    ("major", "room", "precision", "largest"),
    [(9, ROOM, "highest", 384), (9, ROOM, "high", 384), (8, 166_912, "high", 128), (8, 101_376, "highest", 96)],
    indirect=["precision"],
)
def test_how_many_units_may_have_two_tables(major, room, precision, largest, monkeypatch):
    device = SimpleNamespace(major=major, multi_processor_count=132, shared_memory_per_block_optin=room)
    monkeypatch.setattr(gpu, "properties", lambda _: device)
    exact, where = precision == "highest", torch.device("cpu")
    found = [hidden for hidden in range(1, 500) if gpu.in_one_kernel(hidden, exact, where)]
    assert found == list(range(1, largest + 1))
    for batch in (1, 100, 5000):  # whatever is chosen for a batch fits, too
        assert all(gpu.shape_of(1, 9, batch, hidden, exact, where) for hidden in found)


@pytest.mark.parametrize("ranks", [1, 4, 0])
def test_emulated_a_lost_sample_takes_no_other_with_it(emulated, ranks):
    emulated(ranks)
    check_lost_samples("cpu", 20)


@on_device
@pytest.mark.parametrize("hidden", [20, 70, 385])
def test_a_lost_sample_takes_no_other_with_it(hidden):
    check_lost_samples("cuda", hidden)


def check_lost_samples(device, hidden):
    """NaN at a step at which every unit is closed is not read; elsewhere it stays in its sample, in both passes."""
    tensors = operands(4, 5, 2, hidden, device=device)
    tensors["k"][1] = 0
    right = results(tensors, "cuda")
    tensors["x"][1, 2] = torch.nan
    for mine, others in zip(right, results(tensors, "cuda")):
        assert all(torch.equal(part, others[name]) for name, part in mine.items())
    tensors["x"][0, 2] = torch.nan
    outputs, gradients = results(tensors, "cuda")
    others = [0, 1, 3, 4]
    assert outputs["h"][-1, 2].isnan().any()
    assert torch.equal(outputs["h"][:, others], right[0]["h"][:, others])
    assert gradients["w_ih"].isnan().any()
    for name, part in (("x", gradients["x"][:, others]), ("h0", gradients["h0"][others])):
        expected = right[1][name][:, others] if name == "x" else right[1][name][others]
        assert relative_error(part, expected) < 1e-5


@pytest.mark.parametrize("ranks", [1, 4, 0])
def test_emulated_the_precision_may_change_before_the_way_back(emulated, ranks):
    emulated(ranks)
    check_precision_change("cpu", 20)


@on_device
@pytest.mark.parametrize("hidden", [20, 70, 385])
def test_the_precision_may_change_before_the_way_back(hidden):
    check_precision_change("cuda", hidden)


def check_precision_change(device, hidden):
    """The tape knows how it was written."""
    tensors = [tensor.requires_grad_() for tensor in operands(3, 3, 1, hidden, device=device).values()]
    found = []
    setting = torch.get_float32_matmul_precision()
    for before, after in (("high", "high"), ("high", "highest"), ("highest", "highest"), ("highest", "high")):
        torch.set_float32_matmul_precision(before)
        h_n = gated_lstm(*tensors, backend="cuda", sequence=False).h_n
        torch.set_float32_matmul_precision(after)
        found.append(torch.autograd.grad(h_n.sum(), tensors))
    torch.set_float32_matmul_precision(setting)
    for one, other in ((found[0], found[1]), (found[2], found[3])):
        assert all(relative_error(a, b) < 0.02 for a, b in zip(one, other))


@pytest.mark.parametrize("taped", [False, True])
def test_emulated_step_by_step_in_pieces(emulated, monkeypatch, taped):
    emulated(0)
    tensors = operands(5, 3, 1, 20, device="cpu", models=(2,))
    whole = gated_lstm(*tensors.values(), backend="cuda", cells=True)
    monkeypatch.setattr(gpu, "PIECE", 2 * 6 * 2 * 3 * 20)
    if taped:
        tensors["w_hh"].requires_grad_()
    found = gated_lstm(*tensors.values(), backend="cuda", cells=True)
    assert all(torch.equal(one, other) for one, other in zip(whole, found))


def test_emulated_models_side_by_side(emulated):
    emulated(1)
    tensors = operands(3, 3, 2, 20, device="cpu", models=(2,))
    outputs, gradients = results(tensors, "cuda", weighted=False)
    for m in range(2):
        alone = {name: tensor if name == "x" else tensor[m] for name, tensor in tensors.items()}
        own_outputs, own_gradients = results(alone, "cuda", weighted=False)
        assert all(torch.equal(outputs[name][m], part) for name, part in own_outputs.items())
        assert all(torch.equal(gradients[name][m], own_gradients[name]) for name in ("w_hh", "k", "h0"))


@on_device
@pytest.mark.parametrize("hidden", [40, 110, 400])
def test_autocast_changes_nothing(hidden):
    """With more inputs than the kernel multiplies itself, torch's own products must not be rounded on the way."""
    tensors = operands(6, 4, 9, hidden)
    right = results(tensors, "cuda")
    with torch.autocast("cuda", torch.bfloat16):
        found = results(tensors, "cuda")
    for one, other in zip(right, found):
        assert all(torch.equal(part, other[name]) for name, part in one.items())


@on_device
@both_precisions
def test_odd_strides_zeros_in_the_middle_and_changing_batches(precision):
    tensors = operands(20, 9, 2, 110)
    tensors["k"][:, :] = 0.5
    tensors["k"][6:12, 32:64] = 0  # open at both ends: the loop without branches has closed warps, too
    assert max(errors(tensors)[1].values()) < LIMITS[precision]["gradients"]
    outputs, gradients = results(tensors, "cuda")
    strided = {name: part.mT.contiguous().mT if part.dim() > 1 else part for name, part in tensors.items()}
    for one, other in zip((outputs, gradients), results(strided, "cuda")):
        assert all(torch.equal(part, other[name]) for name, part in one.items())
    compiled = torch.compile(lambda **parts: gated_lstm(**parts).h_n, backend="aot_eager", dynamic=True)
    for batch in (9, 3, 300):
        own = operands(20, batch, 2, 110)
        assert relative_error(compiled(**own), gated_lstm(**own).h_n) < 1e-6


@on_device
@both_precisions
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("ranks", ["as chosen", 1])
def test_outputs_and_gradients_against_float64(precision, case, per_sample, ranks, monkeypatch):
    steps, batch, inputs, hidden, options = case
    if ranks == 1:
        if not scan.WORTH_SHARING < hidden <= scan.ROOM[1]:
            pytest.skip("there is only one way")
        monkeypatch.setattr(scan, "ranks_for", lambda *_: 1)
    tensors = operands(steps, batch, inputs, hidden, per_sample)
    limits = dict(LIMITS[precision])
    if precision == "high" and steps * batch > scan.FEW_ROWS:
        limits["gradients"] = ROUNDED
    for kind, values in zip(("outputs", "gradients"), errors(tensors, **options)):
        assert all(value < limits[kind] for value in values.values()), values


def check_same_bits(tensors):
    first = results(tensors, "cuda")
    for _ in range(20):
        again = results(tensors, "cuda")
        assert all(torch.equal(first[part][name], again[part][name]) for part in (0, 1) for name in first[part])


@on_device
@both_precisions
@pytest.mark.parametrize("hidden", [110, 220])
def test_the_same_bits_from_run_to_run(precision, hidden):
    check_same_bits(operands(50, 40, 1, hidden))


@on_device
@both_precisions
@pytest.mark.parametrize("hidden", [48, 140, 400])
def test_a_model_of_a_population_is_the_network_alone(precision, hidden):
    tensors = operands(15, 10, 2, hidden, models=(3,))
    outputs, gradients = results(tensors, "cuda", weighted=False)
    for m in range(3):
        alone = {name: tensor if name == "x" else tensor[m] for name, tensor in tensors.items()}
        own_outputs, own_gradients = results(alone, "cuda", weighted=False)
        if hidden <= scan.LARGEST:
            assert all(torch.equal(outputs[name][m], part) for name, part in own_outputs.items())
        assert all(relative_error(outputs[name][m], part) < 1e-3 for name, part in own_outputs.items())
        del own_gradients["x"]  # shared: the population's is a sum
        limit = 1e-5 if hidden <= scan.LARGEST or precision == "highest" else 5e-3
        assert all(relative_error(gradients[name][m], part) < limit for name, part in own_gradients.items())


def test_a_population_without_a_device_runs_one_by_one():
    tensors = operands(6, 4, 2, 5, models=(3,), device="cpu")
    outputs, gradients = results(tensors, "auto")
    for m in range(3):
        alone = {name: tensor if name == "x" else tensor[m] for name, tensor in tensors.items()}
        own_outputs, own_gradients = results(alone, "auto")
        assert outputs["h_n"][m].shape == own_outputs["h_n"].shape == (4, 5)
        assert gradients["w_hh"][m].shape == own_gradients["w_hh"].shape
    with pytest.raises(ValueError, match="or one for each model, but has shape"):
        gated_lstm(torch.zeros(2, 6, 4, 2), *list(tensors.values())[1:])


@on_device
@both_precisions
@pytest.mark.parametrize("hidden", [32, 110, 220, 400])
def test_it_goes_into_a_cuda_graph(precision, hidden):
    tensors = operands(12, 9, 1, hidden)
    tensors = {name: tensor.requires_grad_() for name, tensor in tensors.items()}

    def step():
        output = gated_lstm(*tensors.values(), sequence=False)
        return torch.autograd.grad(output.h_n.sum(), list(tensors.values()))

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        tensors["x"].mul_(0.5)
    graph.replay()
    assert all(torch.equal(one, other) for one, other in zip(captured, step()))


@on_device
@both_precisions
@pytest.mark.parametrize("hidden", [32, 110, 150, 400])
def test_it_compiles_with_torch_and_runs_in_segments(precision, hidden):
    tensors = operands(12, 9, 2, hidden)
    leaves = [tensor.requires_grad_() for tensor in tensors.values()]

    def final_h(segment=None):
        return gated_lstm(*leaves, sequence=False, segment=segment).h_n.sum()

    right = torch.autograd.grad(final_h(), leaves)
    compiled = torch.compile(final_h, backend="aot_eager", fullgraph=True)
    for found in (torch.autograd.grad(compiled(), leaves), torch.autograd.grad(final_h(segment=5), leaves)):
        assert all(relative_error(one, other) < LIMITS[precision]["gradients"] for one, other in zip(found, right))


@on_device
@both_precisions
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_layer_on_the_device(precision, dtype):
    layer = GLSTM(2, 20, mu=(1, 30), sigma=6.0, threshold=0.01)
    x = torch.randn(30, 5, 2)
    right = layer.double()(x.double())[0].detach()
    layer = layer.to("cuda", dtype)
    found = layer(x.to("cuda", dtype))[0]
    assert found.dtype == dtype
    assert relative_error(found.float().cpu(), right) < (0.02 if dtype != torch.float32 else 1e-3)
    found.float().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())
    with torch.no_grad():
        assert torch.allclose(layer(x.to("cuda", dtype))[0].float(), found.float(), atol=1e-6)


@on_device
@both_precisions
def test_a_device_with_little_shared_memory_goes_step_by_step(precision, monkeypatch):
    little = SimpleNamespace(major=8, multi_processor_count=100, shared_memory_per_block_optin=60_000)
    monkeypatch.setattr(gpu, "properties", lambda device: little)
    tensors = operands(10, 4, 1, 110)
    assert (gpu.shape_for(tensors["x"], tensors["w_hh"], precision == "highest") is None) == (precision == "highest")
    outputs, gradients = results(tensors, "cuda")
    right_outputs, right_gradients = results({name: tensor.double() for name, tensor in tensors.items()}, "reference")
    assert relative_error(outputs["h"], right_outputs["h"]) < LIMITS[precision]["outputs"]
    assert relative_error(gradients["w_hh"], right_gradients["w_hh"]) < LIMITS[precision]["gradients"]


@needs_compiler
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("exact", [False, True])
def test_the_steps_of_large_networks_compile(architecture, exact):
    run = steps.kernels(500, "tanh", exact, exact)
    assert compile_kernels(run.source, architecture, run.constants).startswith(b"\x7fELF")


def test_the_cuda_backend_says_what_it_needs():
    with pytest.raises(ValueError, match=r"on an NVIDIA device, .* not torch\.float32 on cpu"):
        GLSTM(1, 5, backend="cuda")(torch.randn(5, 2, 1))
