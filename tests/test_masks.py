"""Drop-Connect's masks: splitmix64 of (seed, step, weight), and nothing else."""

import pytest
import torch

from glstm import masks

ALL = 2**64 - 1


def splitmix(bits: int) -> int:
    """Java's SplittableRandom, in whole numbers of any size."""
    bits &= ALL
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & ALL
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & ALL
    return bits ^ (bits >> 31)


def keep(seed: int, step: int, count: int, p: float = 0.5) -> torch.Tensor:
    key = masks.keys(torch.tensor(seed), torch.tensor(step))
    return masks.keep_mask(key, masks.number_elements(count, torch.device("cpu")), p)


def test_the_hash_is_splitmix64():
    numbers = [0, 1, -1, 12345, 2**63 - 1, -(2**63), masks.GOLDEN]
    mixed = masks.scramble(torch.tensor(numbers)).tolist()
    assert mixed == [masks.signed(splitmix(number)) for number in numbers]
    # the first numbers of the generator seeded with 0, as its authors publish them
    assert [number & ALL for number in masks.scramble(masks.number_elements(2, torch.device("cpu"))).tolist()] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
    ]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_right_share_is_kept_everywhere(p):
    kept = torch.stack([keep(3, step, 4096, p) for step in range(200)]).double()
    deviation = (p * (1 - p)) ** 0.5
    assert abs(kept.mean() - (1 - p)) < 4 * deviation / kept.numel() ** 0.5
    for axis in (0, 1):  # each step, and each weight
        means = kept.mean(axis)
        spread = deviation / kept.shape[axis] ** 0.5
        assert (means - (1 - p)).abs().max() < 5 * spread
        assert means.std().item() == pytest.approx(spread, rel=0.2)


def test_seeds_steps_and_neighbours_are_independent():
    base = keep(5, 7, 2**16).double() - 0.5
    others = [keep(6, 7, 2**16), keep(5, 8, 2**16), keep(7, 5, 2**16), keep(-5, 7, 2**16), base.roll(1) > 0]
    for other in others:
        correlation = 4 * (base * (other.double() - 0.5)).mean()
        assert abs(correlation) < 4 / 2**8  # four standard deviations of 65,536 fair coins


def test_many_seeds_at_once_are_each_by_itself():
    seeds = torch.tensor([0, 4, 2**40])
    together = masks.keep_mask(masks.keys(seeds, torch.tensor(9)), masks.number_elements(100, torch.device("cpu")), 0.3)
    assert torch.equal(together, torch.stack([keep(int(seed), 9, 100, 0.3) for seed in seeds]))


def test_the_host_and_the_device_agree_on_a_key():
    for seed, step in ((0, 0), (5, 7), (-3, 10**12)):
        key = masks.keys(torch.tensor(seed), torch.tensor(step))
        assert masks.signed(masks.seed_of_step(seed, step)) == int(key)


def test_parts_of_a_network_have_keys_of_their_own():
    key = masks.keys(torch.tensor(1), torch.tensor(2))
    keys = {int(masks.key_of_part(key, part)) for part in range(100)}
    assert len(keys) == 100
    assert int(key) in keys


def test_uniform_numbers_fill_the_open_interval():
    drawn = masks.uniform(torch.tensor(5), masks.number_elements(10**6, torch.device("cpu")))
    assert drawn.dtype == torch.float32
    assert 0 < drawn.min() < 1e-5
    assert 1 - 1e-5 < drawn.max() < 1
    counts = (drawn * 10).floor().long().bincount()
    assert (counts - 1e5).abs().max() < 4.5 * (1e5 * 0.9) ** 0.5
    # The ends that 23 bits and a half can reach are still numbers between 0 and 1.
    ends = (torch.tensor([0, 2**23 - 1]).float() + 0.5) * 2**-23
    assert 0 < ends[0] < ends[1] < 1


def rows(keys: torch.Tensor, count: int, shares: list[float]) -> torch.Tensor:
    parts = [round(share * masks.PARTS) for share in shares]
    return masks.keep_rows(keys, count, masks.least_kept(parts, keys.device))


def test_rows_are_kept_in_their_shares_each_by_itself():
    keys = torch.tensor([3, -(2**62), 7])
    shares = [0.25, 0.99, 0.0]
    kept = rows(keys, 40_001, shares)
    assert kept.shape == (3, 40_001)
    assert kept.float().mean(1).tolist() == pytest.approx([0.75, 0.01, 1.0], abs=0.01)
    for row in range(3):
        assert rows(keys[row : row + 1], 40_001, shares[row : row + 1]).equal(kept[row : row + 1])
    assert rows(keys, 5, shares).equal(kept[:, :5])


def test_elements_of_a_row_are_independent_though_four_share_a_hash():
    """Neighbours at every distance up to 5, four of which are of one hash; and another network, and another update."""
    keys = masks.keys(torch.tensor([5, 6]), torch.tensor(7))
    drawn = rows(keys, 2**16, [0.5, 0.5]).double() - 0.5
    later = rows(masks.keys(torch.tensor([5]), torch.tensor(8)), 2**16, [0.5]).double() - 0.5
    part = rows(masks.key_of_part(keys[:1], -1), 2**16, [0.5]).double() - 0.5
    base = drawn[0]
    for other in (drawn[1], later[0], part[0], *(base.roll(distance) for distance in range(1, 6))):
        assert abs(4 * (base * other).mean()) < 4 / 2**8  # four standard deviations of 65,536 fair coins


def test_every_place_of_a_row_is_kept_equally_often():
    keys = masks.keys(torch.tensor([3]), torch.arange(4000).unsqueeze(1)).flatten()
    kept = rows(keys, 64, [0.3] * 4000).double()
    assert (kept.mean(0) - 0.7).abs().max() < 4.5 * (0.3 * 0.7 / 4000) ** 0.5
