"""Overlapping windows on a stream without an end: each is the network on those samples alone."""

import numpy as np
import pytest
import torch
from networks import STEPS, network, raw_network, raw_sequences, thresholded

from glstm import deploy
from glstm.runtime.windows import Window

V_T = 0.01


@pytest.mark.parametrize(("length", "hop"), [(STEPS, 7), (20, 3), (20, 20), (5, 8), (9, 1)])
@pytest.mark.parametrize("known", [True, False])
def test_each_window_is_its_own_sequence(length, hop, known):
    model = network("stack")
    x = np.random.default_rng(0).standard_normal((200, 3)).astype(np.float32)
    runtime = deploy(model, STEPS if known else None, V_T)
    stream = runtime.stream()
    stream.step(x[0])  # where the stream is does not matter
    windows = stream.windows(length, hop)
    found = list(windows.feed(x))
    assert [window.start for window in found] == list(range(0, 200 - length + 1, hop))
    assert windows.position == 200
    for window in found:
        own = torch.from_numpy(x[window.start : window.start + length])[:, None]
        assert np.allclose(window.output, thresholded(model, V_T, own)[0], atol=1e-6)
    windows.reset()
    again = [window for sample in x if (window := windows.step(sample)) is not None]
    assert all(np.array_equal(one.output, other.output) for one, other in zip(found, again, strict=True))
    assert isinstance(again[0], Window)


def test_missing_values_of_one_window_do_not_reach_another():
    model, x = raw_network("carry", reads="mean"), raw_sequences("carry", steps=150)[:, 0]
    for window in deploy(model, STEPS, V_T).windows(STEPS, 25).feed(x.numpy()):
        own = x[window.start : window.start + STEPS, None]
        assert np.allclose(window.output, thresholded(model, V_T, own)[0], atol=1e-5)


def test_what_it_costs():
    model = network("g-LSTM")
    runtime = deploy(model, STEPS, V_T)
    windows = runtime.windows(STEPS, 7)
    assert windows.count == 9
    assert windows.state_bytes == 9 * runtime.memory.state
    assert windows.ops == runtime.ops / 7
    text = f"9 at once, of 60 samples, one every 7: {runtime.ops / 7:,.0f} operations a sample"
    assert repr(windows) == f"Windows({text}, {9 * runtime.memory.state:,} bytes of state)"
    assert runtime.windows(20, 20).ops == deploy(model, STEPS, V_T).plan.ops_of(20) / 20


def test_memory_stays():
    windows = deploy(network("g-LSTM"), STEPS, V_T).windows(STEPS, 10)
    streams = list(windows._streams)
    for _ in range(1000):
        windows.step(0.5)
    assert all(one is other for one, other in zip(windows._streams, streams, strict=True))
    assert len(streams) == windows.count == 6


@pytest.mark.parametrize(
    ("length", "hop", "says"),
    [
        (61, 3, "deployed for 60 steps, so a window cannot have 61"),
        (0, 3, "length must be a whole number of samples, at least 1, not 0"),
        (10, 2.5, "hop must be a whole number of samples, at least 1, not 2.5"),
        (True, 3, "length must be a whole number of samples, at least 1, not True"),
    ],
)
def test_windows_that_cannot_be_are_refused(length, hop, says):
    with pytest.raises(ValueError, match=says):
        deploy(network("g-LSTM"), STEPS, V_T).stream().windows(length, hop)
