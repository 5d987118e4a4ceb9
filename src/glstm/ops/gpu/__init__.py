"""The CUDA engine. Tensors may have a leading model axis M: as many networks as fit run side by side, for little more
than the price of one."""

from functools import cache

import torch
from torch import Tensor

from glstm.ops.gpu import scan, steps
from glstm.ops.gpu.products import drive_of, multiply, rows_of
from glstm.ops.gpu.runtime import compiler

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def usable(x: Tensor, k_h: Tensor | None) -> bool:
    on_device = x.device.type == "cuda" and x.dtype in DTYPES and k_h is None
    return on_device and x.numel() > 0 and _device_will_do(x.device)


@cache
def _device_will_do(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0) and compiler() is not None


def exact_for(dtype: torch.dtype) -> bool:
    """float32 throughout, or 16-bit operands with float32 sums and states: as torch's own setting says."""
    return dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"


@cache
def shared_memory(device: torch.device) -> int:
    """Bytes that a block can have."""
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def in_one_kernel(device: torch.device, hidden: int, exact: bool) -> bool:
    return hidden <= scan.LARGEST and scan.shared_bytes(hidden, exact) <= shared_memory(device)


def tape_size(x: Tensor, w_hh: Tensor):
    models = w_hh.shape[0] if w_hh.dim() == 3 else 1
    length, batch, hidden, exact = *x.shape[-3:-1], w_hh.shape[-1], exact_for(x.dtype)
    if in_one_kernel(x.device, hidden, exact):
        return sum(scan.tape_parts(models, length, batch, hidden, exact))
    return sum(steps.tape_parts(models, length, batch, hidden))


def forward(x, w_ih, w_hh, b, k, h0, c0, candidate: str, sequence: bool, cells: bool, taped: bool) -> tuple:
    """All h or None, final h, final c, all c or None, tape or None."""
    if w_hh.dim() == 2:
        w_ih, w_hh, k, h0, c0 = (tensor.unsqueeze(0) for tensor in (w_ih, w_hh, k, h0, c0))
        b = None if b is None else b.unsqueeze(0)
        *outputs, tape = forward(x, w_ih, w_hh, b, k, h0, c0, candidate, sequence, cells, taped)
        return *(None if part is None else part.squeeze(0) for part in outputs), tape
    dtype, exact = x.dtype, exact_for(x.dtype)
    x, w_ih, w_hh, k, h0, c0 = (tensor.float().contiguous() for tensor in (x, w_ih, w_hh, k, h0, c0))
    b = w_hh.new_zeros(w_hh.shape[:2]) if b is None else b.float().contiguous()
    if in_one_kernel(x.device, w_hh.shape[2], exact):
        *outputs, tape = scan.forward(x, w_ih, w_hh, b, k, h0, c0, candidate, sequence, cells, taped, exact)
    else:
        tape, h, c = steps.forward(drive_of(x, w_ih, b), w_hh, k, h0, c0, candidate)
        everything = [
            part[1:].transpose(0, 1).contiguous() if wanted else None for part, wanted in ((h, sequence), (c, cells))
        ]
        outputs = [everything[0], h[-1].clone(), c[-1].clone(), everything[1]]
    return *(None if part is None else part.to(dtype) for part in outputs), tape if taped else None


def backward(dh, dh_n, dc_n, dc, x, w_ih, w_hh, k, h0, tape, candidate: str, need_x: bool, need_h0: bool) -> tuple:
    """Gradients of x, w_ih, w_hh, b, k, h0, c0; those of x and h0 are None where nobody needs them."""
    if w_hh.dim() == 2:
        dh, dc = (None if tensor is None else tensor.unsqueeze(0) for tensor in (dh, dc))
        dh_n, dc_n, w_ih, w_hh, k = (tensor.unsqueeze(0) for tensor in (dh_n, dc_n, w_ih, w_hh, k))
        dx, *others = backward(dh, dh_n, dc_n, dc, x, w_ih, w_hh, k, h0, tape, candidate, need_x, need_h0)
        return dx, *(None if part is None else part.squeeze(0) for part in others)
    dtype = x.dtype
    x, w_ih, w_hh, k, dh_n, dc_n = (tensor.float().contiguous() for tensor in (x, w_ih, w_hh, k, dh_n, dc_n))
    dh, dc = (None if tensor is None else tensor.float().contiguous() for tensor in (dh, dc))
    step_by_step = tape.numel() == sum(steps.tape_parts(len(w_hh), x.shape[-3], x.shape[-2], w_hh.shape[2]))
    if not step_by_step:
        found = scan.backward(dh, dh_n, dc_n, dc, x, w_ih, w_hh, k, tape, candidate, need_x)
    else:
        da, rows, dk, dh0, dc0 = steps.backward(dh, dh_n, dc_n, dc, w_hh, k, tape, x.shape[-3], candidate)
        dx = multiply(da, w_ih).view(-1, *x.shape[-3:]) if need_x else None
        dx = dx.sum(0) if dx is not None and x.dim() == 3 else dx
        across = da.transpose(1, 2)
        found = (dx, multiply(across, rows_of(x, len(w_hh))), multiply(across, rows), da.sum(1), dk, dh0, dc0)
    dx, dw_ih, dw_hh, db, dk, dh0, dc0 = found
    found = (dx, dw_ih, dw_hh, db, dk, dh0 if need_h0 else None, dc0)
    return tuple(None if part is None else part.to(dtype).contiguous() for part in found)
