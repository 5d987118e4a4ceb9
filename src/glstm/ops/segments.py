"""Training on very long sequences: only the states between segments are stored, and the backward pass computes each
segment again before it differentiates it (also called checkpointing).

Memory is then one segment's tape instead of the whole sequence's, for one more forward pass.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from glstm.ops.contract import Backend, Inputs, Made


def in_segments(backend: Backend, segment: int | None) -> Backend:
    return Segmented(backend, segment) if segment else backend


@dataclass(frozen=True)
class Segmented:
    """A backend made of another one. Its tape: the state before each segment but the first, (segments - 1, 2, B, H)."""

    backend: Backend
    segment: int

    @property
    def HOW(self) -> int:
        return 0

    @property
    def SIDE_BY_SIDE(self) -> bool:
        return self.backend.SIDE_BY_SIDE

    def usable(self, x: Tensor, k_h: Tensor | None) -> bool:
        return self.backend.usable(x, k_h)

    def has_rule(self, rule: str, x: Tensor, hidden: int) -> bool:
        return self.backend.has_rule(rule, x, hidden)

    def limits(self) -> str:
        return self.backend.limits()

    def empty_tape(self, x: Tensor, w_hh: Tensor) -> Tensor:
        between = (x.shape[-3] - 1) // self.segment
        return x.new_empty(between, 2, *w_hh.shape[:-2], x.shape[-2], w_hh.shape[-1])

    def forward(self, inputs: Inputs, rule: str, sequence: bool, cells: bool, taped: bool) -> Made:
        if not taped:  # then nothing is stored anyway
            return self.backend.forward(inputs, rule, sequence, cells, False)
        axis = inputs.w_hh.dim() - 2
        state, before = (inputs.h0, inputs.c0), []
        all_h, all_c = [], []
        for steps in self._segments(inputs):
            made = self.backend.forward(_cut(inputs, steps, *state), rule, sequence, cells, False)
            state = made.h_n, made.c_n
            before.append(torch.stack(state))
            all_h.append(made.h)
            all_c.append(made.c)
        h, c = (torch.cat(parts, axis) if asked else None for parts, asked in ((all_h, sequence), (all_c, cells)))
        tape = torch.stack(before[:-1]) if len(before) > 1 else self.empty_tape(inputs.x, inputs.w_hh)
        return Made(h, *state, c, tape)

    def backward(self, gradients, inputs: Inputs, tape, how, schedule, rule: str, need_x: bool, need_h0: bool):
        dh, dh_n, dc_n, dc = gradients
        axis = inputs.w_hh.dim() - 2
        states = [(inputs.h0, inputs.c0), *((before[0], before[1]) for before in tape)]
        weights: list[Tensor | None] = [None] * 3
        of_steps: list[list] = [[], [], []]  # gradients of x, k, k_h, the last segment's first
        for steps, state in reversed(list(zip(self._segments(inputs), states, strict=True))):
            own = _cut(inputs, steps, *state)
            made = self.backend.forward(own, rule, False, dc is not None, True)
            arrived = (_steps_of(dh, steps, axis), dh_n, dc_n, _steps_of(dc, steps, axis))
            need_h = need_h0 or steps.start > 0
            assert made.tape is not None
            dx, *found, dk, dk_h, dh_n, dc_n = self.backend.backward(
                arrived, own, made.tape, made.how, made.schedule, rule, need_x, need_h
            )
            del made  # its tape, before the next one is made
            weights = [new if old is None or new is None else old + new for old, new in zip(weights, found)]
            for parts, part in zip(of_steps, (dx, dk, dk_h)):
                parts.append(part)
        axes = (inputs.x.dim() - 3, axis, axis)
        dx, dk, dk_h = (None if parts[0] is None else torch.cat(parts[::-1], at) for parts, at in zip(of_steps, axes))
        return dx, *weights, dk, dk_h, dh_n if need_h0 else None, dc_n

    def _segments(self, inputs: Inputs) -> list[slice]:
        """At least one: an empty sequence is a segment, too."""
        steps = inputs.x.shape[-3]
        return [slice(start, min(start + self.segment, steps)) for start in range(0, max(steps, 1), self.segment)]


def _cut(inputs: Inputs, steps: slice, h: Tensor, c: Tensor) -> Inputs:
    axis = inputs.w_hh.dim() - 2
    k, k_h = _steps_of(inputs.k, steps, axis), _steps_of(inputs.k_h, steps, axis)
    assert k is not None
    return inputs._replace(x=inputs.x[..., steps, :, :], k=k, k_h=k_h, h0=h, c0=c)


def _steps_of(part: Tensor | None, steps: slice, axis: int) -> Tensor | None:
    return None if part is None else part.narrow(axis, steps.start, steps.stop - steps.start)
