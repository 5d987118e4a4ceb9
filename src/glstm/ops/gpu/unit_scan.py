"""`unit_scan` on a GPU: a thread takes one unit of one sample through all steps. No thread waits for another, and sums
over samples are torch's, so the bits are the same every time."""

from functools import cache

import torch
from torch import Tensor

from glstm.ops.gpu.runtime import HERE, Kernels, Long

THREADS = 64  # of a block: few, so that even 11000 units of all samples reach every multiprocessor
AHEAD = 32  # steps that a thread has asked for while it computes those before


def source() -> str:
    return "".join((HERE / name).read_text() for name in ("instructions.cuh", "unit_scan.cu"))


def constants(activation: int, per_step: bool) -> dict[str, int]:
    return {"ACTIVATION": activation, "PER_STEP": per_step, "AHEAD": AHEAD, "THREADS": THREADS}


@cache
def unit_kernels(activation: int, per_step: bool) -> Kernels:
    """One for all sizes."""
    return Kernels(source(), constants(activation, per_step))


def forward(a: Tensor, b: Tensor, h0: Tensor, activation: int) -> Tensor:
    dtype = b.dtype
    a, b, h0 = map(_plain, (a, b, h0))
    h = torch.empty_like(b)
    _launch("unit_forward", activation, a, b.shape, a, b, h0, h)
    return h.to(dtype)


def backward(dh: Tensor, a: Tensor, h0: Tensor, h: Tensor, activation: int) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a for every sample, (T, B, H) or (1, B, H); of b; and of h0."""
    dtype = h.dtype
    dh, a, h0, h = map(_plain, (dh, a, h0, h))
    da = torch.empty_like(h) if a.shape[0] > 1 else torch.empty_like(h0).unsqueeze(0)
    db, dh0 = torch.empty_like(h), torch.empty_like(h0)
    _launch("unit_backward", activation, a, h.shape, a, dh, h, h0, da, db, dh0)
    return da.to(dtype), db.to(dtype), dh0.to(dtype)


def _launch(name: str, activation: int, a: Tensor, shape: torch.Size, *tensors: Tensor) -> None:
    steps, samples, units = shape
    # How far it is to the next step's, sample's and unit's a; 0 where they share one.
    strides = [Long(0 if length == 1 else stride) for length, stride in zip(a.shape, a.stride(), strict=True)]
    cells = samples * units
    kernels = unit_kernels(activation, a.shape[0] > 1)
    kernels.launch(name, (-(-cells // THREADS), 1), THREADS, *tensors, *strides, steps, units, cells)


def _plain(tensor: Tensor) -> Tensor:
    """As the kernels read them: float32, contiguous, without torch's lazy negation."""
    return tensor.resolve_neg().float().contiguous()
