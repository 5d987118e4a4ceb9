"""Which weights Drop-Connect leaves out: a function of (seed, step, weight) and of nothing else.

A random generator would make a network's masks depend on who trains beside it, where, and since when. A hash does not:
splitmix64 (Steele, Lea and Flood, 2014) is a few whole-number operations, the same on every device and in a CUDA graph.
"""

import torch
from torch import Tensor


def signed(number: int) -> int:
    """The 64 bits of a number as torch's int64 holds them."""
    number %= 2**64
    return number - 2**64 if number >= 2**63 else number


GOLDEN = signed(0x9E3779B97F4A7C15)  # how far apart splitmix64's arguments lie
FIRST, SECOND = signed(0xBF58476D1CE4E5B9), signed(0x94D049BB133111EB)


def mix(bits: Tensor) -> Tensor:
    """splitmix64's scrambling of int64; products wrap around."""
    bits = (bits ^ _shifted(bits, 30)) * FIRST
    bits = (bits ^ _shifted(bits, 27)) * SECOND
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, by: int) -> Tensor:
    """Shifted to the right with zeros coming in; torch's own shift repeats the sign."""
    return (bits >> by) & (2 ** (64 - by) - 1)


def keys(seeds: Tensor, step: Tensor) -> Tensor:
    """One number for each seed (M,) at this step (a 0-dim tensor)."""
    return mix(mix(seeds + GOLDEN) + step * GOLDEN)


def kept(key: Tensor, elements: Tensor, p: float) -> Tensor:
    """Which of the elements (n,), numbered by `number_elements`, are kept with probability 1 - p: (..., n) bool."""
    return mix(key.unsqueeze(-1) + elements) >= signed(int(p * 2**64) - 2**63)


def number_elements(count: int, device: torch.device) -> Tensor:
    return torch.arange(1, count + 1, device=device) * GOLDEN
