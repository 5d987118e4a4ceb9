"""A layer with a Gaussian gate as one node of autograd on the C engine.

For few sparse sequences, what torch does for the table of openness takes longer than the layer (`cpu_gaussian.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glstm.ops import cpu
from glstm.ops.contract import Inputs
from glstm.ops.cpu_gaussian import gaussian, table
from glstm.ops.fused import GAUSSIAN, Call, Made, Maybe, match, shape_of


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
        mu, sigma = values
        k = table(moments, mu, sigma, self.call.gate.threshold)
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
        return cpu.plain(times.flip(0) if self.call.backwards else times)
