"""Packed sequences: batches of unequal lengths, as torch packs them."""

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

from glstm import GLSTM
from helpers import relative_error, twins


@pytest.mark.parametrize("enforce_sorted", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("with_state", [False, True])
def test_packed_sequences(enforce_sorted, bidirectional, with_state):
    theirs, ours = twins(num_layers=2, bidirectional=bidirectional)
    lengths = [7, 5, 5, 1] if enforce_sorted else [5, 1, 7, 5]
    x = torch.randn(7, 4, 3, dtype=torch.float64)
    hx = tuple(torch.randn(2, 4 if bidirectional else 2, 4, 5, dtype=torch.float64)) if with_state else None
    results = []
    for layer in (ours, theirs):
        inputs = x.clone().requires_grad_()
        packed = pack_padded_sequence(inputs, torch.tensor(lengths), enforce_sorted=enforce_sorted)
        output, (h_n, c_n) = layer(packed, hx)
        assert isinstance(output, PackedSequence)
        (output.data.sin().sum() + h_n.sum() + c_n.cos().sum()).backward()
        padded, out_lengths = pad_packed_sequence(output)
        assert out_lengths.tolist() == lengths
        results.append([padded, output.data, h_n, c_n, inputs.grad, *(p.grad for p in layer.parameters())])
    for mine, expected in zip(*results, strict=True):
        assert relative_error(mine, expected) < 1e-12


def test_a_packed_batch_gives_each_sequence_what_it_gets_alone():
    layer = GLSTM(3, 5, num_layers=2, bidirectional=True, mu=(1, 9), sigma=3.0, threshold=0.05, dtype=torch.float64)
    sequences = [torch.randn(length, 3, dtype=torch.float64) for length in (4, 9, 1, 6)]
    times = [torch.rand(len(x), dtype=torch.float64).cumsum(0) + 1 for x in sequences]
    output, (h_n, c_n) = layer(pack_sequence(sequences, enforce_sorted=False), times=pack_sequence(times, False))
    padded, _ = pad_packed_sequence(output)
    for index, (x, t) in enumerate(zip(sequences, times, strict=True)):
        alone, (h, c) = layer(x, times=t)
        assert relative_error(padded[: len(x), index], alone) < 1e-12
        assert relative_error(h_n[:, index], h) < 1e-12
        assert relative_error(c_n[:, index], c) < 1e-12
    # The same times as a padded tensor, whose padding is never looked at.
    table = torch.full((9, 4), float("nan"), dtype=torch.float64)
    for index, t in enumerate(times):
        table[: len(t), index] = t
    _, (again, _) = layer(pack_sequence(sequences, enforce_sorted=False), times=table)
    again.sum().backward()
    assert layer.mu_l0.grad.isfinite().all()
    assert torch.equal(again, h_n)


def test_packed_times_belong_to_their_samples_however_they_were_sorted():
    layer = GLSTM(3, 5, mu=(1, 4), sigma=1.0, batch_first=True)
    sequences, times = (
        [torch.randn(4, 3) for _ in range(2)],
        [torch.tensor([1.0, 2, 3, 4]), torch.tensor([3.0, 5, 7, 9])],
    )
    one_way = layer(pack_sequence(sequences), times=pack_sequence(times))[1][0]
    swapped = pack_sequence(sequences[::-1])
    other_way = PackedSequence(swapped.data, swapped.batch_sizes, torch.tensor([1, 0]), torch.tensor([1, 0]))
    assert torch.allclose(layer(other_way, times=pack_sequence(times))[1][0], one_way, atol=1e-6)
    bad = torch.stack(times)
    bad[1, 2] = 0
    with pytest.raises(ValueError, match="step 2 of sample 1"):
        layer(other_way, times=bad)
    with pytest.raises(ValueError, match="step 2 of sample 1"):
        layer(torch.stack(sequences), times=bad)
    with pytest.raises(ValueError, match="packed from sequences of different lengths"):
        layer(pack_sequence(sequences), times=pack_sequence([times[0], times[1][:2]]))
