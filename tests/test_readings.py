"""What a head reads, of sequences of unequal lengths, in any layout, of any cell; and numbers in the user's unit."""

import pytest
import torch
from torch import nn

from glstm import GLSTM, LSTM, Rescale, SequenceModel, Standardize

STEPS, LENGTHS, INPUTS, UNITS = 9, (9, 4, 1, 6), 2, 5
TIMES = torch.cumsum(torch.rand(STEPS, len(LENGTHS), generator=torch.Generator().manual_seed(1)) + 0.1, 0)


def layer(kind: str, batch_first: bool, bidirectional: bool) -> nn.Module:
    options = {"batch_first": batch_first, "bidirectional": bidirectional}
    if kind == "glstm":
        return GLSTM(INPUTS, UNITS, mu=(1, 9), sigma=3.0, **options)
    return {"lstm": LSTM, "torch": nn.LSTM, "gru": nn.GRU}[kind](INPUTS, UNITS, **options)


@pytest.mark.parametrize("reads", ["last", "every", "mean", "max"])
@pytest.mark.parametrize("kind", ["glstm", "lstm", "torch", "gru"])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_padding_changes_nothing(reads, kind, batch_first, bidirectional, timed):
    torch.manual_seed(0)
    own = layer(kind, batch_first, bidirectional)
    head = nn.Linear(UNITS * (2 if bidirectional else 1), 3)
    inputs = Standardize(INPUTS, "carry")
    inputs.mean.copy_(torch.tensor([10.0, -3.0]))
    inputs.scale.copy_(torch.tensor([2.0, 0.5]))
    model = SequenceModel(own, head, reads=reads, inputs=inputs)
    x = torch.randn(STEPS, len(LENGTHS), INPUTS) * 2 + 10
    x[3, 0, 1] = torch.nan
    steps_axis = 1 if batch_first else 0
    laid_out = x.transpose(0, 1) if batch_first else x
    times = (TIMES.T if batch_first else TIMES) if timed else None
    together = model(laid_out, times=times, lengths=torch.tensor(LENGTHS))
    for sample, length in enumerate(LENGTHS):
        alone = laid_out.select(1 - steps_axis, sample).narrow(0, 0, length)
        expected = model(alone.unsqueeze(1 - steps_axis), times=TIMES[:length, sample] if timed else None)
        if reads == "every":
            found = together.select(1 - steps_axis, sample).narrow(0, 0, length)
            expected = expected.squeeze(1 - steps_axis)
        else:
            found, expected = together[sample], expected[0]
        torch.testing.assert_close(found, expected)


def test_readings_are_what_they_say():
    model = SequenceModel(GLSTM(INPUTS, UNITS, mu=(1, 9), sigma=3.0), nn.Identity())
    x = torch.randn(STEPS, 3, INPUTS)
    h, (h_n, _) = model.layer(x)
    for reads, expected in {"last": h_n[0], "every": h, "mean": h.mean(0), "max": h.amax(0)}.items():
        model.reads = reads
        torch.testing.assert_close(model(x), expected)


def test_gradients_do_not_come_from_padding():
    model = SequenceModel(GLSTM(INPUTS, UNITS, mu=(1, 9), sigma=3.0), nn.Linear(UNITS, 1), reads="mean")
    x = torch.randn(STEPS, len(LENGTHS), INPUTS, requires_grad=True)
    model(x, lengths=torch.tensor(LENGTHS)).sum().backward()
    for sample, length in enumerate(LENGTHS):
        assert x.grad[length:, sample].abs().sum() == 0
        assert x.grad[:length, sample].abs().sum() > 0


def test_what_cannot_be_read_is_refused():
    with pytest.raises(ValueError, match="reads must be one of last, every, mean, max, not 'first'"):
        SequenceModel(nn.GRU(1, 2), nn.Linear(2, 1), reads="first")


def test_a_saved_network_takes_raw_numbers(tmp_path):
    outputs = Rescale(2)
    outputs.mean.fill_(300.0)
    outputs.scale.fill_(10.0)
    inputs = Standardize(INPUTS, "mask")
    inputs.mean.fill_(7.0)
    model = SequenceModel(
        GLSTM(2 * INPUTS, UNITS, mu=(1, 9), sigma=3.0), nn.Linear(UNITS, 2), reads="mean", inputs=inputs,
        outputs=outputs, classes=["off", "on"],
    ).eval()  # fmt: skip
    model.save_pretrained(tmp_path / "model")
    same = SequenceModel.from_pretrained(tmp_path / "model")
    assert (same.reads, same.classes, same.inputs.missing) == ("mean", ("off", "on"), "mask")
    x = torch.randn(STEPS, 3, INPUTS)
    x[2] = torch.nan
    assert torch.equal(same(x), model(x))
    assert (same(x) - 300).abs().max() < 50


def test_missing_values_before_the_first_are_the_mean():
    inputs = Standardize(1, "carry")
    inputs.mean.fill_(5.0)
    x = torch.tensor([torch.nan, torch.nan, 7.0, torch.nan, 3.0]).view(-1, 1, 1)
    assert inputs(x).flatten().tolist() == [0, 0, 2, 2, -2]
    with pytest.raises(ValueError, match="missing must be one of refuse, carry, mask"):
        Standardize(1, "drop")


def test_numpy_arrays_are_taken():
    model = SequenceModel(GLSTM(INPUTS, UNITS, mu=(1, 9), sigma=3.0), nn.Linear(UNITS, 1), reads="mean")
    x, lengths = torch.randn(STEPS, len(LENGTHS), INPUTS), torch.tensor(LENGTHS)
    found = model(x.double().numpy(), times=TIMES.numpy(), lengths=lengths.numpy())
    torch.testing.assert_close(found, model(x, times=TIMES, lengths=lengths))


def test_gates_do_not_fit_the_times_of_padding():
    model = SequenceModel(GLSTM(INPUTS, UNITS), nn.Linear(UNITS, 1), reads="mean")
    times = torch.tensor([[1.0, 1.0], [2.0, 2.0], [100.0, 3.0]])
    model(torch.randn(3, 2, INPUTS), times, torch.tensor([2, 3]))
    assert model.layer.seen.last == 3
