"""Images that move a little in every epoch."""

import pytest
import torch

from glstm.data.images import PixelTask
from glstm.errors import UserError

SIDE, COUNT = 5, 40


def task(shift: int, channels: int = 2) -> PixelTask:
    draws = torch.Generator().manual_seed(0)
    images = torch.randint(1, 256, (COUNT, SIDE * SIDE, channels), generator=draws, dtype=torch.uint8)
    return PixelTask("images", (images, torch.arange(COUNT) % 10), (images[:4], torch.arange(4)), shift=shift)


def test_images_move_as_a_whole_and_black_comes_in():
    still, moving = task(0), task(2)
    order, moves = moving.stage(3, 1)
    assert torch.equal(order, still.stage(3, 1)[0])  # the same order, moved or not
    x, y = moving.cut((order, moves), slice(0, COUNT))
    plain, labels = still.cut((order,), slice(0, COUNT))
    assert torch.equal(y, labels)
    grid = plain.view(SIDE, SIDE, COUNT, 2)
    for sample in range(COUNT):
        down, right = moves[sample].tolist()
        expected = torch.zeros(SIDE, SIDE, 2)
        for row in range(SIDE):
            for column in range(SIDE):
                if 0 <= row + down < SIDE and 0 <= column + right < SIDE:
                    expected[row, column] = grid[row + down, column + right, sample]
        assert torch.equal(x[:, sample].view(SIDE, SIDE, 2), expected)
    assert set(moves.flatten().tolist()) == {-2, -1, 0, 1, 2}


def test_moves_depend_on_seed_and_epoch_alone():
    moving = task(1)
    moves = {(seed, epoch): moving.stage(seed, epoch)[1] for seed in (0, 1) for epoch in (1, 2)}
    assert torch.equal(moves[0, 1], task(1).stage(0, 1)[1])
    assert not torch.equal(moves[0, 1], moves[0, 2])
    assert not torch.equal(moves[0, 1], moves[1, 1])


def test_stages_of_several_networks_are_cut_together_by_vmap():
    moving = task(1)
    stages = [moving.stage(seed, 1) for seed in (0, 1, 2)]
    together = tuple(torch.stack(parts) for parts in zip(*stages))
    for wanted in (slice(4, 9), torch.arange(4, 9)):
        x, y = torch.vmap(lambda stage, wanted=wanted: moving.cut(stage, wanted))(together)
        assert x.shape == (3, SIDE * SIDE, 5, 2)
        for number, stage in enumerate(stages):
            own_x, own_y = moving.cut(stage, wanted)
            assert torch.equal(x[number], own_x)
            assert torch.equal(y[number], own_y)


def test_images_that_training_does_not_use_are_held_out():
    draws = torch.Generator().manual_seed(0)
    images = torch.randint(1, 256, (COUNT, SIDE * SIDE, 1), generator=draws, dtype=torch.uint8)
    labels = torch.arange(COUNT) % 10
    part = PixelTask("part", (images, labels), (images[:4], labels[:4]), train_size=30)
    batches, what = part.held_out(7, batch=3)
    assert what == "training sequences that were held out"
    assert torch.cat([y for _, y in batches]).tolist() == labels[30:37].tolist()
    assert torch.equal(torch.cat([x for x, _ in batches], 1), images[30:37].transpose(0, 1) / 255)
    batches, what = task(0).held_out(7, batch=3)
    assert "may have seen: a smaller train_size would hold some out" in what
    assert sum(len(y) for _, y in batches) == 7


def test_test_images_stay_where_they_are():
    assert torch.equal(task(2).test_samples(slice(0, 4))[0], task(0).test_samples(slice(0, 4))[0])


def test_what_cannot_move_is_refused():
    with pytest.raises(UserError, match="by at least one pixel and less than their side, 5 here"):
        task(5)


class Shuffled(PixelTask):
    def order(self):
        return torch.randperm(self.steps, generator=torch.Generator().manual_seed(3))


def test_pixels_in_another_order_move_with_their_image():
    straight = task(2)
    images, labels = straight._splits["train"]
    order = Shuffled.order(straight)
    shuffled = Shuffled("images", (images[:, order], labels), (images[:4], labels[:4]), shift=2)
    x, y = straight.cut(straight.stage(5, 1), slice(0, 9))
    own, own_y = shuffled.cut(shuffled.stage(5, 1), slice(0, 9))
    assert torch.equal(own, x[order])
    assert torch.equal(own_y, y)


def test_the_last_training_images_are_for_validation():
    images = torch.arange(COUNT * 25, dtype=torch.int64).to(torch.uint8).view(COUNT, 25, 1)
    labels = torch.arange(COUNT) % 10
    part = PixelTask("part", (images, labels), (images[:4], labels[:4]), validation=7, train_size=20)
    assert (part.train_size, part.validation_size) == (20, 7)
    x, y = part.validation_samples(slice(0, 7))
    assert torch.equal(x, images[-7:].transpose(0, 1) / 255)
    assert torch.equal(y, labels[-7:])
    seen = part.cut(part.stage(0, 1), slice(0, 20))[0]
    assert sorted(seen[:, n].flatten().tolist() for n in range(20)) == sorted((images[:20] / 255).flatten(1).tolist())
    assert part.held_out(3, batch=3)[1] == "validation sequences"
    with pytest.raises(UserError, match=f"validation takes some of the {COUNT} training images of part, not {COUNT}"):
        PixelTask("part", (images, labels), (images[:4], labels[:4]), validation=COUNT)
