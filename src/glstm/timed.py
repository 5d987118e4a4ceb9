"""How a layer meets times: it asks its gate, fits what was left open to the first times, and says what looks wrong."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from glstm.doubts import about_new_times, doubts
from glstm.errors import GateWarning
from glstm.gates import Gate, Gaussian, apply_threshold
from glstm.ops import cpu_gaussian, onnx_export
from glstm.ops.operator import watched
from glstm.times import Frame, as_tensor, as_times, count_up, has_values, plainly, span_of, unpacked, whole_number
from glstm.weights import LSTMWeights

Times = Tensor | range  # (T,), or (T, B) with times per sample; a range where they only count steps

MOST = 2**24  # values of k that are computed in order to see whether any of them is not 0


class TimedWeights(LSTMWeights):
    """The part of a layer that knows its gate and the times, but not the recurrence."""

    def openness(self, times: Any) -> Tensor:
        """How open each unit is at these times, as the network uses it: thresholded, and 0 at padding.

        Args:
            times: A number T for 1..T, (T,), or one row a sample, laid out like the input, or packed.

        Returns:
            k (layers x directions, T, H); with times per sample (layers x directions, T, B, H).
        """
        times, valid = self._given_times(times)
        if self.unfitted and self._knows(times):
            self._see(times, valid)
        k = torch.stack([self.openness_at(suffix, times) for _, suffix in self.places()])
        return k if valid is None else torch.where(valid.unsqueeze(-1), k, 0)

    def fit_times(self, times: Any) -> Self:
        """Choose the gate's values that were left open, such as mu=None, for these times. Otherwise the first call does
        it.

        Call it where the first call does not see all times: with sequences that are fed in pieces, batches of unequal
        lengths, and several processes, which would each see their own. Call it also where the first call sees no values
        (inside torch.compile and functional_call), and before an optimiser needs to know the span of the times. Values
        that were learned since an earlier call are chosen anew. Values that were given or loaded stay.

        Args:
            times: A number T for 1..T, (T,), or one row a sample, laid out like the input, or packed.

        Returns:
            The layer itself.
        """
        known, valid = self._given_times(times)
        if not self._knows(known) or not self._holds_values():
            raise ValueError("fit_times needs times and parameters with values: call it outside of torch's transforms")
        if not self._see(known, valid):
            raise ValueError("fit_times needs at least one time")
        return self

    def _given_times(self, times: Any) -> tuple[Tensor, Tensor | None]:
        """As (T,) or (T, B), and which of these are no padding."""
        device = next(self.parameters()).device
        if isinstance(times, PackedSequence):
            padded, valid = unpacked(times)
            valid = valid.to(device)
            return as_times(padded, len(padded), padded.shape[1], False, device, valid), valid
        times = as_tensor(times)
        if times.dim() == 0:
            return as_times(None, whole_number(times), 0, False, device), None
        steps, batch = (times.T if self.batch_first else times).shape if times.dim() == 2 else (len(times), 0)
        return as_times(times, steps, batch, self.batch_first, device), None

    def _knows(self, value: Tensor) -> bool:
        """Whether the value of a tensor can be looked at, and parameters can be changed."""
        return not watched((value,)) and has_values(value)

    def _see(self, times: Times, valid: Tensor | None) -> bool:
        span = span_of(times, valid)
        if span is not None:
            self.seen = span
            self._fit(span)
        return span is not None

    def meet(self, times: Any) -> None:
        """What the first call in training does, for code whose calls are inside torch's transforms: fit what waits for
        times, and warn, once, of what looks wrong."""
        known, valid = self._given_times(times)
        if self.unfitted:
            self.fit_times(times)
        self.seen = self.seen or span_of(known, valid)
        if self._new:
            self._new = False
            self._warn(self._doubts(known, valid, isinstance(times, int)))

    def _warn(self, sentences: list[str]) -> None:
        for sentence in sentences:
            warnings.warn(sentence, GateWarning, stacklevel=6)

    def warn_of_new_times(self, each: Sequence[Any], stacklevel: int = 3) -> None:
        """Warn if sequences for use have other times (T_n,) than those for training: nothing else would show it."""
        if each and self.seen is not None and isinstance(self.gate, Gaussian):
            for sentence in about_new_times([as_tensor(own) for own in each], self.seen):
                warnings.warn(sentence, GateWarning, stacklevel=stacklevel)

    def _meet(self, x: Tensor, times: Times, valid: Tensor | None) -> None:
        """At the first call that shows values, fit what waits for times."""
        if not self._knows(x) or not self._holds_values():
            return
        before = self.seen
        if before is None:
            self._see(times, valid)
        if self.seen is None or not self.training:
            return
        self._new = False
        if self.seen.steps > 1:  # from a single step, nothing can be told
            known = count_up(times, torch.device("cpu")) if isinstance(times, range) else times
            if before is not None:  # as from `fit_times`: this call may be a piece of these
                known = known.flatten() if valid is None or known.dim() == 1 else known[valid]
                known, valid = torch.cat((known.detach().cpu().double(), before.times)), None
            self._warn(self._doubts(known, valid, isinstance(times, range)))

    def _doubts(self, times: Tensor | None, valid: Tensor | None, counted: bool) -> list[str]:
        """What looks wrong about the gate's values at these times; or in general, if they are not known."""
        largest = 1.0
        if times is not None:
            known = times.detach() if valid is None or times.dim() == 1 else times.detach()[valid]
            known = known.cpu().double().unique()  # sorted
            times = known if len(known) else None
        if times is not None and not isinstance(self.gate, Gaussian):
            some = times[:: 1 + len(times) * self.hidden_size // MOST].to(next(self.parameters()).device)
            with torch.no_grad():
                largest = max(float(self.openness_at(suffix, some, threshold=0.0).max()) for _, suffix in self.places())
        return doubts(self.gate, self._all_in_time(), times, counted, largest)

    def _all_in_time(self) -> dict[str, Tensor]:
        """The gate's values of all layers and directions together, in the user's time, on the CPU."""
        each = [self.gate_in_time(suffix) for _, suffix in self.places()]
        return {name: torch.cat([values[name].cpu() for values in each]) for name in self.gate.names}

    def openness_at(
        self, suffix: str, times: Tensor, *, threshold: float | None = None, training: bool | None = None
    ) -> Tensor:
        """k (T, H) of the layer and direction with this suffix, at times (T,); (T, B, H) with times per sample (T, B).

        `threshold` and `training`, where given, stand for the layer's own.
        """
        limit: float = self.threshold if threshold is None else threshold
        training = self.training if training is None else training
        dtype = self.weights(suffix).w_hh.dtype
        return table(self.gate, self.gate_values(suffix), self._frame, times, limit, training, self.hidden_size, dtype)

    def _gate_in_words(self) -> list[str]:
        """The range of each gate value in the user's time, and how open the gate is at the times that it has seen."""
        if not self.gate.names or not all(has_values(self._named(name).detach()) for name in self._gate_names()):
            return []
        words = []
        values = self.gate.readable(self._all_in_time())
        widths = [float(values[name].abs().max()) for name in self.gate.in_time if name not in self.gate.moments]
        for name, value in values.items():
            low, high = float(value.min()), float(value.max())
            scale = high - low or (max(widths, default=0.0) if name in self.gate.moments else 0.0)
            ends = dict.fromkeys(plainly(end, scale) for end in (low, high))
            words.append(f"{name}={'None' if self.unfitted and name in self._own else '..'.join(ends)}")
        if self.seen is None or self.unfitted:
            return words
        with torch.no_grad():
            times = self.seen.times[:: 1 + self.seen.steps // 1000].to(next(self.parameters()).device)
            at = max(self.threshold, 0.01)
            tables = [self.openness_at(suffix, times, threshold=at, training=False) for _, suffix in self.places()]
            share = torch.stack(tables).gt(0).double().mean().item()
        return [*words, f"open {share:.0%} of {self.seen.steps} steps at k > {at:g}"]


def table(
    gate: Gate,
    values: Mapping[str, Tensor],
    frame: Frame,
    times: Tensor,
    threshold: float,
    training: bool,
    hidden_size: int,
    dtype: torch.dtype,
) -> Tensor:
    """k (T, H), or (T, B, H), of a gate whose units have these values, at these times."""

    translated = onnx_export.Translatable if onnx_export.exporting() else nullcontext

    def by_torch(moments: Tensor, *each: Tensor) -> Tensor:
        unit = dict(zip(gate.names, each, strict=True))
        with translated():
            k = apply_threshold(gate.openness(moments, unit, training), threshold)
        # A gate that opens all units alike has one column for all of them.
        return k.expand(*times.shape, hidden_size).to(dtype)

    with translated():
        moments = frame.relative(times, dtype)
    if type(gate) is Gaussian and dtype is torch.float32:
        mu, sigma = values["mu"], values["sigma"]
        k = cpu_gaussian.differentiable_table(moments, mu, sigma, threshold, hidden_size, by_torch)
        if k is not None:
            return k
    return by_torch(moments, *(values[name] for name in gate.names))
