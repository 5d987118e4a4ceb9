"""The CUDA engine. Tensors may have a leading model axis M: as many networks as fit on the device run in parallel, in
little more time than one."""

from collections.abc import Iterable
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor

from glstm.ops.contract import Inputs, Made
from glstm.ops.gpu import choice, scan, sparse, steps, wide
from glstm.ops.gpu.products import finite, multiply, rows_of
from glstm.ops.gpu.runtime import compiler
from glstm.ops.reference import GRU

SIDE_BY_SIDE = True
HOW = 0
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
PIECE = 2**26  # numbers that the step-by-step path stores at once, if there is no tape


def usable(x: Tensor, k_h: Tensor | None) -> bool:
    on_device = x.device.type == "cuda" and x.dtype in DTYPES
    if not (on_device and x.numel() > 0 and _device_will_do(x.device)):
        return False
    return k_h is None or in_one_kernel(k_h.shape[-1], exact_for(x.dtype), x.device)


def has_rule(rule: str, x: Tensor, hidden: int) -> bool:
    return rule != GRU or in_one_kernel(hidden, exact_for(x.dtype), x.device)


def limits() -> str:
    return (
        "computes float32, bfloat16 or float16 on an NVIDIA device, for at least one step and sample, and two tables "
        f"or a GRU for up to {scan.LARGEST} units ({scan.ROOM[1]} on devices without clusters)"
    )


@cache
def _device_will_do(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0) and compiler() is not None


def exact_for(dtype: torch.dtype) -> bool:
    """float32 everywhere, or 16-bit operands with float32 sums and states: decided by torch's own setting."""
    return dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"


properties = cache(torch.cuda.get_device_properties)


def shape_for(x: Tensor, w_hh: Tensor, exact: bool) -> scan.Shape | None:
    """How the sequence is computed on one multiprocessor, or a cluster, a tile; None: it does not fit (`wide.py`)."""
    models = w_hh.shape[0] if w_hh.dim() == 3 else 1
    length, batch = x.shape[-3:-1]
    return shape_of(models, length, batch, w_hh.shape[-1], exact, x.device)


def shape_of(models: int, length: int, batch: int, hidden: int, exact: bool, where: torch.device) -> scan.Shape | None:
    device, tiles = properties(where), models * scan.tiles_of(batch)
    processors, room = device.multi_processor_count, device.shared_memory_per_block_optin
    ranks = scan.ranks_for(hidden, tiles, device.major >= 9, processors)
    if not ranks:
        return None
    samples = scan.samples_for(hidden, batch, models, ranks, processors)
    shape = scan.Shape(models, length, batch, hidden, exact, ranks, samples, room)
    return shape if shape.shared_bytes <= room else None


def in_one_kernel(hidden: int, exact: bool, where: torch.device) -> bool:
    """Whether `scan.py` computes a layer of this size with any batch: the other ways know one table, and no GRU."""
    device = properties(where)
    # As many tiles as multiprocessors: then the fewest blocks share the units, and each needs the most memory.
    tiles = device.multi_processor_count
    ranks = scan.ranks_for(hidden, tiles, device.major >= 9, tiles)
    room = device.shared_memory_per_block_optin
    return ranks is not None and scan.Shape(1, 1, 1, hidden, exact, ranks, 2, room).shared_bytes <= room


def empty_tape(x: Tensor, w_hh: Tensor) -> Tensor:
    return x.new_empty(tape_size(x, w_hh), dtype=torch.float32)


def tape_size(x: Tensor, w_hh: Tensor):
    if shape := shape_for(x, w_hh, exact_for(x.dtype)):
        return sum(shape.tape_parts)
    length, batch = x.shape[-3:-1]
    return sum(steps.tape_parts(w_hh.shape[0] if w_hh.dim() == 3 else 1, length, batch, w_hh.shape[-1]))


def _shape_of_tape(tape: Tensor, x: Tensor, w_hh: Tensor) -> scan.Shape | None:
    """How the tape was written: torch's setting may have changed since. No two kinds of tape have the same size."""
    shapes = (shape_for(x, w_hh, exact) for exact in (False, True))
    return next((shape for shape in shapes if shape and sum(shape.tape_parts) == tape.numel()), None)


def as_written(function):
    """Without autocast, which would round products whose results the kernels read as float32."""

    @wraps(function)
    def run(*arguments, **options):
        if not torch.is_autocast_enabled("cuda"):
            return function(*arguments, **options)
        with torch.autocast("cuda", enabled=False):
            return function(*arguments, **options)

    return run


@as_written
def forward(inputs: Inputs, rule: str, sequence: bool, cells: bool, taped: bool) -> Made:
    one = inputs.w_hh.dim() == 2
    x, w_ih, w_hh, b, k, k_h, h0, c0 = _with_axis(inputs) if one else inputs
    dtype, shape = x.dtype, shape_for(x, w_hh, exact_for(x.dtype))
    k = k if k_h is None else scan.two_tables(k, k_h, x.shape[-2])
    x, w_ih, w_hh, b, k, h0, c0 = _as_floats(x, w_ih, w_hh, b, k, h0, c0)
    b = w_hh.new_zeros(w_hh.shape[:2]) if b is None else b
    processors = properties(x.device).multi_processor_count
    chosen = made = None
    if k_h is None and rule != GRU:
        chosen = choice.choose(shape, x, k, rule, sequence, cells, taped, processors)
    while chosen and not made:
        made = sparse.forward(chosen.kind, chosen.room, chosen.schedule, x, w_ih, w_hh, b, k, h0, c0, taped)
        guess, chosen = chosen, choice.confirmed(chosen)
        made = made if chosen is guess else None
    if made:
        h_n, c_n, tape = made
        outputs = None, h_n, c_n, None
    elif shape:
        *outputs, tape = scan.forward(shape, x, w_ih, w_hh, b, k, h0, c0, rule, sequence, cells, taped)
    else:
        if rule == GRU:
            raise ValueError(f"no kernel computes a GRU of {w_hh.shape[-1]} units: gated_gru chooses another backend")
        piece = x.shape[-3] if taped else max(1, PIECE // (6 * h0.numel()))
        *outputs, tape = _in_steps(x, w_ih, w_hh, b, k, h0, c0, rule, sequence, cells, exact_for(dtype), piece)
    outputs = _without_axis(outputs) if one else outputs
    h, h_n, c_n, c = _in_dtype(outputs, dtype)
    schedule = chosen.schedule if chosen else None
    return Made(h, h_n, c_n, c, tape if taped else None, schedule=schedule)  # pyright: ignore[reportArgumentType]


def _in_steps(x, w_ih, w_hh, b, k, h0, c0, rule: str, sequence: bool, cells: bool, exact: bool, piece: int) -> tuple:
    """With the tape of `steps.py`, in pieces of so many steps: without a tape, memory is needed for one piece only."""
    all_h, all_c, tape = [], [], None
    for start in range(0, x.shape[-3], piece):
        part = slice(start, start + piece)
        inputs = (x[..., part, :, :], w_ih, b, w_hh, k[:, part].contiguous(), h0, c0)
        tape, h, c = wide.forward(*inputs, rule, exact, properties(x.device))
        h0, c0 = h[-1].clone(), c[-1].clone()
        all_h += [h[1:].transpose(0, 1)] if sequence else []
        all_c += [c[1:].transpose(0, 1)] if cells else []
    h, c = (torch.cat(parts, 1) if parts else None for parts in (all_h, all_c))
    return h, h0, c0, c, tape


@as_written
def backward(gradients, inputs: Inputs, tape: Tensor, how, schedule, rule: str, need_x: bool, need_h0: bool):
    one = inputs.w_hh.dim() == 2
    x, w_ih, w_hh, b, k, k_h, h0, _ = _with_axis(inputs) if one else inputs
    dtype, shape = x.dtype, _shape_of_tape(tape, x, w_hh)
    dh, dh_n, dc_n, dc = map(_lifted, gradients) if one else gradients
    dh_n, dc_n = _as_floats(dh_n, dc_n)
    dh, dc = (None if part is None else part.resolve_neg().float() for part in (dh, dc))
    x, w_ih, w_hh, k, k_h, h0 = _as_floats(x, w_ih, w_hh, k, k_h, h0)
    length, batch = x.shape[-3:-1]
    if not shape and tape.numel() != sum(steps.tape_parts(len(w_hh), length, batch, w_hh.shape[-1])):
        processors = properties(x.device).multi_processor_count
        kind, room = sparse.kind_of_tape(tape, x, w_hh, rule, processors)
        schedule = sparse.schedule_of(k) if schedule is None else schedule
        dx, *found = sparse.backward(
            kind, room, schedule, dh_n, dc_n, x, w_ih, w_hh, k, h0, tape, need_x, need_h0
        )  # fmt: skip
    elif shape:
        tables = k if k_h is None else scan.two_tables(k, k_h, batch)
        dx, *found = scan.backward(shape, dh, dh_n, dc_n, dc, x, w_ih, w_hh, tables, tape, rule, need_x)
    else:
        dh, dc = _as_floats(dh, dc)
        dh_n, dc_n = (h0.new_zeros(h0.shape, dtype=x.dtype) if part is None else part for part in (dh_n, dc_n))
        da, rows, dk, dh0, dc0 = wide.backward(
            dh, dh_n, dc_n, dc, w_hh, k, tape, x.shape[-3], rule, exact_for(dtype), properties(x.device)
        )
        dx = multiply(da, w_ih).view(-1, *x.shape[-3:]) if need_x else None
        dx = dx.sum(0) if dx is not None and x.dim() == 3 else dx
        across = da.transpose(1, 2)
        dw_ih = multiply(across, rows_of(finite(x), len(w_hh)))
        found = (dw_ih, multiply(across, rows), da.sum(1), dk, dh0, dc0)
    dw_ih, dw_hh, db, dk, dh0, dc0 = found
    dk, dk_h = (dk, None) if k_h is None else scan.gradients_of_two(dk, k, k_h)
    found = (dw_ih, dw_hh, None if b is None else db, dk, dk_h, dh0 if need_h0 else None, dc0)
    wanted = (dx, *(_without_axis(found) if one else found))
    return _in_dtype(wanted, dtype)


def _with_axis(inputs: Inputs) -> Inputs:
    """With a model axis of length 1; x needs none, because all models may read the same."""
    x, *others = inputs
    return Inputs(x, *map(_lifted, others))


def _lifted(tensor: Any) -> Any:
    return None if tensor is None else tensor.unsqueeze(0)


def _without_axis(tensors: Iterable[Tensor | None]) -> list:
    return [None if tensor is None else tensor.squeeze(0) for tensor in tensors]


def _as_floats(*tensors: Tensor | None) -> list:
    """As the kernels read them: float32, contiguous, without torch's lazy negation."""
    return [tensor if tensor is None or _as_read(tensor) else _as_float(tensor) for tensor in tensors]


def _as_read(tensor: Tensor) -> bool:
    """Most are: to ask costs less than three operations that do nothing."""
    return tensor.dtype is torch.float32 and tensor.is_contiguous() and not tensor.is_neg()


def _as_float(tensor: Tensor) -> Tensor:
    return tensor.resolve_neg().float().contiguous()


def _in_dtype(parts: Iterable[Any], dtype: torch.dtype) -> tuple:
    return tuple(part if part is None or part.dtype is dtype else part.to(dtype) for part in parts)
