"""Sequences of any length: piece by piece, with state and time carried on."""

import pytest
import torch

from glstm import GLSTM, LSTM, gated, stream
from glstm.tables import TableCache


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_stream_is_the_whole_sequence_in_pieces(batch_first):
    layer = GLSTM(2, 6, num_layers=2, mu=(1, 30), sigma=3.0, threshold=0.01, batch_first=batch_first).eval()
    x = torch.randn(3, 30, 2) if batch_first else torch.randn(30, 3, 2)
    axis = 1 if batch_first else 0
    with torch.no_grad():
        whole, (h, c) = layer(x)
    pieces = list(stream(layer, x.split([1, 13, 0, 16], axis)))
    assert torch.allclose(torch.cat([output for output, _ in pieces], axis), whole, atol=1e-6)
    assert torch.allclose(pieces[-1][1][0], h, atol=1e-6)
    assert torch.allclose(pieces[-1][1][1], c, atol=1e-6)
    last = list(stream(layer, x.split(7, axis), sequence=False))[-1]
    assert last[0] is None
    assert torch.allclose(last[1][0], h, atol=1e-6)
    assert not pieces[0][0].requires_grad


def test_a_stream_may_begin_anywhere():
    layer = GLSTM(1, 4, mu=100.0, sigma=5.0)
    x = torch.randn(20, 1)
    (_, (h, _)), *_ = stream(layer, [x], start=90)
    assert torch.allclose(h, layer(x, times=torch.arange(90.0, 110.0))[1][0], atol=1e-6)


@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_a_stream_at_its_own_times(per_sample, batch_first):
    layer = GLSTM(2, 6, num_layers=2, mu=(1, 30), sigma=3.0, batch_first=batch_first).eval()
    axis = 1 if batch_first else 0
    x = torch.randn(3, 30, 2) if batch_first else torch.randn(30, 3, 2)
    times = torch.rand(30, dtype=torch.float64).cumsum(0) * 2
    if per_sample:
        times = times + torch.rand(3, 1) if batch_first else times[:, None] + torch.rand(3)
    with torch.no_grad():
        whole, (h, _) = layer(x, times=times)
    split = times.split([1, 13, 0, 16], axis if per_sample else 0)
    for given in (split, [part.numpy() for part in split], [part.tolist() for part in split if part.numel()]):
        sizes = [1, 13, 0, 16] if len(given) == 4 else [1, 13, 16]
        pieces = list(stream(layer, x.split(sizes, axis), times=given))
        assert torch.allclose(torch.cat([output for output, _ in pieces], axis), whole, atol=1e-6)
        assert torch.allclose(pieces[-1][1][0], h, atol=1e-6)


def test_times_that_do_not_fit_their_pieces_are_refused():
    layer, x = GLSTM(2, 6, mu=(1, 30), sigma=3.0), torch.randn(20, 3, 2)
    times = torch.arange(20.0)
    with pytest.raises(ValueError, match=r"times must be those of each piece, such as times.split\(100\)"):
        stream(layer, x.split(10), times=times)
    with pytest.raises(ValueError, match="give it or times, not both"):
        stream(layer, x.split(10), times=times.split(10), start=5)
    with pytest.raises(ValueError, match="but there are more pieces"):
        list(stream(layer, x.split(10), times=times[:10].split(10)))
    with pytest.raises(ValueError, match="times must increase from piece to piece, but one begins before"):
        list(stream(layer, x.split(10), times=[times[:10], times[9:19]]))


def test_time_goes_on_where_float32_would_stop_counting():
    layer = GLSTM(1, 1, mu=0.0, sigma=1.0).double()
    layer.set_gate(mu=2.0**24 + 5, sigma=0.5)
    steps = [h.item() for _, (h, _) in stream(layer, torch.ones(8, 1, dtype=torch.float64).split(1), start=2**24 + 1)]
    changes = [abs(after - before) for before, after in zip([0.0, *steps], steps)]
    assert changes.index(max(changes)) == 4  # open at the fifth step, and hardly before or after


def test_a_bidirectional_layer_cannot_be_streamed():
    with pytest.raises(ValueError, match="reads a sequence from both ends"):
        stream(LSTM(1, 4, bidirectional=True), [torch.randn(3, 1)])


def test_a_forgotten_split_is_noticed():
    with pytest.raises(ValueError, match="pieces must be several tensors"):
        stream(LSTM(1, 4), torch.randn(3, 2, 1))


@pytest.mark.parametrize("per_sample", [False, True])
def test_a_long_call_in_evaluation_never_makes_the_whole_table(monkeypatch, per_sample):
    layer = GLSTM(2, 6, mu=(1, 50), sigma=5.0, threshold=0.01).eval()
    x = torch.randn(50, 3, 2)
    times = (torch.arange(1.0, 51.0)[:, None] + torch.rand(3)) if per_sample else None
    with torch.no_grad():
        whole, (h, c) = layer(x, times=times)
    largest = 0
    make = layer.gate.openness

    def watched(self, t, values, training):
        nonlocal largest
        largest = max(largest, t.numel() * 6)
        return make(t, values, training)

    monkeypatch.setattr(type(layer.gate), "openness", watched)
    monkeypatch.setattr(gated, "LARGEST_TABLE", 72)
    layer._tables = TableCache()
    for _ in range(2):
        with torch.no_grad():
            output, (h_n, c_n) = layer(x, times=times)
            _, (h_alone, _) = layer(x, times=times, sequence=False)
        assert largest == 72
        for one, other in ((output, whole), (h_n, h), (h_alone, h), (c_n, c)):
            assert torch.allclose(one, other, atol=1e-6)
