"""Random masks, such as Drop-Connect's: a function of (seed, step, element) and of nothing else.

With a random generator, a network's masks would depend on which other networks train with it, on the device, and on
where training was resumed. A hash avoids that: splitmix64 (Steele, Lea and Flood, 2014) is a few whole-number
operations, the same on every device and in a CUDA graph.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def signed(number: int) -> int:
    """The 64 bits of a number as torch's int64 holds them."""
    number %= 2**64
    return number - 2**64 if number >= 2**63 else number


GOLDEN = signed(0x9E3779B97F4A7C15)  # the step between splitmix64's arguments
FIRST, SECOND = signed(0xBF58476D1CE4E5B9), signed(0x94D049BB133111EB)


def scramble(bits: Tensor) -> Tensor:
    """splitmix64's scrambling of int64; products wrap around."""
    bits = (bits ^ _shifted(bits, 30)) * FIRST
    bits = (bits ^ _shifted(bits, 27)) * SECOND
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, by: int) -> Tensor:
    """A shift to the right that fills with zeros; torch's own shift repeats the sign."""
    return (bits >> by) & (2 ** (64 - by) - 1)


def keys(seeds: Tensor, step: Tensor) -> Tensor:
    """One number for each seed (M,) at this step (a 0-dim tensor)."""
    return scramble(scramble(seeds + GOLDEN) + step * GOLDEN)


def seed_of_step(seed: int, step: int) -> int:
    """The same number as from `keys`, on the host: torch's own generator is seeded with it before a step."""
    return _scrambled(_scrambled(seed + GOLDEN) + step * GOLDEN)


def _scrambled(bits: int) -> int:
    bits %= 2**64
    bits = ((bits ^ (bits >> 30)) * (FIRST % 2**64)) % 2**64
    bits = ((bits ^ (bits >> 27)) * (SECOND % 2**64)) % 2**64
    return bits ^ (bits >> 31)


def key_of_part(key: Tensor, part: int) -> Tensor:
    """The key of a network's part, counted from 0: no two parts draw the same mask."""
    return scramble(key + signed(part * GOLDEN)) if part else key


class Keyed:
    """A module whose random draws in training follow from `key`, a 0-dim tensor.

    A trainer may set it before each step, from `keys`; otherwise the module draws one from torch's generator.
    """

    key: Tensor | None = None


def random_key(device: torch.device) -> Tensor:
    """A key from torch's own generator, for training loops that set none."""
    return torch.randint(-(2**63), 2**63 - 1, (), device=device)


def keep_mask(key: Tensor, elements: Tensor, p: float) -> Tensor:
    """Which of the elements (n,), numbered by `number_elements`, are kept with probability 1 - p: (..., n) bool."""
    return scramble(key.unsqueeze(-1) + elements) >= signed(int(p * 2**64) - 2**63)


PARTS = 2**16  # of 1, in which `keep_rows` counts a share


def least_kept(parts_left_out: Sequence[int], device: torch.device) -> Tensor:
    """For `keep_rows`: the smallest draw at which an element is kept, where so many of `PARTS` are left out."""
    return torch.tensor([parts - PARTS // 2 for parts in parts_left_out], dtype=torch.int16, device=device)


def keep_rows(keys: Tensor, count: int, least: Tensor) -> Tensor:
    """For each of the keys (M,), which of `count` elements are kept: (M, count) bool.

    What `keep_mask` does with a hash for each element, this does with a hash for four: whole recurrent matrices are
    drawn anew at every update. `keep_mask` stays as it is, so that networks of before get the same bits.
    """
    numbers = number_elements(-(-count // 4), keys.device)
    draws = scramble(keys.unsqueeze(-1) + numbers).view(torch.int16)
    return draws[:, :count] >= least.unsqueeze(-1)


def uniform(key: Tensor, elements: Tensor) -> Tensor:
    """A float32 number above 0 and below 1 for each of the elements (n,), numbered by `number_elements`: (..., n)."""
    bits = _shifted(scramble(key.unsqueeze(-1) + elements), 41)  # 23 of them: with the half they still fit a float32
    return (bits.to(torch.float32) + 0.5) * 2**-23


def whole_numbers(key: Tensor, elements: Tensor, below: int) -> Tensor:
    """An int64 number from 0 on and below `below` for each of the elements (n,): (..., n). For numbers of steps, which
    are far below 2^63, all are equally likely to many digits."""
    return _shifted(scramble(key.unsqueeze(-1) + elements), 1) % below


def number_elements(count: int, device: torch.device, after: int = 0) -> Tensor:
    """Of `count` elements that come after so many others."""
    return torch.arange(after + 1, after + count + 1, device=device) * GOLDEN


def dropout_factors(module: Keyed, samples: int, units: int, p: float, place: int, like: Tensor) -> Tensor:
    """Factors (samples, units) of dropout, 0 or 1 / (1 - p), the same at all steps of a sequence.

    `place` counts the places of the module at which units are dropped: no two have the same factors.
    """
    key = random_key(like.device) if module.key is None else module.key
    count = samples * units
    kept = keep_mask(key, number_elements(count, like.device, place * count), p)
    return kept.view(samples, units).to(like.dtype) / (1 - p)
