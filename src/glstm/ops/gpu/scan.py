"""A whole sequence in one kernel, forward and backward, for as many units as fit into one multiprocessor.

Tensors are float32, contiguous, and have a leading model axis M (x may be without it: then all models read the same).
"""

from functools import cache
from pathlib import Path

import torch

from glstm.ops.gpu.products import drive_of, multiply, rows_of
from glstm.ops.gpu.runtime import Kernels, Long

LARGEST = 128  # units whose recurrent weights fit into the registers of one multiprocessor
INLINE = 4  # inputs up to which the kernel multiplies them itself
TILE, BLOCK = 8, 16  # samples and units that a matrix instruction takes
END = 16  # numbers after h in a row of the weights' gradient's left side: x, 1, zeros

HERE = Path(__file__).parent


def padded(hidden: int) -> int:
    return (hidden + BLOCK - 1) // BLOCK * BLOCK


def tape_parts(models, steps, batch, hidden: int, exact: bool) -> list:
    """How many 32-bit words the tape has of gates, previous c, previous h and rows for the weights' gradient."""
    threads = (batch + TILE - 1) // TILE * 2 * padded(hidden)
    cells = models * steps * threads * 4
    rows = models * steps * batch * (padded(hidden) + END)
    return [cells * 4, cells, cells, rows] if exact else [cells * 2, cells, cells // 2, rows // 2]


def source(part: str) -> str:
    """Of 'forward' or 'backward'."""
    return (HERE / "cells.cuh").read_text() + (HERE / f"{part}.cu").read_text()


@cache
def kernels(part: str, **constants: int) -> Kernels:
    return Kernels(source(part), constants)


def constants_for(hidden: int, inputs: int, candidate: str, k_per_sample, sequence, taped, exact) -> dict:
    return {
        "H": hidden,
        "D": inputs if inputs <= INLINE else 0,
        "LOGISTIC": candidate == "sigmoid",
        "K_PER_SAMPLE": k_per_sample,
        "SEQUENCE": sequence,
        "TAPED": taped,
        "EXACT": exact,
    }


def dynamic_bytes(hidden: int, exact: bool) -> int:
    """Of shared memory, for what 16 bits round off the weights: too much for the registers."""
    blocks = padded(hidden) // BLOCK
    return blocks * 4 * blocks * 512 if exact else 0


def shared_bytes(hidden: int, exact: bool) -> int:
    """All that a block needs: the larger of the two kernels' tables comes on top."""
    return dynamic_bytes(hidden, exact) + 2 * (1 + exact) * TILE * (4 * padded(hidden) + 8) + 64


def forward(x, w_ih, w_hh, b, k, h0, c0, candidate: str, sequence: bool, cells: bool, taped: bool, exact: bool):
    """All h or None, final h, final c, all c or None, tape or None."""
    models, hidden = w_hh.shape[0], w_hh.shape[2]
    steps, batch, inputs = x.shape[-3:]
    read = x if inputs <= INLINE else drive_of(x, w_ih, b)
    everything = (models, steps, batch, hidden)
    h = x.new_empty(everything) if sequence or cells else None
    c = x.new_empty(everything) if cells else None
    h_n, c_n = torch.empty_like(h0), torch.empty_like(c0)
    sizes = tape_parts(models, steps, batch, hidden, exact)
    tape = x.new_empty(sum(sizes)) if taped else None
    parts = [None] * 4 if tape is None else tape.split(sizes)
    constants = constants_for(hidden, inputs, candidate, k.dim() == 4, h is not None, taped, exact)
    kernels("forward", **constants).launch(
        "forward", ((batch + TILE - 1) // TILE, models), 2 * padded(hidden),
        read, Long(read[0].numel() if read.dim() == 4 else 0), w_ih, b, w_hh, k, h0, c0,
        h, c, h_n, c_n, *parts, steps, batch,
        shared_bytes=dynamic_bytes(hidden, exact),
    )  # fmt: skip
    return h if sequence else None, h_n, c_n, c, tape


def backward(dh, dh_n, dc_n, dc, x, w_ih, w_hh, k, tape, candidate: str, need_x: bool):
    """Gradients of x or None, w_ih, w_hh, b, k, h0, c0."""
    models, hidden = w_hh.shape[0], w_hh.shape[2]
    steps, batch, inputs = x.shape[-3:]
    exact = tape.numel() == sum(tape_parts(models, steps, batch, hidden, True))
    gates, c_before, h_before, rows = tape.split(tape_parts(models, steps, batch, hidden, exact))
    tiles, wide, narrow = (batch + TILE - 1) // TILE, padded(hidden), torch.float32 if exact else torch.bfloat16
    da = x.new_empty(models, steps * batch, 4 * wide, dtype=narrow)
    dk = torch.empty_like(k) if k.dim() == 4 else x.new_empty(models, tiles, steps, hidden)
    dh0, dc0 = torch.empty_like(dh_n), torch.empty_like(dc_n)
    sequence = dh is not None or dc is not None
    constants = constants_for(hidden, inputs, candidate, k.dim() == 4, sequence, True, exact)
    kernels("backward", **constants).launch(
        "backward", (tiles, models), 2 * wide,
        dh, dc, dh_n, dc_n, w_hh, k, gates, c_before, h_before, da, dk, dh0, dc0, steps, batch,
        shared_bytes=dynamic_bytes(hidden, exact),
    )  # fmt: skip
    rows = rows.view(narrow).view(models, steps * batch, wide + END)
    product = (
        multiply(da.transpose(1, 2), rows)
        .view(models, 4, wide, wide + END)[:, :, :hidden]
        .reshape(models, 4 * hidden, -1)
    )
    if inputs <= INLINE:
        dw_ih, db = product[..., wide : wide + inputs], product[..., wide + inputs]
    else:
        dw_ih = multiply(da.transpose(1, 2), rows_of(x, models).to(narrow)).view(models, 4, wide, inputs)[:, :, :hidden]
        dw_ih, db = dw_ih.reshape(models, 4 * hidden, inputs), product[..., wide]
    dx = None
    if need_x:
        weights = torch.nn.functional.pad(w_ih.view(models, 4, hidden, inputs), (0, 0, 0, wide - hidden))
        dx = multiply(da, weights.view(models, 4 * wide, inputs).to(narrow)).view(models, steps, batch, inputs)
        dx = dx.sum(0) if x.dim() == 3 else dx
    dk = dk if k.dim() == 4 else dk.sum(1)
    return dx, dw_ih, product[..., :hidden], db, dk, dh0, dc0
