"""Any number of units, step by step: torch multiplies, one kernel does the rest.

For networks whose recurrent weights do not fit into the registers of a cluster of multiprocessors. Two launches a step:
far from the one kernel of `scan.py`, and far quicker than the same in PyTorch; in a CUDA graph launches cost little.
"""

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from glstm.ops.gpu.runtime import Kernels, Long

THREADS = 256
HERE = Path(__file__).parent


@cache
def kernels(hidden: int, logistic: bool, k_per_sample: bool) -> Kernels:
    constants = {"H": hidden, "LOGISTIC": logistic, "K_PER_SAMPLE": k_per_sample, "EXACT": 1}
    return Kernels("".join((HERE / name).read_text() for name in ("cell.cuh", "steps.cu")), constants)


def tape_parts(models, steps, batch, hidden) -> list:
    """How many floats the tape has of gates, of h and of c before every step and after the last."""
    cells = models * batch * hidden
    return [steps * cells * 4, (steps + 1) * cells, (steps + 1) * cells]


def forward(drive: Tensor, w_hh: Tensor, k: Tensor, h0: Tensor, c0: Tensor, candidate: str):
    """drive (M, T, B, 4H): the input's share of the gates. Returns the tape, h and c of all steps (T + 1, M, B, H)."""
    models, steps, batch, _ = drive.shape
    hidden = w_hh.shape[2]
    tape = drive.new_empty(sum(sizes := tape_parts(models, steps, batch, hidden)))
    gates, h, c = tape.split(sizes)
    gates = gates.view(steps, models, batch, 4 * hidden)
    gates.copy_(drive.transpose(0, 1))
    h, c = (part.view(steps + 1, models, batch, hidden) for part in (h, c))
    h[0], c[0] = h0, c0
    cells, backwards = models * batch * hidden, w_hh.transpose(1, 2)
    step = kernels(hidden, candidate == "sigmoid", k.dim() == 4).prepare(
        "cells_forward", (-(-cells // THREADS), 1), THREADS, gates, k, h, c, Long(cells), steps, batch, 0
    )
    for t, (sums, before) in enumerate(zip(gates.unbind(0), h.unbind(0), strict=False)):
        torch.baddbmm(sums, before, backwards, out=sums)
        step(t)
    return tape, h, c


def backward(dh, dh_n: Tensor, dc_n: Tensor, dc, w_hh: Tensor, k: Tensor, tape: Tensor, steps: int, candidate: str):
    """da (M, T * B, 4H), rows of h before the steps (M, T * B, H), dk, dh0, dc0. dh and dc are (M, T, B, H) or None."""
    models, batch, hidden = dh_n.shape
    gates, h, c = tape.split(tape_parts(models, steps, batch, hidden))
    gates = gates.view(steps, models, batch, 4 * hidden)
    h, c = (part.view(steps + 1, models, batch, hidden) for part in (h, c))
    dh, dc = (None if part is None else part.transpose(0, 1).contiguous() for part in (dh, dc))
    da, dk = torch.empty_like(gates), torch.empty_like(h[1:])
    dh_now, dc_now = dh_n.clone(), dc_n.clone()
    cells = models * batch * hidden
    step = kernels(hidden, candidate == "sigmoid", k.dim() == 4).prepare(
        "cells_backward", (-(-cells // THREADS), 1), THREADS,
        gates, k, h, c, dh, dc, dh_now, dc_now, da, dk, Long(cells), steps, batch, 0,
    )  # fmt: skip
    for t, slopes in reversed(list(enumerate(da.unbind(0)))):
        step(t)
        torch.baddbmm(dh_now, slopes, w_hh, out=dh_now)
    dk = dk.transpose(0, 1).contiguous() if k.dim() == 4 else dk.sum(2).transpose(0, 1).contiguous()
    rows = h[:-1].transpose(0, 1).reshape(models, steps * batch, hidden)
    return da.transpose(0, 1).reshape(models, steps * batch, 4 * hidden), rows, dk, dh_now, dc_now
