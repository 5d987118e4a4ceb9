"""A layer with its gate as one node of autograd: table of openness, sum of biases, scan, and all their gradients.

On a GPU, what the host does at a call takes longer than the kernels of a short sequence. So there are few launches, all
prepared once per shape, nothing between them is a tensor of its own unless torch has to multiply it, and nothing waits
for the device. Whatever is unusual is left to the table and `gated_lstm`.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as transforming
from torch._C._functorch import is_legacy_batchedtensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from glstm.ops import gpu
from glstm.ops.gpu import scan
from glstm.ops.gpu.products import drive_of, multiply
from glstm.ops.gpu.runtime import HERE, Kernels, Prepared
from glstm.ops.operator import autocasting

# Kinds of gates, kinds of times, and the most values that a unit of a gate has: as in gate.cuh.
OPEN, GAUSSIAN, PHASED, PERIODIC = range(4)
COUNTED, FLOATS, DOUBLES = range(3)
MOST_VALUES = 3
WIDTH = {torch.float32: FLOATS, torch.float64: DOUBLES}
THREADS, LANES, ROWS = 256, 32, 8  # of the gate's kernels
CHUNKS = 64  # of a table's rows, whose gradients are summed at the same time
MOST_PLANS = 256

PLAIN = {Tensor, Parameter}
Made = tuple[Tensor | None, Tensor, Tensor]  # all h (T, B, H), final h and final c (1, B, H)
Maybe = Tensor | None


class Gate(NamedTuple):
    """What is known of a gate besides its units' values."""

    kind: int
    leak: float
    threshold: float
    origin: float
    unit: float


class Call(NamedTuple):
    """What is asked for."""

    gate: Gate
    times: Tensor | range  # (T,) or (T, B), float32 or float64; a range where they only count steps
    backwards: bool  # x comes reversed, and meets its times from the last to the first
    candidate: str
    sequence: bool


def source() -> str:
    return "".join((HERE / name).read_text() for name in ("gate.cuh", "gate.cu"))


def gate_constants(kind: int, times: int, framed: bool) -> dict[str, int]:
    return {"GATE": kind, "TIMES": times, "FRAMED": framed}


@cache
def gate_kernels(kind: int, times: int, framed: bool) -> Kernels:
    """One for all sizes."""
    return Kernels(source(), gate_constants(kind, times, framed))


def run(
    call: Call,
    again: Callable[..., Made],
    x: Tensor,
    weights: Sequence[Any],  # w_ih, w_hh and, or None, b_ih, b_hh
    h0: Maybe,
    c0: Maybe,
    values: Sequence[Tensor],
) -> Made | None:
    """None where this is not the way. `again(x, *weights, h0, c0, *values)` computes the same by a table: for
    derivatives of derivatives."""
    if autocasting(x.device):  # as `gated_lstm` does: in the precision of the weights
        x, h0, c0 = (None if part is None else part.to(weights[1].dtype) for part in (x, h0, c0))  # pyright: ignore
    tensors: list[Any] = [*weights, h0, c0, *values]
    if not _usual(x, call.times, tensors):
        return None
    wanted = torch.is_grad_enabled() and (
        x.requires_grad or any(part is not None and part.requires_grad for part in tensors)
    )
    plan = plan_for(call, x, weights, h0, c0, values, wanted)
    if plan is None:
        return None
    times = call.times if isinstance(call.times, Tensor) else None
    if wanted:
        return Fused.apply(plan, again, times, x, *tensors)  # pyright: ignore[reportReturnType]
    return plan.forward(times, x, *tensors)[:3]


def _usual(x: Tensor, times: Tensor | range, tensors: Sequence[Maybe]) -> bool:
    """Plain float32 tensors of one device that the engine can use; nobody looks at what lies between."""
    if transforming() or forward_ad._current_level >= 0:
        return False
    if x.dtype is not torch.float32 or not gpu.usable(x, None):
        return False
    if isinstance(times, Tensor) and (times.requires_grad or type(times) is not Tensor or times.dtype not in WIDTH):
        return False
    device = x.device
    for part in tensors:
        if part is not None and (part.dtype is not torch.float32 or type(part) not in PLAIN or part.device != device):
            return False
    return type(x) in PLAIN


class Plan:
    """Everything about calls of one kind that does not depend on where tensors lie."""

    def __init__(self, call: Call, x: Tensor, shape: scan.Shape, values: int, taped: bool):
        gate, times = call.gate, call.times
        counted = isinstance(times, range)
        self.shape, self.call, self.device, self.values = shape, call._replace(times=range(0)), x.device, values
        self.inputs, self.inline = x.shape[-1], x.shape[-1] <= scan.INLINE
        self.per_sample = not counted and times.dim() == 2
        samples = shape.batch if self.per_sample else 1
        self.rows = shape.steps * samples  # of the table
        parts = shape.tape_parts if taped else [0] * 4
        ends = [sum(parts[:n]) for n in range(5)]
        self.row_words = slice(ends[3], ends[4])
        self.tape_at = [4 * end for end in ends[:4]] if taped else []
        # After the tape lie the table and the sum of biases.
        self.k_at, b_at = 4 * ends[4], ends[4] + -(-self.rows * shape.hidden // 4) * 4
        self.b_at, self.words = 4 * b_at, b_at + 4 * shape.hidden
        self.b_words = slice(b_at, self.words)
        self.everything = (shape.steps, shape.batch, shape.hidden)
        self.state = (1, shape.batch, shape.hidden)

        framed = (gate.origin, gate.unit) != (0.0, 1.0)
        self.gate = gate_kernels(gate.kind, COUNTED if counted else WIDTH[times.dtype], framed)
        first = times.start if counted else 0
        self.moments = (shape.hidden, first, shape.steps, samples, int(call.backwards))
        numbers = self.rows * shape.hidden + 4 * shape.hidden
        self.open_gate = self._launch(
            self.gate, "open_gate", (-(-numbers // THREADS), 1), THREADS, 0, 8,
            gate.origin, gate.unit, gate.threshold, gate.leak, *self.moments,
        )  # fmt: skip
        self.forward_scan = self._scan("forward", call.sequence, taped, 16)
        self._ways_back: dict[bool, tuple[Prepared, Prepared]] = {}
        if taped:
            self._prepare_gradients(gate)

    def _prepare_gradients(self, gate: Gate) -> None:
        shape = self.shape
        self.narrow = torch.float32 if shape.exact else torch.bfloat16
        self.da_shape = (1, shape.steps * shape.batch, 4 * shape.padded)
        self.tiles = 1 if self.per_sample else shape.tiles
        self.chunks = min(CHUNKS, -(-self.rows // ROWS))
        self.gate_slopes = self._launch(
            self.gate, "gate_slopes", (-(-shape.hidden // LANES), self.chunks), LANES * ROWS, 0, 7,
            gate.origin, gate.unit, gate.leak, *self.moments, self.tiles,
        )  # fmt: skip

    def _kernels(self, part: str, sequence: bool, taped: bool) -> Kernels:
        constants = self.shape.constants(self.inputs, self.call.candidate, self.per_sample, sequence, taped)
        return scan.kernels(part, **constants)

    def _scan(self, part: str, sequence: bool, taped: bool, pointers: int) -> Prepared:
        shape, kernels = self.shape, self._kernels(part, sequence, taped)
        return self._launch(kernels, part, *shape.grid, shape.dynamic_bytes, pointers, shape.steps, shape.batch)

    def _launch(self, kernels: Kernels, name: str, blocks, threads, shared_bytes, pointers: int, *numbers) -> Prepared:
        return Prepared(kernels.starter(name, self.device, blocks, threads, shared_bytes), pointers, *numbers)

    def way_back(self, sequence: bool) -> tuple[Prepared, Prepared]:
        """The scan, where gradients arrive for every step or only for the last, and what takes its result apart."""
        found = self._ways_back.get(sequence)
        if found is None:
            shape = self.shape
            columns = shape.hidden + 1 + (self.inputs if self.inline else 0)
            numbers = 4 * shape.hidden * columns + MOST_VALUES * shape.hidden
            blocks, kernels = (-(-numbers // scan.THREADS), 1), self._kernels("backward", sequence, True)
            finish = self._launch(
                kernels, "finish", blocks, scan.THREADS, 0, 11, 1, shape.steps, shape.tiles, self.chunks
            )
            found = self._ways_back[sequence] = self._scan("backward", sequence, True, 13), finish
        return found

    @gpu.as_written
    def forward(
        self,
        times: Maybe,
        x: Tensor,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Maybe,
        b_hh: Maybe,
        h0: Maybe,
        c0: Maybe,
        *values,
    ) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:  # fmt: skip
        """All h or None, final h, final c, and the tape, which also holds the table of openness."""
        x, w_ih = _plain(x), _plain(w_ih)
        kept = [_plain(part) for part in (times, *values, b_ih, b_hh, w_hh, h0, c0)]
        (times_at, *values_at, b_ih_at, b_hh_at, w_hh_at, h0_at, c0_at) = map(_at, kept)
        tape = x.new_empty(self.words)
        start = tape.data_ptr()
        k, b = start + self.k_at, start + self.b_at
        self.open_gate(times_at, *values_at, *[0] * (MOST_VALUES - self.values), b_ih_at, b_hh_at, k, b)
        read = x if self.inline else drive_of(x, w_ih.unsqueeze(0), tape[self.b_words].unsqueeze(0))
        h = x.new_empty(self.everything) if self.call.sequence else None
        h_n, c_n = x.new_empty(self.state), x.new_empty(self.state)
        parts = [start + offset for offset in self.tape_at] or (0, 0, 0, 0)
        self.forward_scan(
            read.data_ptr(), 0, w_ih.data_ptr(), b, w_hh_at, k, h0_at, c0_at,
            _at(h), 0, h_n.data_ptr(), c_n.data_ptr(), *parts,
        )  # fmt: skip
        return h, h_n, c_n, tape

    @gpu.as_written
    def backward(self, gradients: Sequence[Maybe], needs: Sequence[bool], saved: Sequence[Maybe]) -> list[Maybe]:
        """Gradients of x, the weights and biases, h0, c0 and the gate's values, where they are needed."""
        shape = self.shape
        times, x, w_ih, w_hh, b_ih, b_hh, _, _, *values, tape = map(_plain, saved)
        dh, dh_n, dc_n = map(_plain, gradients)
        need_x, _, _, _, _, need_h0, need_c0, *need_values = needs
        da = x.new_empty(self.da_shape, dtype=self.narrow)
        dk = x.new_empty(self.tiles * self.rows * shape.hidden)
        dh0, dc0 = x.new_empty(self.state[1:]) if need_h0 else None, x.new_empty(self.state[1:]) if need_c0 else None
        start = tape.data_ptr()
        k, (gates, c_before, h_before, _) = start + self.k_at, self.tape_at
        backward, finish = self.way_back(dh is not None)
        backward(
            _at(dh), 0, _at(dh_n), _at(dc_n), w_hh.data_ptr(), k,
            start + gates, start + c_before, start + h_before, da.data_ptr(), dk.data_ptr(), _at(dh0), _at(dc0),
        )  # fmt: skip
        parts, by_value = None, list[Maybe]([None] * MOST_VALUES)
        if any(need_values):
            parts = x.new_empty(self.chunks * MOST_VALUES * shape.hidden)
            at = [0] * MOST_VALUES
            at[: self.values] = map(_at, values)
            self.gate_slopes(_at(times), *at, k, dk.data_ptr(), parts.data_ptr())
            by_value[: self.values] = [x.new_empty(shape.hidden) if need else None for need in need_values]
        rows = tape[self.row_words].view(self.narrow).view(1, -1, shape.padded + scan.END)
        product = multiply(da.transpose(1, 2), rows)
        dw_hh = torch.empty_like(w_hh)
        dw_ih = torch.empty_like(w_ih) if self.inline else scan.gradient_of_w_ih(shape, da, x)[0]
        db_ih, db_hh = (None if part is None else torch.empty_like(part) for part in (b_ih, b_hh))
        finish(
            product.data_ptr(), 0, _at(parts), dw_ih.data_ptr(), dw_hh.data_ptr(), _at(db_ih), _at(db_hh), 0,
            *map(_at, by_value),
        )  # fmt: skip
        dx = scan.gradient_of_x(shape, da, w_ih.unsqueeze(0), x) if need_x else None
        return [dx, dw_ih, dw_hh, db_ih, db_hh, dh0, dc0, *by_value[: self.values]]


_plans: dict[tuple, Plan | None] = {}


def plan_for(
    call: Call, x: Tensor, weights, h0: Maybe, c0: Maybe, values: Sequence[Tensor], taped: bool
) -> Plan | None:
    """None where shapes do not fit each other, which the operator explains, or do not fit on the device."""
    gate, times, backwards, candidate, sequence = call
    kind = times.start if isinstance(times, range) else (times.dtype, times.shape)
    w_ih, w_hh, b_ih, b_hh = weights
    shapes = (x.shape, w_ih.shape, w_hh.shape, *[_shape(part) for part in (b_ih, b_hh, h0, c0)], *map(_shape, values))
    exact = gpu.exact_for(x.dtype)
    key = (x.device, shapes, kind, gate, backwards, candidate, sequence, taped, exact)
    if key not in _plans:
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        fits = _match(shapes, call, x.shape[0])
        shape = gpu.shape_for(x, w_hh, exact) if fits else None
        _plans[key] = None if shape is None else Plan(call, x, shape, len(values), taped)
    return _plans[key]


def _match(shapes: Sequence, call: Call, steps: int) -> bool:
    x, w_ih, w_hh, b_ih, b_hh, h0, c0, *values = shapes
    if len(x) != 3 or len(w_hh) != 2:
        return False
    hidden = w_hh[1]
    right = [(w_ih, (4 * hidden, x[2])), (w_hh, (4 * hidden, hidden)), *((value, (hidden,)) for value in values)]
    right += [(part, (4 * hidden,)) for part in (b_ih, b_hh)] + [(part, (x[1], hidden)) for part in (h0, c0)]
    times = call.times
    timed = len(times) == steps and (isinstance(times, range) or times.shape[1:] in ((), (x[1],)))
    return timed and all(part is None or part == expected for part, expected in right)


class Fused(torch.autograd.Function):
    """(plan, again, times, x, w_ih, w_hh, b_ih, b_hh, h0, c0, *values) -> all h or None, final h, final c"""

    # Without `setup_context`, which torch.func would need: torch would inspect the arguments at every call.
    @staticmethod
    def forward(ctx, plan: Plan, again: Callable[..., Made], times: Maybe, *tensors):  # pyright: ignore
        h, h_n, c_n, tape = plan.forward(times, *tensors)
        ctx.plan, ctx.again = plan, again
        ctx.set_materialize_grads(False)  # an unused output needs no work in the backward pass
        ctx.save_for_backward(times, *tensors, tape)
        return h, h_n, c_n

    @staticmethod
    def backward(ctx, *gradients):  # pyright: ignore[reportIncompatibleMethodOverride]
        saved, needs = ctx.saved_tensors, ctx.needs_input_grad[3:]
        batched = any(part is not None and is_legacy_batchedtensor(part) for part in gradients)
        if batched or torch.is_grad_enabled() or transforming():
            return None, None, None, *_by_table(ctx.again, gradients, needs, saved[1:-1])
        return None, None, None, *ctx.plan.backward(gradients, needs, saved)


def _by_table(again: Callable[..., Made], gradients, needs: Sequence[bool], inputs: Sequence[Maybe]) -> list[Maybe]:
    """The gradients by another forward pass, which torch can differentiate again."""
    create = torch.is_grad_enabled()
    with torch.enable_grad():
        # As views: one input may depend on another, and what flows there is not asked for here.
        inputs = [part.view_as(part) if need and part is not None else part for part, need in zip(inputs, needs)]
        arrived = [(out, part) for out, part in zip(again(*inputs), gradients) if out is not None and part is not None]
    if not arrived:
        return [None] * len(needs)
    wanted = [part for part, need in zip(inputs, needs) if need and part is not None]
    outputs, incoming = zip(*arrived)
    found = iter(torch.autograd.grad(outputs, wanted, incoming, create_graph=create, allow_unused=True))
    return [next(found) if need else None for need in needs]


def _plain(tensor: Any) -> Any:
    """As the kernels read them: contiguous, without torch's lazy negation."""
    if tensor is None or (tensor.is_contiguous() and not tensor.is_neg()):
        return tensor
    return tensor.resolve_neg().contiguous()


def _at(tensor: Maybe) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _shape(tensor: Maybe):
    return None if tensor is None else tensor.shape
