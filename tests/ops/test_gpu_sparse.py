"""The CUDA engine's path for many sequences with few open units, on an emulated device and on a real one."""

import pytest
import torch

from glstm.ops import gated_lstm
from glstm.ops.gpu import choice, sparse
from glstm.ops.gpu.runtime import compile_kernels, compiler
from helpers import relative_error
from ops.test_gpu import EMULATED, both_precisions, errors, on_device, results

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no NVRTC here")


def operands(steps, batch, inputs, hidden, models=(), device="cpu", table="once", carried=False, own_x=False):
    """table: units open 'once', at moments in order; 'often', at random; or 'never'."""
    generator = torch.Generator().manual_seed(3)

    def draw(*shape, scale=1.0):
        return (scale * torch.randn(*models, *shape, generator=generator)).to(device)

    scale = 1.2 / hidden**0.5
    moments = torch.rand(*models, 1, hidden, generator=generator).sort(-1).values * steps
    k = torch.exp(-(((torch.arange(steps).view(-1, 1) - moments) / (0.06 * steps)) ** 2))
    if table == "often":
        k = torch.rand(*models, steps, hidden, generator=generator)
        k = torch.where(k < 1 - 5 / hidden, 0, k)
    k = torch.where(k < 0.01, 0, k)
    k[..., : steps // 4, 0] = 1  # fully open, and then closed
    if table == "never":
        k.zero_()
    state = (batch, hidden)
    return {
        "x": torch.randn(*(models if own_x else ()), steps, batch, inputs, generator=generator).to(device),
        "w_ih": draw(4 * hidden, inputs, scale=scale),
        "w_hh": draw(4 * hidden, hidden, scale=scale),
        "b": draw(4 * hidden, scale=scale),
        "k": k.to(device),
        "h0": draw(*state, scale=0.3) if carried else torch.zeros(*models, *state, device=device),
        "c0": draw(*state, scale=0.3) if carried else torch.zeros(*models, *state, device=device),
    }


@pytest.fixture
def sparse_path():
    with choice.forcing("sparse"):
        yield


SMALL_CASES = [
    (12, 3, 1, 9, {}),
    (20, 9, 2, 33, {"models": (2,)}),
    (14, 11, 4, 20, {"table": "often", "carried": True}),
    (9, 5, 1, 70, {"table": "often", "models": (2,), "own_x": True}),
    (25, 3, 3, 40, {"carried": True}),
    (5, 2, 1, 6, {"table": "never", "carried": True}),
    (1, 1, 1, 1, {}),
]
CASES = [
    *SMALL_CASES,
    (97, 35, 3, 110, {"carried": True}),
    (200, 19, 1, 110, {"models": (3,)}),
    (90, 40, 2, 200, {}),
    (60, 13, 2, 384, {"table": "often"}),
]


def check_errors(limits, case, device, candidate):
    *sizes, options = case
    tensors = operands(*sizes, **options, device=device)
    # Gradients of h0 ask for more: without them, the shorter way through the backward pass is taken.
    for need_h0 in (True, False):
        found = errors_of(tensors, need_h0, candidate)
        for kind, values in zip(("outputs", "gradients"), found):
            assert all(value < limits[kind] for value in values.values()), values


def errors_of(tensors, need_h0: bool, candidate: str):
    if need_h0:
        return errors(tensors, sequence=False, candidate=candidate)
    outputs, gradients = final_h(tensors, "cuda", candidate)
    right_outputs, right = final_h({name: part.double() for name, part in tensors.items()}, "reference", candidate)
    return {"h_n": relative_error(outputs, right_outputs)}, {n: relative_error(gradients[n], right[n]) for n in right}


def final_h(tensors, backend: str, candidate: str = "tanh", weighted: bool = True):
    leaves = {
        name: tensor.detach().clone().requires_grad_(name not in ("h0", "c0")) for name, tensor in tensors.items()
    }
    h_n = gated_lstm(*leaves.values(), backend=backend, sequence=False, candidate=candidate).h_n
    wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    drawn = torch.randn(h_n.shape, generator=torch.Generator().manual_seed(4)).to(h_n)
    weights = drawn if weighted else torch.ones_like(h_n)
    return h_n.detach(), dict(zip(wanted, torch.autograd.grad((h_n * weights).sum(), list(wanted.values()))))


@pytest.mark.parametrize(
    ("precision", "case"),
    [*(("highest", case) for case in SMALL_CASES), ("high", SMALL_CASES[2])],
    indirect=["precision"],
    ids=str,
)
def test_emulated_against_float64(precision, case, emulated, sparse_path):
    emulated(1)
    check_errors(EMULATED[precision], case, "cpu", "sigmoid" if case[0] == 20 else "tanh")


@on_device
@both_precisions
@pytest.mark.parametrize("candidate", ["tanh", "sigmoid"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_float64(precision, case, candidate, sparse_path):
    check_errors(EMULATED[precision], case, "cuda", candidate)


def spans_of(k):
    """Open units of every span, and where it begins: by hand."""
    found = []
    for t, row in enumerate(k.tolist()):
        units = {unit for unit, value in enumerate(row) if value != 0}
        if not found or units != found[-1][1]:
            found.append((t, units))
    return found


@pytest.mark.parametrize(("table", "hidden"), [("once", 70), ("often", 33), ("never", 5)])
def test_emulated_schedules(emulated, table, hidden):
    emulated(1)
    k = operands(70, 1, 1, hidden, models=(2,), table=table)["k"].contiguous()
    schedule = sparse.schedule_of(k)
    for m in range(2):
        right = spans_of(k[m])
        count = schedule.counts[m].tolist()
        assert count[sparse.SPANS] == len(right)
        assert count[sparse.PAIRS] == int(k[m].count_nonzero())
        before, slots_before, pairs, ever, afresh = set(), {}, 0, set(), 0
        for number, (start, units) in enumerate(right):
            end = right[number + 1][0] if number + 1 < len(right) else 70
            record = schedule.records[m, number].tolist()
            start_at, end_at, first, reach, opened, opens, closes, again = record[:8]
            assert (start_at, end_at, first, reach) == (start, end, pairs, max(ever, default=-1) + 1)
            slots = {record[8 + slot]: slot for slot in bits(opened)}
            assert set(slots) == units
            assert {record[8 + slot] for slot in bits(opens)} == units - before
            assert {record[8 + slot] for slot in bits(closes)} == before - units
            assert {record[8 + slot] for slot in bits(again)} == (units - before) & ever
            assert all(slots[unit] == slots_before[unit] for unit in units & before)
            assert not set(bits(opened)) & set(bits(closes))  # who closes keeps its slot until the next span
            assert all(schedule.steps[m, t] == number for t in range(start, end))
            pairs += len(units) * (end - start)
            afresh += len(units) if again else len(units - before)
            before, slots_before, ever = units, slots, ever | units
        assert count[sparse.AFRESH] == afresh


def bits(mask: int) -> list[int]:
    return [bit for bit in range(32) if mask >> bit & 1]


def test_emulated_several_gradients_at_once(emulated, sparse_path):
    """torch then calls the registered operator, which has the tape but not the schedule."""
    emulated(1)
    tensors = operands(12, 3, 1, 9)
    wanted = [tensors[name].requires_grad_() for name in ("x", "w_hh", "k")]
    h_n = gated_lstm(*tensors.values(), backend="cuda", sequence=False).h_n
    arriving = torch.randn(2, *h_n.shape)
    found = torch.autograd.grad(h_n, wanted, arriving, is_grads_batched=True, retain_graph=True)
    for n in range(2):
        right = torch.autograd.grad(h_n, wanted, arriving[n], retain_graph=True)
        assert all(torch.equal(mine[n], expected) for mine, expected in zip(found, right))


def test_emulated_compiled_calls_have_tapes_of_known_size(emulated, sparse_path):
    emulated(1)
    tensors = operands(12, 3, 1, 9)
    tensors["w_hh"].requires_grad_()
    h_n = torch.compile(lambda **parts: gated_lstm(**parts, backend="cuda", sequence=False).h_n, backend="aot_eager")
    (found,) = torch.autograd.grad(h_n(**tensors).sum(), tensors["w_hh"])
    (right,) = torch.autograd.grad(gated_lstm(**tensors, backend="cuda", sequence=False).h_n.sum(), tensors["w_hh"])
    assert relative_error(found, right) < EMULATED["highest"]["gradients"]


def check_lost_samples(device):
    """NaN at a step at which every unit is closed is not read; elsewhere it stays in its sample, in both passes."""
    tensors = operands(16, 11, 2, 20, models=(2,), device=device, carried=True)
    tensors["k"][:, 9] = 0
    right = results(tensors, "cuda", sequence=False)
    tensors["x"][9, 2] = torch.nan
    for mine, others in zip(right, results(tensors, "cuda", sequence=False)):
        assert all(torch.equal(part, others[name]) for name, part in mine.items())
    tensors["x"][2, 2] = torch.nan
    outputs, gradients = results(tensors, "cuda", sequence=False)
    others = [sample for sample in range(11) if sample != 2]
    assert outputs["h_n"][:, 2].isnan().any()
    assert torch.equal(outputs["h_n"][:, others], right[0]["h_n"][:, others])
    assert gradients["w_ih"].isnan().any()
    assert relative_error(gradients["x"][:, others], right[1]["x"][:, others]) < 1e-5
    assert relative_error(gradients["h0"][:, others], right[1]["h0"][:, others]) < 1e-5


@both_precisions
def test_emulated_a_lost_sample_takes_no_other_with_it(precision, emulated, sparse_path):
    emulated(1)
    check_lost_samples("cpu")


@on_device
@both_precisions
def test_a_lost_sample_takes_no_other_with_it(precision, sparse_path):
    check_lost_samples("cuda")


def check_closed_and_open(device):
    """k = 0 copies the state bit for bit, k = 1 leaves nothing of the old h, and dk is 0 where k is 0."""
    tensors = operands(10, 9, 1, 12, device=device, carried=True)
    tensors["k"].zero_()
    h_n, gradients = final_h(tensors, "cuda")
    assert torch.equal(h_n, tensors["h0"])
    assert not gradients["k"].any()
    tensors["k"][4, 3:6] = 1
    h_n, gradients = final_h(tensors, "cuda")
    closed = [unit for unit in range(12) if unit not in (3, 4, 5)]
    assert torch.equal(h_n[:, closed], tensors["h0"][:, closed])
    tensors["h0"][:, 3:6] = 0  # only what these units themselves had is lost
    tensors["w_hh"][:, 3:6] = 0
    changed, _ = final_h(tensors, "cuda")
    tensors["h0"][:, 3:6] = 0.7
    assert torch.equal(final_h(tensors, "cuda")[0], changed)
    assert not gradients["k"][tensors["k"] == 0].any()
    assert gradients["k"][4, 3:6].all()


@both_precisions
def test_emulated_closed_and_fully_open_units(precision, emulated, sparse_path):
    emulated(1)
    check_closed_and_open("cpu")


@on_device
@both_precisions
def test_closed_and_fully_open_units(precision, sparse_path):
    check_closed_and_open("cuda")


def check_precision_change(device):
    tensors = [tensor.requires_grad_() for tensor in operands(12, 3, 1, 9, device=device).values()]
    setting = torch.get_float32_matmul_precision()
    try:
        for before, after in (("high", "highest"), ("highest", "high")):
            torch.set_float32_matmul_precision(before)
            one, other = (gated_lstm(*tensors, backend="cuda", sequence=False).h_n for _ in range(2))
            right = torch.autograd.grad(one.sum(), tensors)
            torch.set_float32_matmul_precision(after)
            found = torch.autograd.grad(other.sum(), tensors)
            assert all(torch.equal(mine, expected) for mine, expected in zip(found, right))
    finally:
        torch.set_float32_matmul_precision(setting)


def test_emulated_the_precision_may_change_before_the_way_back(emulated, sparse_path):
    emulated(1)
    check_precision_change("cpu")


@on_device
def test_the_precision_may_change_before_the_way_back(sparse_path):
    check_precision_change("cuda")


def check_models_alone(device):
    tensors = operands(20, 9, 2, 33, models=(2,), device=device)
    h_n, gradients = final_h(tensors, "cuda", weighted=False)
    for m in range(2):
        alone = {name: part if name == "x" else part[m] for name, part in tensors.items()}
        own_h, own = final_h(alone, "cuda", weighted=False)
        assert torch.equal(h_n[m], own_h)
        del own["x"]  # shared: the population's is a sum
        assert all(torch.equal(gradients[name][m], part) for name, part in own.items())


def test_emulated_a_model_of_a_population_is_the_network_alone(emulated, sparse_path):
    emulated(1)
    check_models_alone("cpu")


def test_emulated_many_tiles_are_added_up_in_groups(emulated, sparse_path, monkeypatch):
    emulated(1)
    tensors = operands(12, 19, 1, 9)
    _, right = final_h(tensors, "cuda")
    monkeypatch.setattr(sparse, "MANY_TILES", 2)
    _, found = final_h(tensors, "cuda")
    assert all(relative_error(found[name], part) < 1e-6 for name, part in right.items())


@on_device
@both_precisions
def test_a_model_of_a_population_is_the_network_alone(precision, sparse_path):
    check_models_alone("cuda")


@on_device
@both_precisions
def test_the_same_bits_from_run_to_run(precision, sparse_path):
    tensors = operands(200, 100, 1, 110, models=(4,), device="cuda")
    first = final_h(tensors, "cuda")
    for _ in range(20):
        h_n, gradients = final_h(tensors, "cuda")
        assert torch.equal(h_n, first[0])
        assert all(torch.equal(part, first[1][name]) for name, part in gradients.items())


@on_device
@both_precisions
def test_it_goes_into_a_cuda_graph(precision):
    tensors = operands(60, 40, 1, 50, models=(3,), device="cuda")
    leaves = [tensor.requires_grad_() for tensor in tensors.values()]
    room = choice.room_for(sparse.schedule_of(tensors["k"].detach()).counts.tolist())

    def step():
        with choice.planned(room) as plan:
            found = torch.autograd.grad(gated_lstm(*leaves, sequence=False).h_n.sum(), leaves)
        assert plan.used
        return found

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        tensors["k"].copy_(tensors["k"].roll(5, 1))  # other openings, as many pairs
    graph.replay()
    assert all(torch.equal(one, other) for one, other in zip(captured, step()))


@needs_compiler
@pytest.mark.parametrize(
    ("architecture", "blocks", "exact", "candidate"),
    [
        ("sm_80", 1, True, "sigmoid"),
        ("sm_90", 2, False, "tanh"),
        ("sm_90", 3, True, "tanh"),
        ("sm_100", 2, True, "tanh"),
    ],
)
def test_every_kernel_compiles(architecture, blocks, exact, candidate):
    kind = sparse.Kind(110, 1 + blocks, blocks, candidate, exact)
    for run in (kind.kernels("forward", TAPED=True), kind.kernels("backward", NEED_X=exact), schedule_kernels(110)):
        assert compile_kernels(run.source, architecture, run.constants).startswith(b"\x7fELF")


def schedule_kernels(hidden):
    return sparse._kernels("schedule", H=hidden, D=0, LOGISTIC=False, EXACT=False)
