"""One layer and direction over a sequence: in one operator with its gate if an engine has that, else from a table k."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from glstm.gates import Gate, Gaussian, Open, Periodic, Phased
from glstm.ops import cpu_fused, fused, gated_lstm, onnx_export
from glstm.ops.gpu import choice
from glstm.ops.gpu import fused as gpu_fused
from glstm.timed import Times, table
from glstm.times import Frame, count_up
from glstm.weights import Weights

Made = fused.Made

_tables_only: list[bool] = []

# Exactly these classes: a subclass may open otherwise.
KINDS = {Open: fused.OPEN, Gaussian: fused.GAUSSIAN, Phased: fused.PHASED, Periodic: fused.PERIODIC}


@contextmanager
def by_tables() -> Iterator[None]:
    """On the CPU, take tables always: networks that train together have to, and each shall become, to the bit, what it
    would alone."""
    _tables_only.append(True)
    try:
        yield
    finally:
        _tables_only.pop()


class Layer(NamedTuple):
    """Everything but tensors that its results depend on."""

    gate: Gate
    frame: Frame
    threshold: float
    training: bool
    times: Times
    backwards: bool  # x is reversed: it meets its times from the last to the first
    candidate: str
    sequence: bool
    backend: str
    segment: int | None

    def run(
        self, x: Tensor, weights: Weights, values: dict[str, Tensor], h0: Tensor | None, c0: Tensor | None
    ) -> Made | None:
        """All h or None, final h, final c, from one operator; None where there is none for this layer."""
        kind = KINDS.get(type(self.gate))
        if kind is None or self.segment is not None:
            return None
        leak = self.gate.alpha if isinstance(self.gate, Phased) and self.training else 0.0
        gate = fused.Gate(kind, leak, self.threshold, *self.frame)
        call = fused.Call(gate, self.times, self.backwards, self.candidate, self.sequence)
        arguments = (call, self.by_gate, x, weights, h0, c0, tuple(values.values()))
        if self.backend in ("auto", "native") and cpu_fused.fits(x):
            return None if _tables_only else fused.run(cpu_fused, *arguments)
        if self.backend not in ("auto", "cuda"):
            return None
        if self.threshold > 0 and not self.sequence and x.shape[1] >= choice.MANY_SAMPLES:
            return None  # the operator may compute open units only, from a table
        return fused.run(gpu_fused, *arguments)

    def by_gate(self, x: Tensor, w_ih, w_hh, b_ih, b_hh, h0: Tensor | None, c0: Tensor | None, *values) -> Made:
        """The same from a table, which the gate makes first."""
        times = count_up(self.times, x.device) if isinstance(self.times, range) else self.times
        named = dict(zip(self.gate.names, values, strict=True))
        options = (self.threshold, self.training, w_hh.shape[-1], w_hh.dtype)
        k = table(self.gate, named, self.frame, times, *options)
        return self.by_table(x, Weights(w_ih, w_hh, b_ih, b_hh), k.flip(0) if self.backwards else k, h0, c0)

    def as_onnx(self, x: Tensor, weights: Weights, h0: Tensor | None, c0: Tensor | None) -> Made | None:
        """While it is exported, from an operator that ONNX has; None where it has none for this layer."""
        if type(self.gate) is not Open or x.dtype is not torch.float32:  # ONNX Runtime's LSTM knows no other
            return None
        given = (x, weights.w_ih, weights.w_hh, weights.bias, *_state(x, weights.w_hh, h0, c0))
        h, h_n, c_n = onnx_export.open_lstm(*given, self.candidate)
        return (h if self.sequence else None), h_n.unsqueeze(0), c_n.unsqueeze(0)

    def by_table(self, x: Tensor, weights: Weights, k: Tensor, h0: Tensor | None, c0: Tensor | None) -> Made:
        w_hh = weights.w_hh
        h0, c0 = _state(x, w_hh, h0, c0)
        options = {"backend": self.backend, "segment": self.segment}
        h, h_n, c_n, _ = gated_lstm(
            x, weights.w_ih, w_hh, weights.bias, k, h0, c0,
            candidate=self.candidate, sequence=self.sequence, **options,
        )  # fmt: skip
        return h, h_n.unsqueeze(0), c_n.unsqueeze(0)


def _state(x: Tensor, w_hh: Tensor, h0: Tensor | None, c0: Tensor | None) -> tuple[Tensor, Tensor]:
    """The state before the first step: zeros, where none was given."""
    if h0 is None or c0 is None:
        h0 = c0 = x.new_zeros(x.shape[1], w_hh.shape[-1], dtype=w_hh.dtype)
    return h0, c0
