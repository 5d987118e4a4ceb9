"""A layer with its gate as one node of autograd: table of openness, sum of biases, scan, and all their gradients.

On a GPU, what the host does at a call takes longer than the kernels of a short sequence. So there are few launches, all
prepared once per shape, nothing between them is a tensor of its own unless torch has to multiply it, and nothing waits
for the device. Whatever is unusual is left to the table and `gated_lstm`.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from glstm.ops import gpu
from glstm.ops.fused import Call, Gate, Made, Maybe, match, shape_of
from glstm.ops.gpu import scan
from glstm.ops.gpu.products import multiply, share_of
from glstm.ops.gpu.runtime import HERE, Kernels, Prepared
from glstm.ops.gpu.scan import at

# Kinds of times, and the most values that a unit of a gate has: as in gate.cuh, and so are the kinds of gates.
COUNTED, FLOATS, DOUBLES = range(3)
MOST_VALUES = 3
WIDTH = {torch.float32: FLOATS, torch.float64: DOUBLES}
THREADS, LANES, ROWS = 256, 32, 8  # of the gate's kernels
CHUNKS = 128  # of a table's rows, whose gradients are summed at the same time
MOST_PLANS = 256


def source() -> str:
    return "".join((HERE / name).read_text() for name in ("gate.cuh", "gate.cu"))


def gate_constants(kind: int, times: int, framed: bool) -> dict[str, int]:
    return {"GATE": kind, "TIMES": times, "FRAMED": framed}


@cache
def gate_kernels(kind: int, times: int, framed: bool) -> Kernels:
    """One for all sizes."""
    return Kernels(source(), gate_constants(kind, times, framed))


def fits(x: Tensor) -> bool:
    return gpu.usable(x, None)


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
        # After the tape lie the table and the sum of biases. The type is that of the rows, which torch multiplies.
        self.narrow = torch.float32 if shape.exact else torch.bfloat16
        *self.tape_at, self.k_at, self.b_at, end = _places(
            *(shape.tape_parts if taped else [0] * 4), self.rows * shape.hidden, 4 * shape.hidden
        )
        self.tape_size = end // self.narrow.itemsize
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
        self.tiles = 1 if self.per_sample else shape.tiles
        self.chunks = min(CHUNKS, -(-self.rows // ROWS))
        steps, row, width = shape.steps * shape.batch, shape.padded + scan.END, self.narrow.itemsize
        self.row_view = (1, steps, row), (steps * row, row, 1), self.tape_at[3] // width
        # Slopes, the table's gradients and their sums over chunks lie side by side.
        slopes = 4 * shape.padded
        self.da_shape, self.across = (1, steps, slopes), ((1, slopes, steps), (steps * slopes, 1, slopes))
        dk = self.tiles * self.rows * shape.hidden
        _, self.dk_at, self.parts_at, end = _places(
            steps * slopes * width // 4, dk, self.chunks * MOST_VALUES * shape.hidden
        )
        self.scratch_size = end // width
        self.gate_slopes = self._launch(
            self.gate, "gate_slopes", (-(-shape.hidden // LANES), self.chunks), LANES * ROWS, 0, 7,
            gate.origin, gate.unit, gate.leak, *self.moments, self.tiles,
        )  # fmt: skip

    def _kernels(self, part: str, sequence: bool, taped: bool) -> Kernels:
        constants = self.shape.constants(part, self.inputs, self.call.candidate, self.per_sample, sequence, taped)
        return scan.kernels(part, **constants)

    def _scan(self, part: str, sequence: bool, taped: bool, pointers: int) -> Prepared:
        shape, kernels = self.shape, self._kernels(part, sequence, taped)
        shared_bytes = shape.dynamic_bytes(kernels.constants)
        return self._launch(kernels, part, *shape.grid, shared_bytes, pointers, shape.steps, shape.batch)

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
            found = self._ways_back[sequence] = self._scan("backward", sequence, True, 17), finish
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
    ) -> tuple[Made, None, tuple[Tensor, ...]]:  # fmt: skip
        """All h or None, final h, final c; and the tape, which also holds the table of openness."""
        x, w_ih = _plain(x), _plain(w_ih)
        kept = [_plain(part) for part in (times, *values, b_ih, b_hh, w_hh, h0, c0)]
        (times_at, *values_at, b_ih_at, b_hh_at, w_hh_at, h0_at, c0_at) = map(at, kept)
        tape = x.new_empty(self.tape_size, dtype=self.narrow)
        start = tape.data_ptr()
        k, b = start + self.k_at, start + self.b_at
        self.open_gate(times_at, *values_at, *[0] * (MOST_VALUES - self.values), b_ih_at, b_hh_at, k, b)
        read = x if self.inline else share_of(x, w_ih.unsqueeze(0))
        h = x.new_empty(self.everything) if self.call.sequence else None
        h_n, c_n = x.new_empty(self.state), x.new_empty(self.state)
        parts = [start + offset for offset in self.tape_at]
        self.forward_scan(
            read.data_ptr(), 0, w_ih.data_ptr(), b, w_hh_at, k, h0_at, c0_at,
            at(h), 0, h_n.data_ptr(), c_n.data_ptr(), *parts,
        )  # fmt: skip
        return (h, h_n, c_n), None, (tape,)

    @gpu.as_written
    def backward(
        self, gradients: Sequence[Maybe], needs: Sequence[bool], record: None, saved: Sequence[Any]
    ) -> list[Maybe]:
        """Gradients of x, the weights and biases, h0, c0 and the gate's values, where they are needed."""
        shape = self.shape
        times, x, w_ih, w_hh, b_ih, b_hh, _, _, *values, tape = map(_plain, saved)
        dh, dh_n, dc_n = gradients[0], _plain(gradients[1]), _plain(gradients[2])
        dh = dh if dh is None else scan.readable(dh.resolve_neg())
        need_x, _, _, _, _, need_h0, need_c0, *need_values = needs
        da = x.new_empty(self.scratch_size, dtype=self.narrow)
        da_at = da.data_ptr()
        dk, parts = da_at + self.dk_at, da_at + self.parts_at
        dh0, dc0 = x.new_empty(self.state[1:]) if need_h0 else None, x.new_empty(self.state[1:]) if need_c0 else None
        start = tape.data_ptr()
        k, (gates, c_before, h_before, _) = start + self.k_at, self.tape_at
        backward, finish = self.way_back(dh is not None)
        backward(
            at(dh), 0, 0, *(dh.stride() if dh is not None else (0, 0, 0)), at(dh_n), at(dc_n), w_hh.data_ptr(), k,
            start + gates, start + c_before, start + h_before, da_at, dk, at(dh0), at(dc0),
        )  # fmt: skip
        by_value = list[Maybe]([None] * MOST_VALUES)
        if any(need_values):
            values_at = [0] * MOST_VALUES
            values_at[: self.values] = map(at, values)
            self.gate_slopes(at(times), *values_at, k, dk, parts)
            by_value[: self.values] = [x.new_empty(shape.hidden) if need else None for need in need_values]
        product = multiply(da.as_strided(*self.across), tape.as_strided(*self.row_view))
        dw_hh = torch.empty_like(w_hh)
        if need_x or not self.inline:
            da = da[: self.da_shape[1] * self.da_shape[2]].view(self.da_shape)
        dw_ih = torch.empty_like(w_ih) if self.inline else scan.gradient_of_w_ih(shape, da, x)[0]
        db_ih, db_hh = (None if part is None else torch.empty_like(part) for part in (b_ih, b_hh))
        finish(
            product.data_ptr(), 0, parts, dw_ih.data_ptr(), dw_hh.data_ptr(), at(db_ih), at(db_hh), 0,
            *map(at, by_value),
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
    shapes = tuple(map(shape_of, (x, *weights, h0, c0, *values)))
    exact = gpu.exact_for(x.dtype)
    key = (x.device, shapes, kind, gate, backwards, candidate, sequence, taped, exact)
    if key not in _plans:
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        fits = match(shapes, call, x.shape[0])
        shape = gpu.shape_for(x, weights[1], exact) if fits else None
        _plans[key] = None if shape is None else Plan(call, x, shape, len(values), taped)
    return _plans[key]


def _plain(tensor: Any) -> Any:
    """As the kernels read them: contiguous, without torch's lazy negation."""
    if tensor is None or (tensor.is_contiguous() and not tensor.is_neg()):
        return tensor
    return tensor.resolve_neg().contiguous()


def _places(*sizes: int) -> list[int]:
    """Where parts of so many 32-bit words begin in one piece of memory, in bytes, and where it ends."""
    return [4 * sum(-(-size // 4) * 4 for size in sizes[:n]) for n in range(len(sizes) + 1)]
