"""Sample by sample: the same answers, a state that can be copied, saved and reset."""

import copy
import tracemalloc

import numpy as np
import pytest
import torch
from networks import KINDS, STEPS, deep_network, network, thresholded
from safetensors.numpy import save

from glstm import deploy
from glstm.errors import StreamWarning, UserError

V_T = 0.01


def samples(model) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((STEPS, model.layer.input_size)).astype(np.float32)


def feed(stream, x) -> np.ndarray | None:
    y = None
    for sample in x:
        y = stream.step(sample)
    return y


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [network, deep_network])
def test_sample_by_sample_is_the_model(kind, make):
    model = make(kind)
    x = samples(model)
    stream = deploy(model, STEPS, V_T).stream()
    expected = thresholded(model, V_T, torch.from_numpy(x).unsqueeze(1))[0]
    assert np.allclose(feed(stream, x), expected, atol=1e-6)
    stream.reset()
    assert np.allclose(feed(stream, x), expected, atol=1e-6)
    assert np.allclose(stream.output(), expected, atol=1e-6)


def test_outputs_come_where_the_head_reads():
    model = network("stack")
    x = samples(model)
    stream = deploy(model, STEPS, V_T, reads=[3, 50]).stream()
    found = {}
    for number, sample in enumerate(x, 1):
        y = stream.step(sample)
        if y is not None:
            found[number] = y
        now = thresholded(model, V_T, torch.from_numpy(x[:number]).unsqueeze(1))[0]
        assert np.allclose(stream.output(), now, atol=1e-6)  # whoever wants to know can ask at any time
    assert list(found) == [3, 50]
    for number, y in found.items():
        assert np.allclose(y, thresholded(model, V_T, torch.from_numpy(x[:number]).unsqueeze(1))[0], atol=1e-6)


def test_outputs_are_kept_by_whoever_has_them():
    model = network("stack")
    x = samples(model)
    runtime = deploy(model, STEPS, V_T, reads="every")
    stream = runtime.stream()
    assert np.allclose([stream.step(sample) for sample in x], runtime(x), atol=1e-6)


def test_a_sample_may_be_given_as_people_have_it():
    model = network("g-LSTM")
    x = samples(model)
    runtime = deploy(model, STEPS, V_T)
    expected = feed(runtime.stream(), x)
    ways = (
        lambda s: float(s[0]),
        lambda s: s.tolist(),
        torch.from_numpy,
        lambda s: s.astype(np.float64),
        lambda s: s[0],
    )
    for way in ways:
        assert np.allclose(feed(runtime.stream(), [way(sample) for sample in x]), expected, atol=1e-6)


def test_copies_go_their_own_way():
    model = network("Phased LSTM")
    x = samples(model)
    stream = deploy(model, STEPS, V_T).stream()
    expected = feed(copy.copy(stream), x)
    feed(stream, x[:20])
    other = copy.deepcopy(stream)
    feed(stream, -x[20:])
    assert other.position == 20
    assert np.array_equal(feed(other, x[20:]), expected)


def test_a_saved_state_goes_on(tmp_path):
    model = network("stack")
    x = samples(model)
    runtime = deploy(model, STEPS, V_T)
    stream = runtime.stream()
    expected = feed(copy.copy(stream), x)
    feed(stream, x[:33])
    stream.save(tmp_path / "state")
    later = deploy(model, STEPS, V_T).stream()
    later.load(tmp_path / "state")
    assert np.array_equal(feed(later, x[33:]), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_may_be_saved_at_any_step(kind, tmp_path):
    model = network(kind)
    x = samples(model)
    runtime = deploy(model, STEPS, V_T)
    expected = feed(runtime.stream(), x)
    for steps in (0, 1, 17, STEPS - 1):
        stream, later = runtime.stream(), runtime.stream()
        feed(stream, x[:steps])
        stream.save(tmp_path / "state")
        later.load(tmp_path / "state")
        assert np.array_equal(later._words, stream._words)
        assert np.array_equal(feed(later, x[steps:]), expected)


def test_states_that_do_not_fit_are_named(tmp_path):
    model = network("stack")
    stream = deploy(model, STEPS, V_T).stream()
    stream.save(tmp_path / "state")
    with pytest.raises(UserError, match="there is no file"):
        stream.load(tmp_path / "nothing")
    other, sigmoid = network("stack"), network("stack")
    with torch.no_grad():
        other.layer.weight_hh_l1.mul_(2)
    sigmoid.layer.candidate = "sigmoid"
    for one in (other, sigmoid, network("g-LSTM")):
        with pytest.raises(UserError, match="is the state of a stream of another network"):
            deploy(one, STEPS, V_T).stream().load(tmp_path / "state")
    about = {"network": stream.network.fingerprint}
    # A place in the schedule follows from it: it must be one.
    for position in ("-5", "61", "x", "", "9" * 5000, "\u0661"):
        (tmp_path / "wrong").write_bytes(save({"numbers": stream._numbers}, {**about, "position": position}))
        with pytest.raises(UserError, match="is not the state of a stream of this network"):
            stream.load(tmp_path / "wrong")
    (tmp_path / "wrong").write_bytes(save({"numbers": stream._numbers[1:]}, {**about, "position": "3"}))
    with pytest.raises(UserError, match="is not the state of a stream of this network"):
        stream.load(tmp_path / "wrong")
    whole = (tmp_path / "state").read_bytes()
    for broken in (whole[:-4], whole[:30], b"", b"\xff" * 64):
        (tmp_path / "broken").write_bytes(broken)
        with pytest.raises(UserError, match="cannot be read as the state of a stream"):
            stream.load(tmp_path / "broken")


def test_a_step_keeps_nothing(tmp_path):
    stream = deploy(network("g-LSTM"), STEPS, V_T).stream()
    stream.step(0.5)
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    for _ in range(40):
        stream.step(0.5)
    after = tracemalloc.take_snapshot()
    tracemalloc.stop()
    own = [row for row in after.compare_to(before, "filename") if "runtime/stream.py" in row.traceback[0].filename]
    assert sum(row.size_diff for row in own) < 200  # a counter, not something a step


def test_past_the_end_the_state_stays_and_the_stream_says_so_once():
    model = network("g-LSTM")
    x = samples(model)
    stream = deploy(model, STEPS, V_T).stream()
    assert not stream.finished
    expected = feed(stream, x)
    assert stream.finished
    with pytest.warns(StreamWarning, match="deployed for 60 steps: later samples are ignored") as warned:
        assert [stream.step(100.0), stream.step(100.0)] == [None, None]
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert stream.position == STEPS
    assert np.array_equal(stream.output(), expected)
    stream.reset()
    assert not stream.finished


def test_a_sample_of_the_wrong_size_is_named():
    stream = deploy(network("stack"), STEPS, V_T).stream()
    for wrong in (1.0, [1.0, 2.0], np.zeros((1, 3)), torch.zeros(4)):
        with pytest.raises(ValueError, match=r"a sample has 3 numbers, shape \(3,\), but this one has shape"):
            stream.step(wrong)
    assert stream.position == 0


def test_not_a_number_stays_one():
    model = network("LSTM")
    stream = deploy(model, STEPS, 0.0).stream()
    stream.step([np.nan, 1.0])
    assert np.isnan(stream.output()).all()
