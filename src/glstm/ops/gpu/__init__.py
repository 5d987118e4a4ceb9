"""The CUDA engine: a whole sequence in one kernel, forward and backward, for up to 128 units.

Tensors may have a leading model axis M: as many networks as fit run side by side for little more than the price of one.
"""

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from glstm.ops.gpu.runtime import Kernels, Long, compiler

LARGEST = 128  # units whose recurrent weights fit into the registers of one multiprocessor
INLINE = 4  # inputs up to which the kernel multiplies them itself
TILE, BLOCK = 8, 16  # samples and units that a matrix instruction takes
END = 16  # numbers after h in a row of the weights' gradient's left side: x, 1, zeros

HERE = Path(__file__).parent


def usable(x: Tensor, k_h: Tensor | None, hidden: int) -> bool:
    return (
        x.device.type == "cuda"
        and x.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and k_h is None
        and hidden <= LARGEST
        and x.numel() > 0
        and _device_will_do(x.device)
    )


@cache
def _device_will_do(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0) and compiler() is not None


def exact_for(dtype: torch.dtype) -> bool:
    """float32 throughout, or 16-bit operands with float32 sums and states: as torch's own setting says."""
    return dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"


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


def _shared_bytes(hidden: int, exact: bool) -> int:
    """What 16 bits round off the weights: too much for the registers."""
    blocks = padded(hidden) // BLOCK
    return blocks * 4 * blocks * 512 if exact else 0


def forward(x, w_ih, w_hh, b, k, h0, c0, candidate: str, sequence: bool, cells: bool, taped: bool) -> tuple:
    """All h or None, final h, final c, all c or None, tape or None. Weights with a model axis, or without."""
    if w_hh.dim() == 2:
        w_ih, w_hh, k, h0, c0 = (tensor.unsqueeze(0) for tensor in (w_ih, w_hh, k, h0, c0))
        b = None if b is None else b.unsqueeze(0)
        lone = forward(x, w_ih, w_hh, b, k, h0, c0, candidate, sequence, cells, taped)
        return *(None if part is None else part.squeeze(0) for part in lone[:4]), lone[4]
    dtype, exact = x.dtype, exact_for(x.dtype)
    x, w_ih, w_hh, k, h0, c0 = (tensor.float().contiguous() for tensor in (x, w_ih, w_hh, k, h0, c0))
    models, hidden = w_hh.shape[0], w_hh.shape[2]
    steps, batch, inputs = x.shape[-3:]
    b = x.new_zeros(models, 4 * hidden) if b is None else b.float().contiguous()
    source = x if inputs <= INLINE else _drive(x, w_ih, b)
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
        source, Long(source[0].numel() if source.dim() == 4 else 0), w_ih, b, w_hh, k, h0, c0,
        h, c, h_n, c_n, *parts, steps, batch,
        shared_bytes=_shared_bytes(hidden, exact),
    )  # fmt: skip
    h = h if sequence else None
    return *(None if part is None else part.to(dtype) for part in (h, h_n, c_n, c)), tape


def backward(dh, dh_n, dc_n, dc, x, w_ih, w_hh, k, h0, tape, candidate, need_x: bool, need_h0: bool) -> tuple:
    """Gradients of x, w_ih, w_hh, b, k, h0, c0; those of x and h0 are None where nobody needs them."""
    if w_hh.dim() == 2:
        dh, dc = (None if tensor is None else tensor.unsqueeze(0) for tensor in (dh, dc))
        dh_n, dc_n, w_ih, w_hh, k = (tensor.unsqueeze(0) for tensor in (dh_n, dc_n, w_ih, w_hh, k))
        found = backward(dh, dh_n, dc_n, dc, x, w_ih, w_hh, k, h0, tape, candidate, need_x, need_h0)
        dx, *others = found
        return dx, *(None if part is None else part.squeeze(0) for part in others)
    dtype = x.dtype
    x, w_ih, w_hh, k, dh_n, dc_n = (tensor.float().contiguous() for tensor in (x, w_ih, w_hh, k, dh_n, dc_n))
    dh, dc = (None if tensor is None else tensor.float().contiguous() for tensor in (dh, dc))
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
        shared_bytes=_shared_bytes(hidden, exact),
    )  # fmt: skip
    rows = rows.view(narrow).view(models, steps * batch, wide + END)
    product = (
        _product(da.transpose(1, 2), rows)
        .view(models, 4, wide, wide + END)[:, :, :hidden]
        .reshape(models, 4 * hidden, -1)
    )
    flat = x.reshape(-1, steps * batch, inputs).expand(models, -1, -1)
    if inputs <= INLINE:
        dw_ih, db = product[..., wide : wide + inputs], product[..., wide + inputs]
    else:
        dw_ih = _product(da.transpose(1, 2), flat.to(narrow)).view(models, 4, wide, inputs)[:, :, :hidden]
        dw_ih, db = dw_ih.reshape(models, 4 * hidden, inputs), product[..., wide]
    dx = None
    if need_x:
        weights = torch.nn.functional.pad(w_ih.view(models, 4, hidden, inputs), (0, 0, 0, wide - hidden))
        dx = _product(da, weights.view(models, 4 * wide, inputs).to(narrow)).view(models, steps, batch, inputs)
        dx = dx.sum(0) if x.dim() == 3 else dx
    dk = dk if k.dim() == 4 else dk.sum(1)
    found = (dx, dw_ih, product[..., :hidden], db, dk, dh0 if need_h0 else None, dc0)
    return tuple(None if part is None else part.to(dtype).contiguous() for part in found)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """In float32 what 16-bit operands give."""
    return torch.bmm(a, b) if a.dtype == torch.float32 else torch.bmm(a, b, out_dtype=torch.float32)


def _drive(x: Tensor, w_ih: Tensor, b: Tensor) -> Tensor:
    """The input's share of the gates, (M, T, B, 4H)."""
    models = w_ih.shape[0]
    flat = x.reshape(-1, x.shape[-3] * x.shape[-2], x.shape[-1]).expand(models, -1, -1)
    drive = torch.baddbmm(b.unsqueeze(1), flat, w_ih.transpose(1, 2))
    return drive.view(models, *x.shape[-3:-1], -1)
