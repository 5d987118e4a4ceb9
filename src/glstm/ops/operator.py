"""`gated_lstm`: one function, one signature, several backends.

A table k says how open each unit is at each step; `README.md` beside this file has the equations.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from glstm.errors import ShapeError
from glstm.ops import flops as flops
from glstm.ops import model_axis, onnx_export, portable, registered
from glstm.ops.backends import check_backend, choose
from glstm.ops.contract import Inputs
from glstm.ops.onnx_export import tracing
from glstm.ops.recorded import run
from glstm.ops.reference import CANDIDATES
from glstm.ops.segments import in_segments

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


PLAIN = {Tensor, Parameter, type(None)}


class Output(NamedTuple):
    """What `gated_lstm` returns.

    Attributes:
        h: After every step (T, B, H); None with sequence=False.
        h_n: After the last step (B, H).
        c_n: After the last step (B, H).
        c: After every step (T, B, H); None without cells=True.
    """

    h: Tensor | None
    h_n: Tensor
    c_n: Tensor
    c: Tensor | None


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
    """Run an LSTM whose unit j is open to the degree k at each step. k = 1 everywhere is `torch.nn.LSTM`.

    A zero in k copies the old state bit for bit and has no gradient. No k is refused: outside [0, 1] the same equations
    go beyond the old or the new state, and a NaN makes its unit NaN, and what reads it, too.

    Several models: weights, biases, k, h0 and c0 (and x, unless all read the same) may have a leading model axis M; the
    results then have it, too. On CUDA all models run in parallel. torch.vmap over the weights does the same.

    Args:
        x: (T, B, D).
        w_ih: (4H, D), in torch's gate order i f g o.
        w_hh: (4H, H).
        b: (4H), or None.
        k: (T, H), or (T, B, H) for each sample its own.
        h0: (B, H).
        c0: (B, H).
        k_h: A table for the output h, shaped like k; k is then for the cell alone. None: k for both.
        candidate: "tanh" or "sigmoid".
        sequence: False: h after each step is left out.
        cells: True: c after each step is returned, too.
        backend: "auto" takes the fastest that can run these tensors; or one of `BACKENDS`.
        segment: In training, store the state only every so many steps and compute what lies between again.

    Examples:
        ```python
        import torch

        from glstm.ops import gated_lstm

        steps, samples, inputs, units = 20, 4, 3, 8
        x, k = torch.randn(steps, samples, inputs), torch.rand(steps, units)
        w_ih, w_hh, b = torch.randn(4 * units, inputs), torch.randn(4 * units, units), torch.zeros(4 * units)
        h0 = c0 = torch.zeros(samples, units)
        h, h_n, c_n, _ = gated_lstm(x, w_ih, w_hh, b, k, h0, c0)
        ```
    """
    check_candidate(candidate)
    check_backend(backend)
    check_segment(segment)
    return compute(Inputs(x, w_ih, w_hh, b, k, k_h, h0, c0), candidate, sequence, cells, backend, segment)


def compute(inputs: Inputs, rule: str, sequence: bool, cells: bool, backend: str, segment: int | None = None) -> Output:
    """The recurrence by any of `reference.RULES`, where names and numbers are known to be right."""
    if autocasting(inputs.x.device):
        # Rounding errors grow in the recurrence, so it runs in the precision of its weights, also under autocast.
        dtype = inputs.w_hh.dtype
        inputs = Inputs(*(None if part is None else part.to(dtype) for part in inputs))  # pyright: ignore[reportArgumentType]
    if not tracing():  # a tracer would record comparisons of shapes as operations on tensors
        _check(inputs)
    segment = segment if segment and segment < inputs.x.shape[-3] else None
    if watched(inputs):
        return _registered(inputs, rule, sequence, cells, backend, segment or 0)
    chosen = choose(backend, inputs.x, inputs.k_h, rule, inputs.w_hh.shape[-1])
    h, h_n, c_n, c, _, _ = run(in_segments(chosen, segment), inputs, rule, sequence, cells)
    return Output(h, h_n, c_n, c)


def autocasting(device: torch.device) -> bool:
    # There is no autocast for meta tensors: torch would raise an error if asked about them.
    return torch._C._is_any_autocast_enabled() and device.type != "meta" and torch.is_autocast_enabled(device.type)


def watched(tensors) -> bool:
    """Whether operations on these tensors are recorded, or they have no values: then only registered operators work."""
    return (
        torch.compiler.is_compiling()
        or tracing()
        or torch._C._len_torch_dispatch_stack() > 0
        or not PLAIN.issuperset(map(type, tensors))
        or tensors[0].is_meta
    )


def _registered(inputs: Inputs, rule: str, sequence: bool, cells: bool, backend: str, segment: int) -> Output:
    to_onnx = onnx_export.exporting()
    if inputs.w_hh.dim() == 3 and (to_onnx or inputs.x.device.type != "cuda"):
        each = [_registered(one, rule, sequence, cells, backend, segment) for one in model_axis.split(inputs)]
        return Output(*(model_axis.stack(parts) for parts in zip(*each)))  # pyright: ignore[reportArgumentType]
    if to_onnx and not tracing():
        h, h_n, c_n, c, *_ = portable.scan(inputs, rule, sequence, cells)
        return Output(h, h_n, c_n, c)
    if to_onnx:
        onnx_export.register()
    # An exported model is for inference. (Inside torch.compile, torch 2.11 also says that it is exporting.) A traced
    # model usually is, too; and torch traces twice, with gradients and without, and compares.
    exporting = torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()
    wanted = torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in inputs)
    taped = wanted and not exporting and not tracing()
    h, h_n, c_n, c, _, _ = registered.forward(
        *inputs, rule, sequence, cells, taped, backend, segment
    )  # fmt: skip
    return Output(h if sequence else None, h_n, c_n, c if cells else None)


def _check(inputs: Inputs) -> None:
    x, w_ih, w_hh, b, k, k_h, h0, c0 = inputs
    models = tuple(w_hh.shape[:1]) if w_hh.dim() == 3 else ()
    if x.dim() != 3 and not (models and x.dim() == 4 and x.shape[:1] == models):
        raise ShapeError(
            f"x must be (T, B, D){', or one for each model' if models else ''}, but has shape {tuple(x.shape)}"
        )
    steps, batch, width = x.shape[-3:]
    hidden = w_hh.shape[-1]
    rows, state = (*models, 4 * hidden), (*models, batch, hidden)
    for name, tensor, shape in (
        ("w_ih", w_ih, (*rows, width)),
        ("w_hh", w_hh, (*rows, hidden)),
        ("b", b, rows),
        ("h0", h0, state),
        ("c0", c0, state),
    ):
        if tensor is not None and tensor.shape != shape:
            raise ShapeError(f"{name} must have shape {shape} here, but has {tuple(tensor.shape)}")
    shared, own = (*models, steps, hidden), (*models, steps, batch, hidden)
    for name, table in (("k", k), ("k_h", k_h)):
        # Of as many axes only: an export would take B for a fixed number if it was compared with an equal H.
        if table is not None and not any(table.dim() == len(one) and table.shape == one for one in (shared, own)):
            raise ShapeError(
                f"{name} must be (T, H) = {shared} or (T, B, H) = {own}, but has shape {tuple(table.shape)}"
            )
    dtype, device = x.dtype, x.device
    if dtype not in DTYPES:
        raise TypeError(f"gated_lstm computes in float16, bfloat16, float32 or float64, not in {dtype}")
    for position, tensor in enumerate(inputs):
        if tensor is not None and (tensor.dtype is not dtype or tensor.device != device):
            raise TypeError(
                f"{Inputs._fields[position]} is {tensor.dtype} on {tensor.device} but x is {dtype} on {device}: "
                "all tensors must share one dtype and device"
            )


def check_candidate(name: str) -> None:
    if name not in CANDIDATES:
        raise ValueError(f"candidate must be one of {', '.join(CANDIDATES)}, not {name!r}")


def check_segment(segment: int | None) -> None:
    if segment is not None and not (isinstance(segment, int) and segment >= 1):
        raise ValueError(f"segment must be a number of steps, at least 1, or None for all at once, not {segment!r}")
