"""A layer with a Gaussian gate as one node of autograd on the C engine.

torch would make the table of openness, and the gradients of its values, with a dozen operators on T x H numbers each.
For few sparse sequences these take longer than the layer. Here they are computed where units are open.
"""

from collections.abc import Sequence
from ctypes import byref
from dataclasses import dataclass
from math import ceil, exp, log, sqrt
from typing import Any

import torch
from torch import Tensor

from glstm.ops import cpu
from glstm.ops.contract import Inputs
from glstm.ops.fused import GAUSSIAN, TIME_TYPES, Call, Gate, Made, Maybe, match, shape_of

# The logarithm of k, in each dtype of times, below which it is 0 without any threshold: as in glstm/gates.py.
LEAST = {dtype: ceil(log(torch.finfo(dtype).tiny)) for dtype in TIME_TYPES}


def fits(x: Tensor) -> bool:
    return cpu.usable(x, None)


def plan_for(
    call: Call, x: Tensor, weights: Sequence[Any], h0: Maybe, c0: Maybe, values: Sequence[Tensor], taped: bool
) -> "Plan | None":
    """Without gradients, layers have their tables from the call before."""
    per_sample = isinstance(call.times, Tensor) and call.times.dim() != 1
    if not taped or call.gate.kind != GAUSSIAN or per_sample or x.numel() == 0:
        return None
    shapes = tuple(map(shape_of, (x, *weights, h0, c0, *values)))
    return Plan(call) if match(shapes, call, x.shape[0]) else None


@dataclass(frozen=True)
class Plan:
    call: Call

    def forward(
        self, times: Maybe, x: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Maybe, b_hh: Maybe, h0: Maybe, c0: Maybe,
        *values: Tensor,
    ) -> tuple[Made, Any, tuple[Tensor, ...]]:  # fmt: skip
        moments = self.moments(times)
        k = table(self.call.gate, moments, *values)
        if h0 is None or c0 is None:
            h0 = c0 = x.new_zeros(x.shape[1], w_hh.shape[1])
        b = None if b_ih is None or b_hh is None else b_ih + b_hh
        inputs = Inputs(x, w_ih, w_hh, b, k, None, h0, c0)
        made = cpu.forward(inputs, self.call.candidate, self.call.sequence, False, True)
        assert made.tape is not None
        states = (made.h, made.h_n.unsqueeze(0), made.c_n.unsqueeze(0))
        return states, (made.how, made.schedule), (moments, k, h0, c0, made.tape)

    def backward(
        self, gradients: Sequence[Maybe], needs: Sequence[bool], record: Any, saved: Sequence[Any]
    ) -> list[Maybe]:
        _, x, w_ih, w_hh, b_ih, b_hh, _, _, mu, sigma, moments, k, h0, c0, tape = saved
        mu, sigma = cpu.plain(mu), cpu.plain(sigma)
        d_mu, d_sigma = torch.zeros_like(mu), torch.zeros_like(sigma)
        gate = gaussian(moments, mu, sigma, d_mu, d_sigma)
        inputs, (how, schedule) = Inputs(x, w_ih, w_hh, b_ih, k, None, h0, c0), record
        dx, dw_ih, dw_hh, db, _, _, dh0, dc0 = cpu.backward(
            (*gradients, None), inputs, tape, how, schedule, self.call.candidate, needs[0], needs[5], gate
        )
        return [
            dx, dw_ih, dw_hh, db, None if db is None or b_hh is None else db.clone(), dh0,
            dc0 if needs[6] else None, d_mu, d_sigma,
        ]  # fmt: skip

    def moments(self, times: Maybe) -> Tensor:
        """The times (T,) as the gate gets them, in the order in which x is read."""
        _, _, _, origin, unit = self.call.gate
        if times is None:
            counted = self.call.times
            assert isinstance(counted, range)
            times = torch.arange(counted.start, counted.stop, dtype=torch.float32, device="cpu")
        if (origin, unit) != (0.0, 1.0):
            times = ((times.double() - origin) / unit).float()
        return (times.flip(0) if self.call.backwards else times).contiguous()


def gaussian(moments: Tensor, mu: Tensor, sigma: Tensor, *gradients: Tensor) -> cpu.Gaussian:
    """The caller keeps the tensors: the engine has only their addresses."""
    at = [part.data_ptr() for part in (moments, mu, sigma, *gradients)]
    return cpu.Gaussian(*at, wide=moments.dtype is torch.float64)


def table(gate: Gate, moments: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
    """k (T, H), bit for bit what `Gaussian.openness` and a threshold make, but computed where it may not be 0."""
    library = cpu.engine()
    assert library is not None
    mu, sigma = cpu.plain(mu), cpu.plain(sigma)
    k, ranges = mu.new_empty(len(moments), len(mu)), mu.new_empty(2 * len(mu), dtype=torch.int32)
    exponents = moments.new_empty(k.numel())  # memory not written to is never allocated
    values, least = gaussian(moments, mu, sigma), LEAST[moments.dtype]
    reach = sqrt(min(-log(gate.threshold), -least) if gate.threshold > 0 else -least)
    count = library.glstm_gaussian_exponents(
        byref(values), reach, least, *k.shape, ranges.data_ptr(), exponents.data_ptr()
    )
    exponentials = exponents[:count].exp_()
    limit = max(gate.threshold, 1.01 * exp(least))
    library.glstm_gaussian_table(
        byref(values), ranges.data_ptr(), exponentials.data_ptr(), limit, *k.shape, k.data_ptr()
    )  # fmt: skip
    return k
