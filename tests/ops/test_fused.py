"""A layer and its gate as one operator: the kernels of gates, and whole layers against float64, emulated on the CPU."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from emulated import started
from glstm import GLSTM, LSTM, PLSTM
from glstm.gated import GatedLSTM
from glstm.gates import Gaussian, Open, Periodic, Phased
from glstm.ops.fused import GAUSSIAN, OPEN, PERIODIC, PHASED
from glstm.ops.gpu import choice, fused
from glstm.ops.gpu.runtime import Prepared, compile_kernels, compiler
from glstm.timed import table
from glstm.times import PLAIN, Frame
from helpers import relative_error

on_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no NVRTC here")

LIMITS = {"high": 3e-3, "highest": 1e-4}  # of few steps and samples: rounding averages out less


both_precisions = pytest.mark.parametrize("precision", LIMITS, indirect=True)
exactly = pytest.mark.parametrize("precision", ["highest"], indirect=True)

VALUES = {
    OPEN: (Open(), {}),
    GAUSSIAN: (Gaussian(), {"mu": (-3.0, 12.0), "sigma": (-4.0, 4.0)}),
    PHASED: (Phased(), {"tau": (-6.0, 6.0), "s": (-2.0, 4.0), "r": (0.1, 1.4)}),
    PERIODIC: (Periodic(), {"mu": (-3.0, 12.0), "sigma": (-2.0, 2.0), "tau": (-6.0, 6.0)}),
}
STEPS, SAMPLES, HIDDEN = 7, 3, 37


@needs_compiler
@pytest.mark.parametrize("kind", VALUES)
def test_every_gate_compiles(kind):
    kinds = [(times, framed) for times in (fused.COUNTED, fused.FLOATS, fused.DOUBLES) for framed in (False, True)]
    for architecture, wanted in (("sm_80", kinds[-1:]), ("sm_90", kinds), ("sm_100", kinds[-1:])):
        for times, framed in wanted:
            code = compile_kernels(fused.source(), architecture, fused.gate_constants(kind, times, framed))
            assert code.startswith(b"\x7fELF")


def moments(times: str, per_sample: bool) -> torch.Tensor:
    counted = torch.arange(1, STEPS + 1).double()
    if times == "counted":
        return counted.float()
    shape = (STEPS, SAMPLES) if per_sample else (STEPS,)
    drawn = torch.rand(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).cumsum(0) * 3
    return drawn.float() if times == "floats" else drawn


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("times", ["counted", "floats", "doubles"])
@pytest.mark.parametrize("frame", [PLAIN, Frame(0.7, 1.3)])
@pytest.mark.parametrize("backwards", [False, True])
def test_emulated_gates_open_as_in_python(emulated, kind, times, frame, backwards):
    """k and the gradient of every value, in training and in evaluation, against torch's own derivatives in float64."""
    gate, ranges = VALUES[kind]
    generator = torch.Generator().manual_seed(1)
    values = {
        name: low + (high - low) * torch.rand(HIDDEN, generator=generator) for name, (low, high) in ranges.items()
    }
    if "sigma" in values:
        values["sigma"][:3] = torch.tensor([0.0, 1e-7, 1e4])
    if "r" in values:  # beyond 0 and 1, where it is reflected
        values["r"][:5] = torch.tensor([1.3, -0.2, 2.5, -1.6, 7.3])
    for per_sample, training, threshold in ((False, True, 0.0), (True, False, 0.2), (True, True, 0.0)):
        if per_sample and times == "counted":
            continue
        given = moments(times, per_sample)
        rows = STEPS * (SAMPLES if per_sample else 1)
        tiles = 1 if per_sample else 2
        leaves = {name: value.double().requires_grad_() for name, value in values.items()}
        single = table(gate, values, frame, given, threshold, training, HIDDEN, torch.float32)
        right = table(gate, leaves, frame, given.double(), threshold, training, HIDDEN, torch.float64)
        single, right = (k.flip(0).reshape(-1, HIDDEN) if backwards else k.reshape(-1, HIDDEN) for k in (single, right))
        dk = torch.randn(tiles, rows, HIDDEN, generator=generator)
        k, dv = kernels_of_gate(kind, values, given, times, frame, per_sample, training, threshold, backwards, dk)
        assert torch.allclose(k, single, rtol=1e-5, atol=1e-6)
        if not values:
            continue
        # A value may lie within rounding of a corner or of the threshold; there, either side is right.
        sure = ((single == 0) == (right == 0)) & (k != 0)
        counted = torch.where(sure, dk.sum(0), 0)
        _, dv = kernels_of_gate(
            kind, values, given, times, frame, per_sample, training, threshold, backwards,
            torch.cat((counted[None], torch.zeros(tiles - 1, rows, HIDDEN))),
        )  # fmt: skip
        expected = torch.autograd.grad((right * counted).sum(), list(leaves.values()))
        for found, exact in zip(dv, expected, strict=True):
            assert found.isfinite().all()
            assert relative_error(found, exact) < 2e-4


def kernels_of_gate(kind, values, given, times, frame, per_sample, training, threshold, backwards, dk):
    leak = 1e-3 if training else 0.0
    samples, tiles, rows = SAMPLES if per_sample else 1, *dk.shape[:2]
    kernels = fused.gate_kernels(kind, ("counted", "floats", "doubles").index(times), frame != PLAIN)
    k, b, chunks = torch.full((rows, HIDDEN), torch.nan), torch.empty(4 * HIDDEN), 2
    parts = torch.full((chunks, 3, HIDDEN), torch.nan)
    numbers = (HIDDEN, 1, STEPS, samples, int(backwards))
    at = [value.data_ptr() for value in values.values()] + [0] * (3 - len(values))
    biases = torch.randn(2, 4 * HIDDEN)
    blocks = (-(-(k.numel() + b.numel()) // 64), 1)
    Prepared(kernels.starter("open_gate", None, blocks, 64, 0), 8, *frame, threshold, leak, *numbers)(
        given.data_ptr(), *at, biases[0].data_ptr(), biases[1].data_ptr(), k.data_ptr(), b.data_ptr()
    )
    assert torch.equal(b, biases.sum(0))
    start = kernels.starter("gate_slopes", None, (-(-HIDDEN // 32), chunks), 256, 0)
    Prepared(start, 7, *frame, leak, *numbers, tiles)(
        given.data_ptr(), *at, k.data_ptr(), dk.data_ptr(), parts.data_ptr()
    )
    return k, parts.sum(0)[: len(values)]


def g_lstm(inputs, hidden, **options):
    return GLSTM(inputs, hidden, mu=(1, 6), sigma=2.0, threshold=0.05, backend="cuda", **options)


def phased(inputs, hidden, **options):
    return PLSTM(inputs, hidden, tau=5.0, s=(0.0, 5.0), r=0.4, backend="cuda", **options)


def plain(inputs, hidden, **options):
    return LSTM(inputs, hidden, backend="cuda", **options)


def periodic(inputs, hidden, **options):
    gate = Periodic(mu=(0.0, 5.0), sigma=0.8, tau=(1.5, 4.0))
    return GatedLSTM(inputs, hidden, gate=gate, threshold=0.05, backend="cuda", **options)


LAYERS = {"g-LSTM": g_lstm, "PLSTM": phased, "LSTM": plain, "periodic": periodic}


def results(layer: GatedLSTM, x, hx=None, times=None, sequence=True):
    """Outputs and the gradients of everything, of a sum that every output has a share in."""
    inputs = [x, *(hx or ())]
    inputs = [part.detach().clone().requires_grad_() for part in inputs]
    output, (h_n, c_n) = layer(inputs[0], tuple(inputs[1:]) or None, times, sequence=sequence)
    generator = torch.Generator().manual_seed(2)
    parts = [part for part in (output, h_n, c_n) if part is not None]
    loss = torch.stack([(part * torch.randn(part.shape, generator=generator).to(part)).sum() for part in parts]).sum()
    names = [name for name, _ in layer.named_parameters()]
    gradients = torch.autograd.grad(loss, [*inputs, *layer.parameters()])
    outputs = {"h": output, "h_n": h_n, "c_n": c_n}
    found = {name: part.detach() for name, part in outputs.items() if part is not None}
    return found | dict(zip((*("x", "h_0", "c_0")[: len(inputs)], *names), gradients))


def in_float64(layer: GatedLSTM) -> GatedLSTM:
    exact = copy.deepcopy(layer).double()
    exact.backend = "reference"
    return exact


def check(layer: GatedLSTM, limit: float, x, hx=None, times=None, sequence=True):
    layer.seen = None
    layer._new = False  # nothing is to be said of these few steps
    found = results(layer, x, hx, times, sequence)
    exact = results(
        in_float64(layer), x.double(), None if hx is None else tuple(part.double() for part in hx), times, sequence
    )
    assert found.keys() == exact.keys()
    wrong = {name: relative_error(part, exact[name]) for name, part in found.items()}
    # A gate's gradients are sums of products with h_new - h_old, of which few digits may be left.
    limits = {name: 5 * limit if name.split("_")[0] in layer.gate.names else limit for name in wrong}
    assert all(error < limits[name] for name, error in wrong.items()), wrong


IN_ONE = ["open_gate", "forward", "backward", "gate_slopes", "finish"]

CASES = {
    "counted": ("g-LSTM", {}, 1, (5, 3), {}),
    "phases": ("PLSTM", {}, 1, (5, 3), {}),
    "always open": ("LSTM", {}, 2, (5, 3), {}),
    "it comes back": ("periodic", {}, 1, (9, 3), {}),
    "it comes back at times of each sample": ("periodic", {}, 1, (5, 3), {"times": (5, 3)}),
    "many inputs, a state": ("g-LSTM", {}, 6, (4, 9), {"hx": True}),
    "final state, no bias": ("g-LSTM", {"bias": False}, 1, (4, 3), {"sequence": False}),
    "times": ("g-LSTM", {}, 1, (5, 3), {"times": (5,)}),
    "times of each sample": ("PLSTM", {}, 1, (5, 3), {"times": (5, 3)}),
    "both directions": ("g-LSTM", {"bidirectional": True, "num_layers": 2}, 1, (4, 3), {"times": (4, 3), "hx": True}),
    "another time": ("g-LSTM", {"origin": 0.5, "unit": 1.5, "candidate": "sigmoid"}, 1, (5, 3), {}),
}


# In one precision each: kernels take seconds to compile, and `test_gpu.py` has all layouts.
@pytest.mark.parametrize(
    ("precision", "case"),
    [("highest" if number % 2 else "high", case) for number, case in enumerate(CASES)], indirect=["precision"],
)  # fmt: skip
def test_emulated_layers_against_float64(emulated, precision, case):
    emulated(1)
    kind, options, inputs, (steps, batch), call = CASES[case]
    torch.manual_seed(4)
    layer = LAYERS[kind](inputs, 20, **options)
    rows = layer.num_layers * layer.num_directions
    state = tuple(0.3 * torch.randn(2, rows, batch, 20)) if call.get("hx") else None
    times = torch.rand(call["times"], dtype=torch.float64).cumsum(0) * 2 if "times" in call else None
    check(layer, LIMITS[precision], torch.randn(steps, batch, inputs), state, times, call.get("sequence", True))
    kernels = [name for name in IN_ONE if name != "gate_slopes" or kind != "LSTM"]
    assert sorted(started) == sorted(kernels * rows)


@exactly
@pytest.mark.parametrize("ranks", [4, 8])
def test_emulated_layers_on_several_blocks(emulated, precision, ranks):
    emulated(ranks)
    torch.manual_seed(4)
    check(g_lstm(1, 40), LIMITS[precision], torch.randn(4, 9, 1))
    assert started == IN_ONE


@exactly
def test_emulated_gradients_of_the_outputs_may_have_any_strides(emulated, precision):
    """Of a sum, of a mean over steps, of a layer with the batch first, of one whose units were moved."""
    emulated(1)
    layer = g_lstm(1, 20)
    h, wanted = layer(torch.randn(6, 9, 1))[0], list(layer.parameters())
    for gradient in (
        torch.randn(1, 1, 1).expand(h.shape),
        torch.randn(1, 9, 20).expand(h.shape),
        torch.randn(6, 1, 1).expand(h.shape),
        torch.randn(9, 6, 20).transpose(0, 1),
        torch.randn(20, 6, 9).permute(1, 2, 0),
    ):
        found = torch.autograd.grad(h, wanted, gradient, retain_graph=True)
        right = torch.autograd.grad(h, wanted, gradient.contiguous(), retain_graph=True)
        assert all(torch.equal(one, other) for one, other in zip(found, right))


@exactly
def test_emulated_times_of_64_bits_keep_their_digits(emulated, precision):
    """Seconds since 1970, with and without a frame."""
    emulated(1)
    torch.manual_seed(4)
    times = 1.7e9 + torch.rand(5, 3, dtype=torch.float64).cumsum(0)
    for options in ({"origin": 1.7e9}, {"origin": 1.7e9, "unit": 0.5}):
        layer = GLSTM(1, 20, mu=1.7e9 + 1, sigma=1.0, backend="cuda", **options)
        check(layer, LIMITS[precision], torch.randn(5, 3, 1), times=times)
    assert started == 2 * IN_ONE


@exactly
def test_emulated_evaluation_has_two_launches(emulated, precision):
    emulated(1)
    for kind, make in LAYERS.items():
        started.clear()
        layer = make(1, 20).eval()
        x = torch.randn(5, 3, 1)
        with torch.no_grad():
            output, (h_n, c_n) = layer(x)
            right, (right_h, right_c) = in_float64(layer)(x.double())
        assert started == ["open_gate", "forward"], kind
        for part, exact in ((output, right), (h_n, right_h), (c_n, right_c)):
            assert part.shape == exact.shape
            assert relative_error(part, exact) < 1e-5


@exactly
def test_emulated_packed_sequences_of_equal_length_and_unbatched_ones(emulated, precision):
    emulated(1)
    layer = g_lstm(2, 20)
    x = torch.randn(5, 3, 2)
    right = layer(x)[1][0]
    packed = layer(pack_sequence(list(x.unbind(1))))[1][0]
    alone = layer(x[:, 1])[1][0]
    assert started == 3 * ["open_gate", "forward"]
    assert torch.equal(packed, right)
    assert torch.equal(alone, right[:, 1])


@exactly
def test_emulated_a_closed_step_is_not_read(emulated, precision):
    emulated(1)
    layer = GLSTM(2, 20, mu=2.0, sigma=0.2, threshold=0.05, backend="cuda")
    x = torch.randn(4, 3, 2)
    right = results(layer, x)
    x[0], x[3] = torch.nan, torch.inf
    again = results(layer, x)
    del right["x"], again["x"]
    assert all(torch.equal(right[name], part) for name, part in again.items())
    x[1, 0] = torch.nan
    lost = results(layer, x)
    assert lost["h_n"][:, 0].isnan().any()
    assert torch.equal(lost["h_n"][:, 1:], right["h_n"][:, 1:])
    assert lost["weight_ih_l0"].isnan().any()
    assert lost["mu_l0"].isnan().any()


@exactly
@pytest.mark.parametrize("kind", LAYERS)
def test_emulated_derivatives_of_derivatives(emulated, precision, kind):
    emulated(1)
    torch.manual_seed(4)
    layer = LAYERS[kind](1, 8)
    found = []
    for one, x in ((layer, torch.randn(4, 2, 1)), (in_float64(layer), None)):
        x = found[0][0].detach().double() if x is None else x
        x.requires_grad_()
        wanted = [x, *one.parameters()]
        first = torch.autograd.grad(one(x)[0].square().sum(), wanted, create_graph=True)
        second = torch.autograd.grad(torch.stack([part.square().sum() for part in first]).sum(), wanted)
        found.append([x, *first, *second])
    assert started[:2] == ["open_gate", "forward"]
    assert all(relative_error(part.detach(), exact.detach()) < 1e-3 for part, exact in zip(*found))


@exactly
def test_emulated_a_batch_of_gradients(emulated, precision):
    emulated(1)
    layer, x = g_lstm(1, 8), torch.randn(4, 2, 1)
    h_n = layer(x)[1][0].flatten()
    wanted, directions = list(layer.parameters()), torch.eye(len(h_n))
    one_by_one = [torch.autograd.grad(h_n, wanted, direction, retain_graph=True) for direction in directions]
    at_once = torch.autograd.grad(h_n, wanted, directions, is_grads_batched=True)
    for part, each in zip(at_once, zip(*one_by_one)):
        assert relative_error(part, torch.stack(each)) < 1e-4


class Wider(Gaussian):
    def openness(self, times, unit, training):
        return super().openness(times, unit, training).sqrt()


@exactly
def test_emulated_what_is_unusual_goes_by_a_table(emulated, precision, monkeypatch):
    emulated(1)
    x, times = torch.randn(4, 3, 1), torch.arange(1.0, 5.0)
    layer = g_lstm(1, 8)

    def by_table(call):
        started.clear()
        result = call()
        return "open_gate" not in started, result

    assert not by_table(lambda: layer(x))[0]
    wider = GatedLSTM(1, 8, gate=Wider(2.0, 2.0), backend="cuda")
    assert by_table(lambda: wider(x))[0]
    assert by_table(lambda: layer(x, times=times.clone().requires_grad_()))[0]
    assert by_table(lambda: layer(pack_sequence([torch.randn(4, 1), torch.randn(2, 1)])))[0]
    with layer.recording_openness() as tables:
        assert by_table(lambda: layer(x))[0]
    assert len(tables) == 1
    with layer.using_openness({"_l0": torch.ones(4, 8)}):
        assert by_table(lambda: layer(x))[0]
    by_itself, result = by_table(lambda: torch.vmap(lambda one: layer(one)[0])(torch.randn(2, 4, 3, 1)))
    assert by_itself
    assert result.shape == (2, 4, 3, 8)
    layer.segment = 2
    assert by_table(lambda: layer(x))[0]
    layer.segment = None
    monkeypatch.setattr(choice, "MANY_SAMPLES", 3)  # then the operator may skip closed units
    layer.threshold = 0.01
    assert by_table(lambda: layer(x, sequence=False))[0]
    assert not by_table(lambda: layer(x))[0]
    layer.weight_hh_l0 = nn.Parameter(torch.randn(32, 7))
    with pytest.raises(ValueError, match=r"must have shape"):
        layer(x)


@exactly
def test_emulated_the_same_as_by_a_table_after_every_change(emulated, precision):
    """A plan that was prepared for one gate, threshold or time is not used for another."""
    emulated(1)
    torch.manual_seed(4)
    layer = g_lstm(1, 8)
    x = torch.randn(5, 3, 1)
    seen = []
    for change in (
        lambda: None,
        lambda: setattr(layer, "threshold", 0.5),
        lambda: setattr(layer, "candidate", "sigmoid"),
        lambda: layer.set_gate(mu=3.0),
        lambda: layer._reframe(Frame(1.0, 2.0)),
        lambda: layer.eval(),
    ):
        change()
        started.clear()
        found = layer(x)[0].detach()
        assert started == ["open_gate", "forward"]
        with layer.recording_openness():
            assert torch.allclose(found, layer(x)[0], atol=1e-6)
        seen.append(found)
    assert not any(torch.equal(one, other) for one, other in pairwise(seen[:4]))


LARGE = {
    "one block": ("g-LSTM", {}, 1, 33, (60, 13), {}),
    "a cluster": ("g-LSTM", {}, 2, 110, (60, 13), {"hx": True}),
    "a larger cluster": ("g-LSTM", {}, 1, 220, (40, 19), {"sequence": False}),
    "phases, many inputs": ("PLSTM", {"num_layers": 2}, 9, 70, (50, 5), {}),
    "it comes back": ("periodic", {}, 1, 110, (60, 13), {}),
    "it comes back at times of each sample": ("periodic", {}, 1, 33, (40, 6), {"times": "own"}),
    "always open, both directions": ("LSTM", {"bidirectional": True, "bias": False}, 3, 128, (30, 9), {}),
    "times": ("g-LSTM", {"batch_first": True}, 1, 110, (40, 9), {"times": "shared"}),
    "times of each sample": ("g-LSTM", {}, 1, 300, (30, 6), {"times": "own"}),
}


@on_device
@both_precisions
@pytest.mark.parametrize("case", LARGE)
def test_layers_on_a_device_against_float64_and_the_same_bits_every_time(precision, case):
    kind, options, inputs, hidden, (steps, batch), call = LARGE[case]
    torch.manual_seed(4)
    layer = LAYERS[kind](inputs, hidden, **options).cuda()
    layer._new = False
    if kind == "g-LSTM":
        layer.set_gate(mu=(1, steps), sigma=steps / 4)
    shape = (batch, steps) if layer.batch_first else (steps, batch)
    rows = layer.num_layers * layer.num_directions
    x = torch.randn(*shape, inputs, device="cuda")
    state = tuple(0.3 * torch.randn(2, rows, batch, hidden, device="cuda")) if call.get("hx") else None
    times = None
    if "times" in call:
        times = (
            2 * torch.rand(steps, *((batch,) if call["times"] == "own" else ()), dtype=torch.float64).cumsum(0).cuda()
        )
    sequence = call.get("sequence", True)
    check(layer, LIMITS[precision], x, state, times, sequence)
    first = results(layer, x, state, times, sequence)
    assert fused._plans
    for _ in range(20):
        again = results(layer, x, state, times, sequence)
        assert all(torch.equal(first[name], part) for name, part in again.items())
