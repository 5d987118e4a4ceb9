"""A deployed network says what the model says, on whole sequences of any kind, and knows what it costs."""

import copy
import pickle

import numpy as np
import pytest
import torch
from networks import KINDS, STEPS, deep_network, network, thresholded

import glstm
from glstm import count_cached_ops, deploy
from glstm.runtime.threshold import largest_threshold

V_T = 0.01


def sequences(model, batch=5, steps=STEPS):
    return torch.randn(steps, batch, model.layer.input_size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [network, deep_network])
def test_whole_sequences_are_the_models(kind, make):
    model = make(kind)
    x = sequences(model)
    runtime = deploy(model, STEPS, V_T)
    for batch in (x, x[:, :1], x[:, :0], torch.cat([x] * 20, 1)):
        assert torch.allclose(runtime(batch), thresholded(model, V_T, batch), atol=1e-6)
    one = runtime(x[:, 2])
    assert one.shape == (3,)
    assert torch.allclose(one, runtime(x)[2], atol=1e-6)
    out = runtime(x.numpy())
    assert isinstance(out, np.ndarray)
    assert np.allclose(out, runtime(x).numpy(), atol=1e-6)
    assert np.allclose(runtime(x.double().numpy()), out, atol=1e-6)


@pytest.mark.parametrize("kind", ["g-LSTM", "stack", "Phased LSTM", "LSTM"])
def test_the_head_reads_where_it_is_told(kind):
    model = network(kind)
    x = sequences(model)
    expected = torch.stack([thresholded(model, V_T, x[:step]) for step in range(1, STEPS + 1)])
    assert torch.allclose(deploy(model, STEPS, V_T, reads="every")(x), expected, atol=1e-6)
    chosen = deploy(model, STEPS, V_T, reads=[40, 7, STEPS])
    assert torch.allclose(chosen(x), expected[[6, 39, STEPS - 1]], atol=1e-6)
    assert torch.allclose(chosen(x[:39]), expected[[6]], atol=1e-6)
    assert chosen(x[:6]).shape == (0, 5, 3)
    one = deploy(model, STEPS, V_T, reads=[7])
    assert torch.allclose(one(x), expected[[6]], atol=1e-6)
    assert one(x[:, 0]).shape == (1, 3)
    stream = one.stream()
    answers = [stream.step(sample) for sample in x[:7, 0].numpy()]
    assert np.allclose(answers[-1], expected[6, 0], atol=1e-6)
    assert deploy(model, 1, V_T, reads="every")(x[:1]).shape == (1, 5, 3)


def test_a_shorter_sequence_ends_where_it_ends():
    model = network("g-LSTM")
    runtime, x = deploy(model, STEPS, V_T), sequences(model)
    for steps in (1, 2, 31):
        assert torch.allclose(runtime(x[:steps]), thresholded(model, V_T, x[:steps]), atol=1e-6)


def test_real_timestamps():
    model = network("wide gates")
    times = torch.tensor([0.5, 2.0, 2.1, 17.0, 33.3, 58.0, 300.0])
    x = sequences(model, steps=len(times))
    expected = thresholded(model, V_T, x, times)
    for given in (times, times.tolist(), times.numpy(), tuple(times.double().numpy())):
        runtime = deploy(model, given, V_T)
        assert torch.allclose(runtime(x), expected, atol=1e-6)
        stream = runtime.stream()
        answers = [stream.step(sample) for sample in x[:, 0].numpy()]
        assert np.allclose(answers[-1], expected[0], atol=1e-6)


def test_what_it_costs():
    model = network("some never open")
    runtime = deploy(model, STEPS, V_T)
    model.layer.threshold = V_T
    k = model.layer.openness(STEPS)[0]
    assert runtime.units == (int(k.gt(0).any(0).sum()),)
    assert runtime.units[0] < 16
    assert runtime.ops == count_cached_ops(k, 1)
    assert f"{runtime.ops:,} operations" in repr(runtime)
    assert runtime.openness == pytest.approx(k.gt(0).double().mean().item())
    assert runtime.lstm_ops == glstm.count_ops(STEPS, 16, 1)
    plan = runtime.plan
    arrays = [*plan.layers[0].constants, plan.head.dense[0].weight, plan.head.dense[0].bias]
    assert runtime.memory.constant == sum(array.nbytes for array in arrays)
    stream = runtime.stream()
    assert runtime.memory.state == stream._words.nbytes + stream._numbers.nbytes


def test_only_weights_that_are_read_are_kept():
    """A unit reads those that opened before it closed for good, and no other: the rest of its row is not there."""
    model = network("g-LSTM")
    layer = deploy(model, STEPS, V_T).plan.layers[0]
    opens = layer.table > 0
    first, last = opens.argmax(0), STEPS - 1 - opens[::-1].argmax(0)
    assert (np.diff(first) >= 0).all()
    for unit in range(layer.units):
        assert layer.row[unit + 1] - layer.row[unit] == (first < last[unit]).sum()
    assert layer.row[-1] < layer.units**2 * 0.75


def test_the_model_is_left_as_it_was():
    model = network("Phased LSTM").train()
    model.layer.threshold = 0.3
    deploy(model, STEPS, V_T)
    assert model.layer.threshold == 0.3
    assert model.training
    assert model.layer.training


def test_what_becomes_of_the_model_later_does_not_matter():
    model = deep_network("stack")
    x = sequences(model)
    runtime = deploy(model, STEPS, V_T)
    stream, expected = runtime.stream(), thresholded(model, V_T, x)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert torch.allclose(runtime(x), expected, atol=1e-6)
    for sample in x[:, 0].numpy():
        stream.step(sample)
    assert np.allclose(stream.output(), expected[0], atol=1e-6)


def test_a_strided_bias_is_read_as_it_is():
    model = network("g-LSTM")
    model.head.bias = torch.nn.Parameter(torch.arange(6.0)[::2])
    x = sequences(model)
    runtime = deploy(model, STEPS, V_T)
    stream = runtime.stream()
    for sample in x[:, 0].numpy():
        stream.step(sample)
    assert np.allclose(stream.output(), thresholded(model, V_T, x)[0], atol=1e-6)


def test_the_layers_own_threshold_and_layout():
    torch.manual_seed(0)
    layer = glstm.GLSTM(2, 9, batch_first=True, mu=(1, STEPS), sigma=9.0, threshold=0.4)
    model = glstm.SequenceModel(layer, torch.nn.Linear(9, 3)).eval()
    x = torch.randn(5, STEPS, 2)
    with torch.no_grad():
        expected = model(x)
    runtime = deploy(model, STEPS)
    for _ in range(2):
        assert torch.allclose(runtime(x), expected, atol=1e-6)
    assert torch.allclose(runtime(x[0]), expected[0], atol=1e-6)


def test_arrays_of_every_kind(monkeypatch):
    model = network("wide gates")
    x = sequences(model).numpy()
    runtime = deploy(model, np.int64(STEPS), V_T, reads="every")
    expected = runtime(x)
    frozen = x.copy()
    frozen.flags.writeable = False
    for given in (x[::-1][::-1], np.asfortranarray(x), x.astype(">f4"), frozen):
        assert np.allclose(runtime(given), expected, atol=1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        assert np.array_equal(runtime(x), expected)
    torch.set_default_dtype(torch.float64)
    try:
        assert np.allclose(runtime(x), expected, atol=1e-6)
    finally:
        torch.set_default_dtype(torch.float32)
    for again in (pickle.loads(pickle.dumps(runtime)), copy.deepcopy(runtime)):
        assert np.array_equal(again(x), expected)


def test_deploying_leaves_the_model_alone_even_for_a_moment(monkeypatch):
    model = network("Phased LSTM").train()
    monkeypatch.setattr(type(model.layer), "threshold", property(lambda self: 0.3))  # setting it would raise
    deploy(model, STEPS, V_T)
    assert model.training


def test_gradients_and_half_precision_do_not_matter():
    model = network("g-LSTM").double()
    x = sequences(model)
    runtime = deploy(model, STEPS, V_T)
    y = runtime(x.double().requires_grad_())
    assert not y.requires_grad
    assert y.dtype is torch.float32
    assert torch.allclose(y, thresholded(model, V_T, x.double()).float(), atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda m: deploy(m.layer, STEPS), "deploy takes a SequenceModel"),
        (lambda m: deploy(m, 0), "steps must be at least 1, not 0"),
        (lambda m: deploy(m, [3.0, 2.0]), "one increasing row of numbers"),
        (lambda m: deploy(m, np.array([3, 2], np.uint8)), "one increasing row of numbers"),
        (lambda m: deploy(m, [1.0, float("nan")]), "one increasing row of numbers"),
        (lambda m: deploy(m, [1.0, float("inf")]), "times must be finite"),
        (lambda m: deploy(m, []), "one increasing row of numbers"),
        (lambda m: deploy(m, object()), "steps must be a number of steps, such as 784, or their times, .* not <object"),
        (lambda m: deploy(m, "60"), "steps must be a number of steps, .* not '60'"),
        (lambda m: deploy(m, True), "steps must be a number of steps, .* not True"),
        (lambda m: deploy(m, 60.0), "steps must be a number of steps, .* not 60.0"),
        (lambda m: deploy(m, ["1", "2"]), r"steps must be a number of steps, .* not \['1', '2'\]"),
        (lambda m: deploy(m, [[1, 2], [3]]), r"steps must be a number of steps, .* not \[\[1, 2\], \[3\]\]"),
        (lambda m: deploy(m, [False, True]), r"steps must be a number of steps, .* not \[False, True\]"),
        (lambda m: deploy(m, torch.ones(50, dtype=torch.bool)), "steps must be a number of steps, .* not a Tensor"),
        (lambda m: deploy(m, torch.ones(STEPS, 3)), r"the same for all samples, but these have shape \(60, 3\)"),
        (lambda m: deploy(m, [[1, 2], [3, 4]]), r"the same for all samples, but these have shape \(2, 2\)"),
        (lambda m: deploy(m, STEPS, 1.0), "threshold must be a number, at least 0 and below 1, not 1.0"),
        (lambda m: deploy(m, STEPS, reads="sometimes"), "reads must be .* not 'sometimes'"),
        (lambda m: deploy(m, STEPS, reads=5), "reads must be .* not 5"),
        (lambda m: deploy(m, STEPS, reads=[1.5]), r"reads must be .* not \[1.5\]"),
        (lambda m: deploy(m, STEPS, reads=[0, 3]), r"the head reads at steps from 1 to 60, not at \[0, 3\]"),
        (lambda m: deploy(m, STEPS)(torch.zeros(STEPS + 1, 2, 1)), "sequences of 1 to 60 steps, but x has 61"),
        (
            lambda m: deploy(m, STEPS)(torch.zeros(STEPS, 2, 4)),
            r"x must be an array \(T, B, 1\), or .* not \(60, 2, 4\)",
        ),
        (lambda m: deploy(m, STEPS)([1.0]), "not a list"),  # pyright: ignore[reportCallIssue]
    ],
)
def test_what_does_not_fit_is_named(wrong, says):
    with pytest.raises(ValueError, match=says):
        wrong(network("g-LSTM"))


def test_what_cannot_be_deployed_is_named():
    lost = network("g-LSTM")
    with torch.no_grad():
        lost.layer.weight_hh_l0[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"layer.weight_hh_l0 holds nan or infinite values"):
        deploy(lost, STEPS)

    class Doubled(torch.nn.Linear):
        def forward(self, input):
            return 2 * super().forward(input)

    with pytest.raises(ValueError, match="not of Doubled"):
        deploy(glstm.SequenceModel(glstm.GLSTM(1, 4), Doubled(4, 2)), STEPS)

    class Other(glstm.SequenceModel):
        def forward(self, x, times=None, lengths=None):
            return -super().forward(x, times, lengths)

    with pytest.raises(ValueError, match="not Other"):
        deploy(Other(glstm.GLSTM(1, 4), torch.nn.Linear(4, 2)), STEPS)
    for inputs in (3, 5):
        changed = glstm.SequenceModel(glstm.GLSTM(1, 4), torch.nn.Linear(4, 2))
        changed.head = torch.nn.Linear(inputs, 2)
        with pytest.raises(ValueError, match=f"the head reads {inputs} numbers, but the layer has 4 units"):
            deploy(changed, STEPS)
    uneven = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(7, 2))
    with pytest.raises(ValueError, match="the head reads 7 numbers, but the linear layer before gives 8"):
        deploy(glstm.SequenceModel(glstm.GLSTM(1, 4), uneven), STEPS)
    with pytest.raises(ValueError, match=r"deploy takes a GLSTM, PLSTM, LSTM or GatedLSTM .* not a GRU"):
        deploy(glstm.SequenceModel(torch.nn.GRU(1, 4), torch.nn.Linear(4, 2)), STEPS)
    with pytest.raises(ValueError, match="threshold must be a number"):
        deploy(network("g-LSTM"), STEPS, "0.1")


def test_a_network_in_which_nothing_opens_is_refused():
    def network(*mus) -> glstm.SequenceModel:
        layer = glstm.GLSTM(1, 7, len(mus), sigma=20.0)
        with torch.no_grad():
            for number, mu in enumerate(mus):
                layer.get_parameter(f"mu_l{number}").fill_(mu)
        return glstm.SequenceModel(layer, torch.nn.Linear(7, 2))

    k = np.exp(-(((100.0 - STEPS) / 20.0) ** 2))
    says = (
        f"no unit opens above the threshold 0.05 at times 1 to 60, .* at most {k:.3g} there: choose a threshold below"
    )
    with pytest.raises(ValueError, match=says):
        deploy(network(100.0), STEPS, 0.05)
    assert deploy(network(100.0), STEPS, 0.99 * k).units == (7,)
    assert deploy(network(100.0), [90.0, 100.0], 0.05).units == (7,)
    with pytest.raises(ValueError, match=r"no unit of layer 2 opens .* at most 0 there: give times at which the gates"):
        deploy(network(30.0, 9000.0), STEPS)


def test_the_largest_threshold_that_costs_little():
    def error_at(threshold: float) -> float:
        return 0.02 + (0.002 if threshold > 0.05 else 0.0) + (0.05 if threshold > 0.3 else 0.0)

    candidates = (0.5, 0.3, 0.1, 0.05, 0.01)
    assert largest_threshold(error_at, 0.003, candidates=candidates) == 0.3
    assert largest_threshold(error_at, 0.001, candidates=candidates) == 0.05
    assert largest_threshold(lambda threshold: float(threshold > 0), 0.0, candidates=candidates) == 0.0
    assert largest_threshold(error_at, 0.0, 0.1, candidates) == 0.3  # nothing below what it was trained with
    assert largest_threshold(lambda threshold: threshold, 0.0, 0.1, candidates) == 0.1
