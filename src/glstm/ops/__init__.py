"""`gated_lstm`: one function, one signature, several backends.

A table k says how open each unit is at each step; `README.md` beside this file has the equations.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from glstm.ops import cpu, gpu, reference, reference_backward
from glstm.ops.direct import Direct
from glstm.ops.segments import Segmented

BACKENDS = ("auto", "native", "cuda", "reference")
CANDIDATES = tuple(reference.CANDIDATES)


class Output(NamedTuple):
    h: Tensor | None  # after every step (T, B, H); None with sequence=False
    h_n: Tensor  # after the last step (B, H)
    c_n: Tensor
    c: Tensor | None  # after every step (T, B, H), with cells=True


def gated_lstm(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b: Tensor | None,
    k: Tensor,
    h0: Tensor,
    c0: Tensor,
    *,
    k_h: Tensor | None = None,
    candidate: str = "tanh",
    sequence: bool = True,
    cells: bool = False,
    backend: str = "auto",
    segment: int | None = None,
) -> Output:
    """Run an LSTM whose unit j is open to the degree k at each step.

    x (T, B, D); w_ih (4H, D), w_hh (4H, H), b (4H) or None in torch's gate order i f g o;
    k (T, H), or (T, B, H) per sample; h0 and c0 (B, H). A zero in k copies the old state bit for bit
    and has no gradient; k = 1 everywhere is `torch.nn.LSTM`. With `k_h`, k drives the cell alone and
    `k_h` the output. `sequence=False` leaves out all h, `cells=True` adds all c. With `segment`, training
    keeps the state only every so many steps and computes what lies between again.

    A population: weights, biases, k, h0 and c0 (and x, unless all read the same) may have a leading model axis M, and
    so has then what is returned. On CUDA all models run side by side.
    """
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(w_ih.dtype)  # the recurrence compounds rounding: it runs in the precision of its weights
    _check(x, w_ih, w_hh, b, k, k_h, h0, c0, candidate, backend)
    if segment is not None and not (isinstance(segment, int) and segment >= 1):
        raise ValueError(f"segment must be a number of steps, at least 1, or None for all at once, not {segment!r}")
    tensors = (x, w_ih, w_hh, b, k, k_h, h0, c0)
    wanted = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    # An exported model is for inference. (Inside torch.compile, torch 2.11 says that it is exporting, too.)
    exporting = torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()
    taped = wanted and not exporting
    watched = torch.compiler.is_compiling() or torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
    chosen = "watched" if watched else _backend(backend, x, k_h)
    if w_hh.dim() == 3 and (x.device.type != "cuda" if watched else chosen != "cuda"):
        return _one_by_one(tensors, candidate, sequence, cells, backend, segment)
    direct = chosen in ("native", "cuda")
    engine = gpu if chosen == "cuda" else cpu
    if direct and not wanted:
        h, h_n, c_n, c, _ = engine.forward(x, w_ih, w_hh, b, k, h0, c0, candidate, sequence, cells, taped=False)
        return Output(h, h_n, c_n, c)
    if taped and segment and segment < x.shape[-3]:
        if w_hh.dim() == 3:
            raise ValueError(
                "segment and a model axis do not go together: train the models one by one, or in one piece"
            )
        return Output(*Segmented.apply(_forward, _backward, segment, (candidate, sequence, cells, backend), *tensors))
    if direct and taped:
        return Output(*Direct.apply(engine, candidate, sequence, cells, x, w_ih, w_hh, b, k, h0, c0))
    h, h_n, c_n, c, _ = _forward(*tensors, candidate, sequence, cells, taped, backend)
    return Output(h if sequence else None, h_n, c_n, c if cells else None)


def _one_by_one(tensors, candidate: str, sequence: bool, cells: bool, backend: str, segment: int | None) -> Output:
    """A population where nothing runs models side by side."""
    x, w_ih, w_hh, b, k, k_h, h0, c0 = tensors
    outputs = [
        gated_lstm(
            x if x.dim() == 3 else x[m],
            w_ih[m],
            w_hh[m],
            None if b is None else b[m],
            k[m],
            h0[m],
            c0[m],
            k_h=None if k_h is None else k_h[m],
            candidate=candidate,
            sequence=sequence,
            cells=cells,
            backend=backend,
            segment=segment,
        )
        for m in range(len(w_hh))
    ]
    h, h_n, c_n, c = (None if parts[0] is None else torch.stack(parts) for parts in zip(*outputs))
    assert h_n is not None
    assert c_n is not None
    return Output(h, h_n, c_n, c)


def _backend(asked: str, x: Tensor, k_h: Tensor | None) -> str:
    """The backend to use: the quickest there is for these tensors, or the one asked for."""
    match asked:
        case "auto":
            return "cuda" if gpu.usable(x, k_h) else "native" if cpu.usable(x, k_h) else "reference"
        case "native" if not cpu.usable(x, k_h):
            raise ValueError(
                f"the native backend computes float32 on the CPU with one table k, not {x.dtype} on {x.device}"
                f"{' with two tables' if k_h is not None else ''}; {cpu.status()}"
            )
        case "cuda" if not gpu.usable(x, k_h):
            raise ValueError(
                f"the cuda backend computes float32, bfloat16 or float16 on an NVIDIA device, for at least one step "
                f"and sample, with one table k: not {x.dtype} on {x.device} of shape {tuple(x.shape)}"
                f"{' with two tables' if k_h is not None else ''}"
            )
        case _:
            return asked


def _check(x, w_ih, w_hh, b, k, k_h, h0, c0, candidate: str, backend: str) -> None:
    models = tuple(w_hh.shape[:1]) if w_hh.dim() == 3 else ()
    if x.dim() != 3 and not (models and x.dim() == 4 and x.shape[:1] == models):
        raise ValueError(
            f"x must be (T, B, D){', or one for each model' if models else ''}, but has shape {tuple(x.shape)}"
        )
    steps, batch, inputs = x.shape[-3:]
    hidden = w_hh.shape[-1]
    expected = {
        "w_ih": (w_ih, (*models, 4 * hidden, inputs)),
        "w_hh": (w_hh, (*models, 4 * hidden, hidden)),
        "b": (b, (*models, 4 * hidden)),
        "h0": (h0, (*models, batch, hidden)),
        "c0": (c0, (*models, batch, hidden)),
    }
    for name, (tensor, shape) in expected.items():
        if tensor is not None and tensor.shape != shape:
            raise ValueError(f"{name} must have shape {shape} here, but has {tuple(tensor.shape)}")
    for name, table in (("k", k), ("k_h", k_h)):
        shared, own = (*models, steps, hidden), (*models, steps, batch, hidden)
        if table is not None and table.shape not in (shared, own):
            raise ValueError(
                f"{name} must be (T, H) = {shared} or (T, B, H) = {own}, but has shape {tuple(table.shape)}"
            )
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        raise TypeError(f"gated_lstm computes in float16, bfloat16, float32 or float64, not in {x.dtype}")
    for name, tensor in (("w_ih", w_ih), ("w_hh", w_hh), ("b", b), ("k", k), ("k_h", k_h), ("h0", h0), ("c0", c0)):
        if tensor is not None and (tensor.dtype != x.dtype or tensor.device != x.device):
            raise TypeError(
                f"{name} is {tensor.dtype} on {tensor.device} but x is {x.dtype} on {x.device}: "
                "all tensors must share one dtype and device"
            )
    if candidate not in CANDIDATES:
        raise ValueError(f"candidate must be one of {', '.join(CANDIDATES)}, not {candidate!r}")
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, not {backend!r}")


@torch.library.custom_op("glstm::gated_lstm", mutates_args=())
def _forward(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b: Tensor | None,
    k_c: Tensor,
    k_h: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    candidate: str,
    sequence: bool,
    cells: bool,
    taped: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """All h, final h, final c, all c, tape; what was not asked for has length 0."""
    nothing = x.new_empty(0)
    match _backend(backend, x, k_h):
        case "native":
            h, h_n, c_n, c, tape = cpu.forward(x, w_ih, w_hh, b, k_c, h0, c0, candidate, sequence, cells, taped)
        case "cuda":
            h, h_n, c_n, c, tape = gpu.forward(x, w_ih, w_hh, b, k_c, h0, c0, candidate, sequence, cells, taped)
        case _:
            with torch.autocast(x.device.type, enabled=False):
                h, c, gates = reference.forward(x, w_ih, w_hh, b, k_c, k_c if k_h is None else k_h, h0, c0, candidate)
            tape = reference_backward.make_tape(h, c, gates, h0, c0) if taped else None
            h_n, c_n = (h[-1].clone(), c[-1].clone()) if len(x) else (h0.clone(), c0.clone())
    return (
        h if h is not None and sequence else nothing,
        h_n,
        c_n,
        c if c is not None and cells else nothing.clone(),
        nothing.clone() if tape is None else tape,
    )


@_forward.register_fake
def _(x, w_ih, w_hh, b, k_c, k_h, h0, c0, candidate, sequence, cells, taped, backend):
    everything = (*w_hh.shape[:-2], *x.shape[-3:-1], w_hh.shape[-1])
    return (
        x.new_empty(everything if sequence else 0),
        torch.empty_like(h0),
        torch.empty_like(h0),
        x.new_empty(everything if cells else 0),
        _empty_tape(_backend(backend, x, k_h), x, w_hh) if taped else x.new_empty(0),
    )


def _empty_tape(backend: str, x: Tensor, w_hh: Tensor) -> Tensor:
    steps, batch, hidden = *x.shape[-3:-1], w_hh.shape[-1]
    match backend:
        case "native":
            return x.new_empty(cpu.tape_size(steps, batch, hidden))
        case "cuda":
            return x.new_empty(gpu.tape_size(x, w_hh), dtype=torch.float32)
        case _:
            return x.new_empty(steps, batch, 6 * hidden)


@torch.library.custom_op("glstm::gated_lstm_backward", mutates_args=())
def _backward(
    dh: Tensor | None,
    dh_n: Tensor | None,
    dc_n: Tensor | None,
    dc: Tensor | None,
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    k_c: Tensor,
    k_h: Tensor | None,
    h0: Tensor,
    tape: Tensor,
    candidate: str,
    cells: bool,
    need_x: bool,
    need_h0: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, w_ih, w_hh, b, k_c, k_h, h0, c0; what is not needed, or is not there, has length 0."""
    dh_n = torch.zeros_like(h0) if dh_n is None else dh_n.clone()
    dc_n = torch.zeros_like(h0) if dc_n is None else dc_n.clone()
    nothing = x.new_empty(0)
    match _backend(backend, x, k_h):
        case "native" | "cuda" as chosen:
            found = (gpu if chosen == "cuda" else cpu).backward(
                dh, dh_n, dc_n, dc, x, w_ih, w_hh, k_c, h0, tape, candidate, need_x, need_h0
            )
            dx, dw_ih, dw_hh, db, dk_c, dh0, dc0 = found
            return (
                nothing if dx is None else dx, dw_ih, dw_hh, db, dk_c, nothing.clone(),
                nothing.clone() if dh0 is None else dh0, dc0,
            )  # fmt: skip
        case _:
            with torch.autocast(x.device.type, enabled=False):
                dx, dw_ih, dw_hh, db, dk_c, dk_h, dh0, dc0 = reference_backward.backward(
                    dh, dh_n, dc_n, dc, x, w_ih, w_hh, k_c, k_c if k_h is None else k_h, tape, candidate
                )
    if k_h is None:
        dk_c, dk_h = dk_c + dk_h, nothing
    return dx if need_x else nothing.clone(), dw_ih, dw_hh, db, dk_c, dk_h, dh0 if need_h0 else nothing.clone(), dc0


@_backward.register_fake
def _(dh, dh_n, dc_n, dc, x, w_ih, w_hh, k_c, k_h, h0, tape, candidate, cells, need_x, need_h0, backend):
    dk_h = x.new_empty(0) if k_h is None else torch.empty_like(k_h)
    return (
        torch.empty_like(x) if need_x else x.new_empty(0),
        torch.empty_like(w_ih),
        torch.empty_like(w_hh),
        w_hh.new_empty(w_hh.shape[:-1]),
        torch.empty_like(k_c),
        dk_h,
        torch.empty_like(h0) if need_h0 else x.new_empty(0),
        torch.empty_like(h0),
    )


def _remember(ctx, inputs, output) -> None:
    *tensors, ctx.candidate, ctx.sequence, ctx.cells, _, ctx.backend = inputs
    ctx.save_for_backward(*tensors, output[-1])
    ctx.set_materialize_grads(False)  # an output nobody used costs nothing backward


def _differentiate(ctx, dh, dh_n, dc_n, dc, _):
    *tensors, tape = ctx.saved_tensors
    x, w_ih, w_hh, b, k_c, k_h, h0, _ = tensors
    need_x, need_h0 = ctx.needs_input_grad[0], ctx.needs_input_grad[6]
    dh, dc = dh if ctx.sequence else None, dc if ctx.cells else None
    if torch.is_grad_enabled():  # create_graph=True: somebody will differentiate these gradients again
        gradients = reference_backward.backward_by_autograd((dh, dh_n, dc_n, dc), tensors, ctx.candidate)
    else:
        gradients = _backward(
            dh, dh_n, dc_n, dc, x, w_ih, w_hh, k_c, k_h, h0, tape,
            ctx.candidate, ctx.cells, need_x, need_h0, ctx.backend,
        )  # fmt: skip
    dx, dw_ih, dw_hh, db, dk_c, dk_h, dh0, dc0 = gradients
    db, dk_h = None if b is None else db, None if k_h is None else dk_h
    return dx if need_x else None, dw_ih, dw_hh, db, dk_c, dk_h, dh0 if need_h0 else None, dc0, *[None] * 5


_forward.register_autograd(_differentiate, setup_context=_remember)
