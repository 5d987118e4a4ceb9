"""A layer with a Gaussian gate as one node of autograd on the C engine.

torch would make the table of openness, and the gradients of its values, with a dozen operators on T x H numbers each.
For few sparse sequences these take longer than the layer. The engine computes them where units are open.
"""

from collections.abc import Sequence
from ctypes import byref
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import torch
from torch import Tensor

from glstm.ops import cpu
from glstm.ops.contract import Inputs
from glstm.ops.fused import GAUSSIAN, Call, Gate, Made, Maybe, match, shape_of

SMALLEST = 87.0  # -log of it: below, k is 0 without any threshold


def fits(x: Tensor) -> bool:
    return cpu.usable(x, None)


def plan_for(
    call: Call, x: Tensor, weights: Sequence[Any], h0: Maybe, c0: Maybe, values: Sequence[Tensor], taped: bool
) -> "Plan | None":
    """Without gradients, layers have their tables from the call before."""
    per_sample = isinstance(call.times, Tensor) and call.times.dim() != 1
    if not taped or call.gate.kind != GAUSSIAN or per_sample or x.numel() == 0:
        return None
    shapes = (x.shape, *map(shape_of, (*weights, h0, c0)), *map(shape_of, values))
    return Plan(call) if match(shapes, call, x.shape[0]) else None


@dataclass(frozen=True)
class Plan:
    call: Call

    def forward(
        self, times: Maybe, x: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Maybe, b_hh: Maybe, h0: Maybe, c0: Maybe,
        *values
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
        d_mu, d_sigma = torch.empty_like(mu), torch.empty_like(sigma)
        gate = gaussian(moments, mu, sigma, d_mu, d_sigma)
        how, schedule = record
        dx, dw_ih, dw_hh, db, _, _, dh0, dc0 = cpu.backward(
            (*gradients, None), Inputs(x, w_ih, w_hh, b_ih, k, None, h0, c0), tape, how, schedule,
            self.call.candidate, needs[0], needs[5], gate,
        )  # fmt: skip
        return [
            dx, dw_ih, dw_hh, db, None if db is None or b_hh is None else db.clone(), dh0,
            dc0 if needs[6] else None, d_mu, d_sigma,
        ]  # fmt: skip

    def moments(self, times: Maybe) -> Tensor:
        """The times (T,), relative, in the order in which x is read."""
        _, _, _, origin, unit = self.call.gate
        if times is None:
            counted = self.call.times
            assert isinstance(counted, range)
            times = torch.arange(counted.start, counted.stop, dtype=torch.float64, device="cpu")
        moments = times.double()
        if (origin, unit) != (0.0, 1.0):
            moments = (moments - origin) / unit
        return (moments.flip(0) if self.call.backwards else moments).contiguous()


def gaussian(moments: Tensor, mu: Tensor, sigma: Tensor, *gradients: Tensor) -> cpu.Gaussian:
    """The caller keeps the tensors: the engine has only their addresses."""
    return cpu.Gaussian(*(part.data_ptr() for part in (moments, mu, sigma, *gradients)))


def table(gate: Gate, moments: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
    """k (T, H)"""
    library = cpu.engine()
    assert library is not None
    mu, sigma = cpu.plain(mu), cpu.plain(sigma)
    k = mu.new_empty(len(moments), len(mu))
    reach = sqrt(min(-log(gate.threshold), SMALLEST)) if gate.threshold > 0 else sqrt(SMALLEST)
    values = gaussian(moments, mu, sigma)
    made = library.glstm_gaussian_table(byref(values), gate.threshold, reach, *k.shape, k.data_ptr())
    cpu.require_memory(made < 0)
    return k
