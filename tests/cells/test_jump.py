"""LSTM-Jump against a reader of one sequence at a time, written from its paper; its draws, REINFORCE, and counts."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from glstm.cells.jump import LSTMJump
from glstm.errors import UserError
from helpers import relative_error

STEPS, BATCH, INPUTS, UNITS = 30, 6, 3, 5


def make(layers: int = 1, training: bool = False, **options) -> LSTMJump:
    torch.manual_seed(5)
    cell = LSTMJump(INPUTS, UNITS, layers, **{"read": 2, "jumps": 4, "furthest": 5, **options}).double()
    nn.init.normal_(cell.jump.weight, std=4.0)  # so that samples differ
    return cell.train(training)


def sequences(steps: int = STEPS, batch: int = BATCH) -> Tensor:
    return torch.randn(steps, batch, INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(6))


def lstm(layer, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    i, f, g, o = (layer.weight_ih @ x + layer.weight_hh @ h + layer.bias).chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def skim(cell: LSTMJump, x: Tensor, choose: Callable[[Tensor], int]) -> tuple[Tensor, list[int], list[tuple]]:
    """As the paper tells it: the state after the last input read until each step, the inputs read, the decisions."""
    states = [(x.new_zeros(UNITS), x.new_zeros(UNITS)) for _ in cell.layers]
    after: dict[int, Tensor] = {}
    decisions, place = [], 0
    for jump in range(cell.jumps + 1):
        for _ in range(cell.read):
            if place == len(x):
                break
            below = x[place]
            for number, layer in enumerate(cell.layers):
                states[number] = lstm(layer, below, *states[number])
                below = states[number][0]
            after[place] = below
            place += 1
        if place == len(x) or jump == cell.jumps:
            break
        h = states[0][0]
        k = choose(cell.jump(h))
        decisions.append((h.detach(), k))
        if k == 0:
            break
        place += k - 1  # the k-th from here is the next
        if place >= len(x):
            break
    held, outputs = x.new_zeros(UNITS), []
    for n in range(len(x)):
        held = after.get(n, held)
        outputs.append(held)
    return torch.stack(outputs), sorted(after), decisions


@pytest.mark.parametrize("layers", [1, 2])
def test_the_most_probable_jumps(layers):
    cell, x = make(layers), sequences()
    output, _ = cell(x)
    read = []
    for n in range(BATCH):
        expected, places, _ = skim(cell, x[:, n], lambda scores: int(scores.argmax()))
        assert relative_error(output[:, n], expected) < 1e-12
        read.append(places)
    assert len({tuple(places) for places in read}) > 2, "the test should jump in several ways"
    assert relative_error(cell.share_of_updates, x.new_tensor(sum(map(len, read)) / STEPS / BATCH)) < 1e-12


def test_reading_stops_at_zero_and_after_the_last_jump():
    x = sequences()
    for chosen, places in ((0, [0, 1]), (1, list(range(10))), (3, [0, 1, 4, 5, 8, 9, 12, 13, 16, 17])):
        cell = make()
        nn.init.zeros_(cell.jump.weight)
        cell.jump.bias.data = nn.functional.one_hot(torch.tensor(chosen), 6).double()
        output, _ = cell(x)
        changed = [n for n in range(1, STEPS) if not torch.equal(output[n], output[n - 1])]
        assert [0, *changed] == places
        assert cell.share_of_updates == pytest.approx(len(places) / STEPS)


def test_one_piece_or_many_while_jumping():
    cell, x = make(2), sequences()
    whole, end = cell(x)
    state, pieces = None, []
    for x_n in x.split([1, 2, 1, 7, 3, 16]):
        output, state = cell(x_n, state)
        pieces.append(output)
    assert relative_error(torch.cat(pieces), whole) < 1e-12
    for one, other in zip(state, end, strict=True):
        assert relative_error(one, other) < 1e-12


def test_draws_follow_from_the_key_and_from_the_softmax():
    cell = make(training=True, read=1, jumps=1)
    x = sequences(1, 1).expand(8, 4000, -1)
    cell.key = torch.tensor(7)
    first, _ = cell(x)
    assert cell.decisions is not None
    decides = cell.decisions[2]
    assert torch.equal(decides.any(0), torch.ones(4000, dtype=torch.bool))
    again, _ = cell(x)
    assert torch.equal(first, again)
    cell.key = torch.tensor(8)
    assert not torch.equal(cell(x)[0], first)
    # With one input read, then one jump, then one more input, when that is read says how far the jump was.
    changes = (first[1:] != first[:-1]).any(-1)
    found = torch.cat((1 - changes.double().sum(0, keepdim=True), changes.double()))[:6].mean(1)
    wanted = cell.jump(first[0, 0]).softmax(-1)
    assert (found - wanted).abs().max() < 4 * 0.5 / 4000**0.5


def test_reinforce_and_baseline():
    cell, x = make(training=True), sequences()
    cell.key = torch.tensor(1)
    output, _ = cell(x)
    assert cell.decisions is not None
    decides = cell.decisions[2]
    # With the key's noise, the largest score of the h before a step is what was drawn there.
    scores = cell.jump(torch.cat((torch.zeros_like(output[:1]), output[:-1])))
    drawn = (scores + cell._noise(scores)).argmax(-1)
    errors = torch.tensor([0.0, 1, 0, 1, 1, 0], dtype=torch.float64)
    found = cell.extra_losses(torch.rand(BATCH, dtype=torch.float64), errors)
    assert cell.decisions is None
    assert cell.extra_losses(errors, errors).sum() == 0
    wanted = x.new_zeros(BATCH)
    for n in range(BATCH):
        left = drawn[decides[:, n], n].tolist()
        expected, _, decisions = skim(cell, x[:, n], lambda scores, left=left: left.pop(0))
        assert relative_error(output[:, n], expected) < 1e-12
        assert left == []
        reward = 1 - 2 * errors[n]
        for h, k in decisions:
            short = reward - cell.baseline(h)[0]
            wanted[n] += short**2 - cell.jump(h).log_softmax(-1)[k] * short.detach()
    assert relative_error(found, wanted) < 1e-12
    learning = [*cell.jump.parameters(), *cell.baseline.parameters()]
    slopes = [torch.autograd.grad(total.sum(), learning, retain_graph=True) for total in (found, wanted)]
    for one, other in zip(*slopes, strict=True):
        assert relative_error(one, other) < 1e-10
    others = torch.autograd.grad(found.sum(), list(cell.layers.parameters()), allow_unused=True)
    assert all(slope is None for slope in others)


def test_without_classes_the_reward_is_minus_the_loss():
    cell, x, losses = make(training=True), sequences(), torch.rand(BATCH, dtype=torch.float64)
    cell.key = torch.tensor(1)
    cell(x)
    as_classes = cell.extra_losses(losses, (1 + losses) / 2)  # 1 - 2 of these is minus the loss
    cell(x)
    assert relative_error(cell.extra_losses(losses, None), as_classes) < 1e-12


def test_a_budget_teaches_to_read_less():
    cell, x = make(training=True, read=1, jumps=20, furthest=3), sequences(30, 64)
    nn.init.zeros_(cell.jump.weight)
    nn.init.zeros_(cell.jump.bias)
    optimizer = torch.optim.Adam(cell.parameters(), lr=0.05)
    shares = []
    for number in range(40):
        cell.key = torch.tensor(number)
        cell(x)
        assert cell.share_of_updates is not None
        shares.append(cell.share_of_updates.item())
        optimizer.zero_grad()
        cell.share_of_updates.backward()
        optimizer.step()
    assert shares[-1] < 0.5 * shares[0]


def test_neither_reading_nor_deciding_counts_in_the_padding():
    cell, x, lengths = make(training=True), sequences(), [5, STEPS, 1, 3, 9, 4]
    cell.key = torch.tensor(2)
    whole, _ = cell(x)
    read = torch.cat((torch.ones(1, BATCH, dtype=torch.bool), (whole[1:] != whole[:-1]).any(-1)))
    wanted = sum(int(read[:length, n].sum()) for n, length in enumerate(lengths)) / sum(lengths)
    output, _ = cell(x, lengths=torch.tensor(lengths))
    assert cell.share_of_updates is not None
    assert cell.decisions is not None
    assert cell.share_of_updates.item() == pytest.approx(wanted)
    for n, length in enumerate(lengths):
        assert torch.equal(output[:length, n], whole[:length, n])
        assert not cell.decisions[2][length:, n].any()


def test_the_share_of_packed_sequences():
    cell, x, lengths = make(), sequences(), [5, STEPS, 1, 3, 9, 4]
    cell(pack_sequence([x[:length, n] for n, length in enumerate(lengths)], enforce_sorted=False))
    read = [skim(cell, x[:length, n], lambda scores: int(scores.argmax()))[1] for n, length in enumerate(lengths)]
    assert cell.share_of_updates is not None
    assert cell.share_of_updates.item() == pytest.approx(sum(map(len, read)) / sum(lengths))


def test_operations():
    cell = LSTMJump(1, 110, read=20, furthest=40)
    assert cell.count_ops(784, 0) == 0
    assert cell.count_ops(1000, 0.5) == 500 * 110 * (8 + 880 + 29) + 25 * (41 * 220 + 40)


@pytest.mark.parametrize(("name", "value"), [("read", 0), ("jumps", -1), ("furthest", 0), ("read", 1.5)])
def test_bad_options_get_one_sentence(name, value):
    with pytest.raises(UserError, match=f"{name} must be a whole number of at least ., not {value}"):
        LSTMJump(1, 4, **{name: value})
