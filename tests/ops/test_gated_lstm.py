"""The operator: its equations, its gradients, its promises about zeros, its place in torch."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from glstm.ops import gated_lstm as default_gated_lstm
from glstm.ops import reference_backward
from glstm.ops.reference import forward
from helpers import operator_inputs, relative_error


@pytest.fixture(params=["auto", "reference"], scope="module")
def gated_lstm(request):
    """As users call it, and on the reference: both pass the same tests. `test_native.py` has more for the engine."""
    return partial(default_gated_lstm, backend=request.param)


SIZES = [(1, 1, 1, 1), (1, 3, 2, 5), (7, 1, 3, 2), (17, 4, 1, 3), (33, 2, 5, 7)]  # odd ones, and both sides of a block


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("size", SIZES)
def test_open_everywhere_equals_torch_lstm(gated_lstm, size, dtype, tolerance):
    steps, batch, inputs, hidden = size
    x, w_ih, w_hh, b, _, h0, c0 = operator_inputs(*size, dtype=dtype)
    lstm = torch.nn.LSTM(inputs, hidden, dtype=dtype)
    with torch.no_grad():
        for parameter, value in zip(lstm.parameters(), (w_ih, w_hh, b, torch.zeros_like(b)), strict=True):
            parameter.copy_(value)
    weights = [torch.randn(steps, batch, hidden, dtype=dtype), *torch.randn(2, batch, hidden, dtype=dtype)]

    theirs = [tensor.detach().clone().requires_grad_() for tensor in (x, h0, c0)]
    expected, (h_n, c_n) = lstm(theirs[0], (theirs[1][None], theirs[2][None]))
    torch.stack([(out * w).sum() for out, w in zip((expected, h_n[0], c_n[0]), weights)]).sum().backward()

    result = gated_lstm(x, w_ih, w_hh, b, torch.ones(steps, hidden, dtype=dtype), h0, c0)
    torch.stack([(out * w).sum() for out, w in zip(result[:3], weights)]).sum().backward()
    for value, wanted in zip(result[:3], (expected, h_n[0], c_n[0])):
        assert relative_error(value, wanted) < tolerance
    gradients = [*theirs, *list(lstm.parameters())[:3]]
    for mine, reference in zip((x, h0, c0, w_ih, w_hh, b), gradients, strict=True):
        assert relative_error(mine.grad, reference.grad) < tolerance


@pytest.mark.parametrize("candidate", ["tanh", "sigmoid"])
@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_every_gradient_matches_finite_differences(gated_lstm, candidate, per_sample, bias):
    x, w_ih, w_hh, b, *rest = operator_inputs(19, 2, 2, 2, per_sample=per_sample, bias=bias)
    given_bias = () if b is None else (b,)

    def run(x, w_ih, w_hh, k, h0, c0, *b):
        return gated_lstm(x, w_ih, w_hh, b[0] if b else None, k, h0, c0, candidate=candidate, cells=True)

    assert gradcheck(run, (x, w_ih, w_hh, *rest, *given_bias), fast_mode=True)


def test_separate_tables_for_cell_and_output_have_their_own_gradients(gated_lstm):
    inputs = operator_inputs(6, 3, 2, 2)
    k_h = (torch.rand(6, 3, 2, dtype=torch.float64) * 0.9 + 0.05).requires_grad_()
    assert gradcheck(lambda k_h, *rest: gated_lstm(*rest, k_h=k_h, cells=True), (k_h, *inputs))
    assert gradgradcheck(lambda k_h, *rest: gated_lstm(*rest, k_h=k_h).h_n, (k_h, *inputs), fast_mode=True)
    both = gated_lstm(*inputs, k_h=inputs[4]).h
    assert torch.equal(both, gated_lstm(*inputs).h)


@pytest.mark.parametrize("per_sample", [False, True])
def test_second_derivatives(gated_lstm, per_sample):
    inputs = operator_inputs(4, 2, 2, 2, per_sample=per_sample)
    assert gradgradcheck(lambda *t: gated_lstm(*t, cells=True), inputs)
    assert gradgradcheck(lambda *t: gated_lstm(*t, sequence=False)[1:3], inputs, fast_mode=True)


@given(
    steps=st.integers(0, 20),
    batch=st.integers(0, 3),
    inputs=st.integers(1, 3),
    hidden=st.integers(1, 4),
    per_sample=st.booleans(),
    closed=st.floats(0, 1),
    sequence=st.booleans(),
    cells=st.booleans(),
)
def test_the_reverse_loop_equals_autograd(
    gated_lstm, steps, batch, inputs, hidden, per_sample, closed, sequence, cells
):
    """Zeros in k included, every combination of outputs, empty sequences and batches."""
    tensors = operator_inputs(steps, batch, inputs, hidden, per_sample=per_sample)
    with torch.no_grad():
        tensors[4][torch.rand_like(tensors[4]) < closed] = 0
    twins = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    out = gated_lstm(*tensors, sequence=sequence, cells=cells)
    x, w_ih, w_hh, b, k, h0, c0 = twins
    h, c, _ = forward(x, w_ih, w_hh, b, k, k, h0, c0, "tanh")
    ends = (h[-1], c[-1]) if steps else (h0, c0)
    wanted = (h if sequence else None, *ends, c if cells else None)
    mine = theirs = torch.zeros((), dtype=torch.float64)
    for value, expected in zip(out, wanted, strict=True):
        assert (value is None) == (expected is None)
        if value is not None and expected is not None:
            assert relative_error(value, expected) < 1e-14
            weight = torch.randn_like(expected)
            mine, theirs = mine + (value * weight).sum(), theirs + (expected * weight).sum()
    mine.backward()
    theirs.backward()
    for tensor, twin in zip(tensors, twins, strict=True):
        expected = torch.zeros_like(twin) if twin.grad is None else twin.grad
        assert relative_error(tensor.grad, expected) < 1e-11


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_zero_in_k_copies_the_state_bit_for_bit(gated_lstm, dtype):
    x, w_ih, w_hh, b, k, h0, c0 = operator_inputs(5, 3, 2, 6, dtype=dtype)
    h0 = h0.detach().clone()
    h0[0, 0], h0[1, 1] = -0.0, torch.finfo(dtype).tiny  # values that 0 * new + old would not keep
    x = x.detach() * torch.finfo(dtype).max  # and candidates that overflow
    k = k.detach().clone()
    k[:, ::2] = 0
    out = gated_lstm(x, w_ih, w_hh, b, k, h0, c0, cells=True)
    as_bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[h0.element_size()]
    for all_states, start in ((out.h, h0), (out.c, c0)):
        kept = all_states[..., ::2].contiguous().view(as_bits)
        assert (kept == start[..., ::2].contiguous().view(as_bits)).all()


def test_a_closed_unit_has_no_gradient_of_its_own(gated_lstm):
    inputs = operator_inputs(6, 3, 2, 4)
    with torch.no_grad():
        inputs[4][:, 1] = 0
    gated_lstm(*inputs).h.sum().backward()
    _, w_ih, w_hh, b, k, h0, _ = inputs
    assert (k.grad[:, 1] == 0).all()
    assert (k.grad[:, 0] != 0).all()
    rows = [1, 5, 9, 13]  # the gates of unit 1
    assert (w_ih.grad[rows] == 0).all()
    assert (w_hh.grad[rows] == 0).all()
    assert (b.grad[rows] == 0).all()
    assert (w_hh.grad[0, 1] != 0).all()  # but its frozen output is still read
    assert (h0.grad[:, 1] != 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_follows_float64(gated_lstm, dtype):
    inputs = operator_inputs(9, 3, 2, 4)
    halves = [tensor.detach().to(dtype).requires_grad_() for tensor in inputs]
    exact, rounded = gated_lstm(*inputs), gated_lstm(*halves)
    assert rounded.h.dtype == dtype
    assert relative_error(rounded.h.double(), exact.h) < 20 * torch.finfo(dtype).eps
    exact.h.sum().backward()
    rounded.h.sum().backward()
    assert relative_error(halves[2].grad.double(), inputs[2].grad) < 50 * torch.finfo(dtype).eps


def test_same_input_same_bits(gated_lstm):
    inputs = operator_inputs(40, 5, 3, 6, dtype=torch.float32)
    results = []
    for _ in range(3):
        for tensor in inputs:
            tensor.grad = None
        out = gated_lstm(*inputs)
        out.h.sum().backward()
        results.append([out.h, *(tensor.grad for tensor in inputs)])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_without_gradients_nothing_is_kept_for_them():
    inputs = [tensor.detach() for tensor in operator_inputs(3, 2, 2, 2)]
    *_, tape, how = torch.ops.glstm.gated_lstm(*inputs[:5], None, *inputs[5:], "tanh", True, False, False, "reference")
    assert tape.numel() == how.numel() == 0


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("taped", [False, True])
def test_torch_accepts_the_operator(sequence, taped):
    inputs = operator_inputs(3, 2, 2, 2)
    arguments = (*inputs[:5], None, *inputs[5:], "tanh", sequence, not sequence, taped, "reference")
    checks = ["test_schema", "test_faketensor"]
    if taped:
        checks += ["test_autograd_registration", "test_aot_dispatch_dynamic"]
    torch.library.opcheck(torch.ops.glstm.gated_lstm.default, arguments, test_utils=checks)


def test_torch_accepts_the_backward_operator():
    x, w_ih, w_hh, b, k, h0, c0 = (tensor.detach() for tensor in operator_inputs(3, 2, 2, 2))
    tape = reference_backward.make_tape(*forward(x, w_ih, w_hh, b, k, k, h0, c0, "tanh"), h0, c0)
    how = torch.empty(0, dtype=torch.int64)
    inputs = (x, w_ih, w_hh, b, k, None, h0, c0)
    arguments = (None, h0, None, None, *inputs, tape, how, "tanh", True, False, "reference")
    torch.library.opcheck(
        torch.ops.glstm.gated_lstm_backward.default, arguments, test_utils=["test_schema", "test_faketensor"]
    )


def test_autocast_keeps_the_precision_of_the_weights(gated_lstm):
    inputs = operator_inputs(4, 2, 3, 2, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        from_a_half_layer = (inputs[0] @ torch.eye(3)).detach()
        assert from_a_half_layer.dtype == torch.bfloat16
        result = gated_lstm(from_a_half_layer, *inputs[1:])
    assert result.h.dtype == torch.float32
    assert torch.equal(result.h, gated_lstm(from_a_half_layer.float(), *inputs[1:]).h)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(3, 2)}, r"x must be \(T, B, D\)"),
        ({"w_ih": torch.zeros(8, 5)}, r"w_ih must have shape \(8, 2\)"),
        ({"b": torch.zeros(7)}, r"b must have shape \(8,\)"),
        ({"k": torch.zeros(4, 2)}, r"k must be \(T, H\) = \(3, 2\) or \(T, B, H\) = \(3, 2, 2\)"),
        ({"k_h": torch.zeros(3, 1)}, r"k_h must be"),
        ({"h0": torch.zeros(1, 2)}, r"h0 must have shape \(2, 2\)"),
        ({"c0": torch.zeros(2, 2, dtype=torch.float64)}, r"c0 is torch.float64 on cpu but x is torch.float32"),
        ({"x": torch.zeros(3, 2, 2, dtype=torch.float8_e4m3fn)}, "not in torch.float8_e4m3fn"),
        ({"candidate": "relu"}, "candidate must be one of tanh, sigmoid"),
        ({"backend": "warp"}, "backend must be one of auto, native, cuda, reference"),
    ],
)
def test_bad_input_is_named(change, message):
    names = ("x", "w_ih", "w_hh", "b", "k", "h0", "c0")
    good = dict(zip(names, operator_inputs(3, 2, 2, 2, dtype=torch.float32), strict=True))
    with pytest.raises((ValueError, TypeError), match=message):
        default_gated_lstm(**{**good, **change})
