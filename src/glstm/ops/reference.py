"""The gated LSTM and the gated GRU as their equations: what every faster backend is tested against.

Shapes here and everywhere in the package: T steps, B samples, D inputs, H units.
"""

import torch
from torch import Tensor

CANDIDATES = {"tanh": torch.tanh, "sigmoid": torch.sigmoid}
GRU = "gru"
# What a unit computes from its four sums. An LSTM's rule has the name of its candidate.
RULES = (*CANDIDATES, GRU)


def mix(k: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """k * new + (1 - k) * old, exact for k = 0 and k = 1."""
    # The copy is explicit: 0 * new + old would lose the sign of a zero, and would be NaN if new is infinite.
    return torch.where(k == 0, old, torch.lerp(old, new, k))


def open_step(sums: Tensor, h: Tensor, c: Tensor, rule: str) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """h and c of units that are open, and what of their gates the way back needs, from the weighted sums (B, 4H)."""
    return _open_gru(sums, h, c) if rule == GRU else _open_lstm(sums, c, rule)


def _open_lstm(sums: Tensor, c: Tensor, candidate: str) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    i, f, g, o = sums.chunk(4, -1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), CANDIDATES[candidate](g), o.sigmoid()
    c_new = f * c + i * g
    return o * c_new.tanh(), c_new, (i, f, g, o)  # h is that of the candidate cell, not of the mixed one


def _open_gru(sums: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """The candidate has two sums, of x and of h, because r is between them. There is no cell: c stays as it is."""
    r, z, of_x, of_h = sums.chunk(4, -1)
    r, z = r.sigmoid(), z.sigmoid()
    n = (of_x + r * of_h).tanh()
    return (1 - z) * n + z * h, c, (r, z, n, of_h)


def forward(x, w_ih, w_hh, b, k_c, k_h, h, c, rule):
    """Run all steps; returns h and c after every step (T, B, H) and the gates of `open_step` (T, B, 4H).

    Plain differentiable torch, so autograd can go through it any number of times.
    """
    drive = x @ w_ih.T if b is None else x @ w_ih.T + b
    hs, cs, gates = [], [], []
    # Unbound, not indexed: the gradient of an index is a whole table of zeros at each step.
    for drive_n, k_c_n, k_h_n in zip(drive.unbind(0), k_c.unbind(0), k_h.unbind(0)):
        h_new, c_new, gates_n = open_step(drive_n + h @ w_hh.T, h, c, rule)
        c, h = mix(k_c_n, c_new, c), mix(k_h_n, h_new, h)
        hs.append(h)
        cs.append(c)
        gates.append(torch.cat(gates_n, -1))
    if not hs:
        return h.new_empty(0, *h.shape), h.new_empty(0, *h.shape), drive
    return torch.stack(hs), torch.stack(cs), torch.stack(gates)
