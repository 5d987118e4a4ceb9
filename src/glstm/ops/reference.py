"""The gated LSTM as its equations: what every faster backend is tested against.

Shapes here and everywhere in the package: T steps, B samples, D inputs, H units.
"""

import torch
from torch import Tensor

CANDIDATES = {"tanh": torch.tanh, "sigmoid": torch.sigmoid}


def mix(k: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """k * new + (1 - k) * old, exact for k = 0 and k = 1."""
    # The copy is explicit: 0 * new + old would lose the sign of a zero, and would be NaN if new is infinite.
    return torch.where(k == 0, old, torch.lerp(old, new, k))


def open_step(sums: Tensor, c: Tensor, candidate: str) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """h and c of units that are open, and their gates i f g o, from the weighted sums (B, 4H) and the old c."""
    i, f, g, o = sums.chunk(4, -1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), CANDIDATES[candidate](g), o.sigmoid()
    c_new = f * c + i * g
    return o * c_new.tanh(), c_new, (i, f, g, o)  # h is that of the candidate cell, not of the mixed one


def forward(x, w_ih, w_hh, b, k_c, k_h, h, c, candidate):
    """Run all steps; returns h and c after every step (T, B, H) and the gates i f g o (T, B, 4H).

    Plain differentiable torch, so autograd can go through it any number of times.
    """
    drive = x @ w_ih.T if b is None else x @ w_ih.T + b
    hs, cs, gates = [], [], []
    # Unbound, not indexed: the gradient of an index is a whole table of zeros at each step.
    for drive_n, k_c_n, k_h_n in zip(drive.unbind(0), k_c.unbind(0), k_h.unbind(0)):
        h_new, c_new, gates_n = open_step(drive_n + h @ w_hh.T, c, candidate)
        c, h = mix(k_c_n, c_new, c), mix(k_h_n, h_new, h)
        hs.append(h)
        cs.append(c)
        gates.append(torch.cat(gates_n, -1))
    if not hs:
        return h.new_empty(0, *h.shape), h.new_empty(0, *h.shape), drive
    return torch.stack(hs), torch.stack(cs), torch.stack(gates)
