"""Several models in one call: in parallel if the backend can, else one after the other.

If models are computed one after the other, each has its own tape; if all are computed at once, there is one tape.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from glstm.ops.contract import Backend, Inputs


class Record:
    """How tapes were written, and the schedules that belong to them."""

    def __init__(self, how: tuple[tuple[int, ...], ...], schedules: tuple):
        self.how, self.schedules = how, schedules


class Result(NamedTuple):
    h: Tensor | None
    h_n: Tensor
    c_n: Tensor
    c: Tensor | None
    record: Record | None
    tapes: tuple[Tensor, ...]


def forward(backend: Backend, inputs: Inputs, rule: str, sequence: bool, cells: bool, taped: bool) -> Result:
    if inputs.w_hh.dim() == 2 or backend.SIDE_BY_SIDE:
        h, h_n, c_n, c, tape, how, schedule = backend.forward(inputs, rule, sequence, cells, taped)
        if tape is None:
            return Result(h, h_n, c_n, c, None, ())
        return Result(h, h_n, c_n, c, Record((how,), (schedule,)), (tape,))
    each = [backend.forward(one, rule, sequence, cells, taped) for one in split(inputs)]
    h, h_n, c_n, c = (stack(parts) for parts in zip(*(made[:4] for made in each)))
    assert h_n is not None
    assert c_n is not None
    record = Record(tuple(made.how for made in each), tuple(made.schedule for made in each))
    return Result(h, h_n, c_n, c, record, tuple(made.tape for made in each if made.tape is not None))


def backward(
    backend: Backend, gradients: tuple, inputs: Inputs, record: Record, tapes: tuple[Tensor, ...],
    rule: str, need_x: bool, need_h0: bool,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    if inputs.w_hh.dim() == 2 or backend.SIDE_BY_SIDE:
        (tape,), (how,), (schedule,) = tapes, record.how, record.schedules
        return backend.backward(gradients, inputs, tape, how, schedule, rule, need_x, need_h0)
    arrived = zip(*(unbind(part, len(tapes)) for part in gradients))
    each = [
        backend.backward(own, one, tape, how, schedule, rule, need_x, need_h0)
        for own, one, tape, how, schedule in zip(arrived, split(inputs), tapes, record.how, record.schedules)
    ]
    dx, *others = (stack(parts) for parts in zip(*each))
    if dx is not None and inputs.x.dim() == 3:
        dx = dx.sum(0)
    return dx, *others


def split(inputs: Inputs) -> list[Inputs]:
    """The inputs of each model."""
    x, *own = inputs
    models = len(inputs.w_hh)
    xs = [x] * models if x.dim() == 3 else x.unbind()
    return [Inputs(*each) for each in zip(xs, *(unbind(part, models) for part in own))]


def unbind(part: Tensor | None, models: int):
    return [None] * models if part is None else part.unbind()


def stack(parts: tuple[Tensor | None, ...]) -> Tensor | None:
    return None if parts[0] is None else torch.stack(parts)  # pyright: ignore[reportArgumentType]
