"""The layer behind all others: an LSTM stack, drop-in for `torch.nn.LSTM`, whose units open as a gate says.

Shapes: T steps, B samples, D inputs, H units.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, fx
from torch.nn.functional import dropout
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from glstm.errors import ShapeError, UserError
from glstm.fused import Layer, Made
from glstm.gates import Gate, check_threshold
from glstm.ndarrays import like
from glstm.ops import onnx_export
from glstm.ops.backends import check_backend
from glstm.ops.operator import autocasting, check_candidate, check_segment, watched
from glstm.ops.recorded import transforming
from glstm.tables import TableCache
from glstm.timed import TimedWeights, Times
from glstm.times import Frame, as_times, count_up

State = tuple[Tensor, Tensor]
Rows = Sequence[Tensor | None] | Tensor  # one for each layer and direction

LARGEST_TABLE = 2**24  # numbers in a table of openness that is made at once in evaluation


class GatedLSTM(TimedWeights):
    """An LSTM stack whose units open as `gate` says; the general form of `GLSTM`, `PLSTM` and `LSTM`.

    Parameters, their names and the gate order i f g o are `torch.nn.LSTM`'s; each layer and direction adds the gate's
    own values, such as `mu_l0` and `sigma_l0_reverse`.

    The gate is asked at (t - origin) / unit, and its parameters are in this relative time, so that they and the
    learning rate may stay near 1 where times are seconds since 1970, or days. All values that are given to the layer
    are in the unit of the times themselves; `gate_in_time` returns the parameters in it. Moments that are given so far
    from 0 that the parameters' type could not hold them get an origin near them.

    Args:
        input_size: D, and the arguments after it up to `dtype`: as for `torch.nn.LSTM`. `proj_size` must be 0.
        gate: How a unit's openness follows from time, such as `Gaussian()`.
        threshold: Units with k <= threshold are exactly closed, in training and in evaluation.
        candidate: What makes the candidate g: "tanh", or "sigmoid", as the paper prints it.
        backend: "auto" takes the fastest for each call; or "native" (C), "cuda" or "reference".
        origin: The moment from which the gate's parameters count.
        unit: The duration that is 1 in the gate's parameters.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device=None,
        dtype=None,
        *,
        gate: Gate,
        threshold: float = 0.0,
        candidate: str = "tanh",
        backend: str = "auto",
        origin: float = 0.0,
        unit: float = 1.0,
    ):
        _check_options(input_size, hidden_size, num_layers, dropout, proj_size, candidate, backend)
        frame = Frame.of(origin, unit)
        super().__init__(input_size, hidden_size, num_layers, bias, bidirectional, gate, device, dtype, frame)
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.proj_size = proj_size
        self.threshold = threshold
        self.segment = None
        self.candidate = candidate
        self.backend = backend
        self._tables = TableCache()
        self._recorded: list[Tensor] | None = None
        self._given: Mapping[str, Tensor] | None = None

    @property
    def threshold(self) -> float:
        """Units with k <= threshold (the paper's v_T) are exactly closed. It may be changed at any time."""
        return self._threshold

    @threshold.setter
    def threshold(self, value: float) -> None:
        self._threshold = check_threshold(value)

    @property
    def segment(self) -> int | None:
        """Steps between the states that training stores; None: it stores all. What lies between is computed again, so
        training takes one more forward pass and far less memory.
        """
        return self._segment

    @segment.setter
    def segment(self, value: int | None) -> None:
        check_segment(value)
        self._segment = value

    @contextmanager
    def recording_openness(self) -> Iterator[list[Tensor]]:
        """Inside it, every call appends the k that it uses to the list: one table for each layer and direction.

        As differentiable tensors, thresholded, with the padding of packed sequences closed; row n belongs to input n,
        in both directions.
        """
        before, self._recorded = self._recorded, []
        try:
            yield self._recorded
        finally:
            self._recorded = before

    @contextmanager
    def using_openness(self, tables: Mapping[str, Tensor]) -> Iterator[None]:
        """Inside it, the gate is not asked: k (T, H) of each layer and direction is the one given, by suffix."""
        before, self._given = self._given, tables
        try:
            yield
        finally:
            self._given = before

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: State | None = None,
        times: Tensor | PackedSequence | None = None,
        *,
        sequence: bool = True,
    ) -> tuple[Tensor | PackedSequence | None, State]:
        """As `torch.nn.LSTM`, plus time; numpy's arrays are taken, too. To feed a sequence in pieces, carry on both
        `hx` and `times`.

        Args:
            input: (T, B, D), or (B, T, D) with batch_first, or (T, D) of one sequence, or packed.
            hx: h and c (layers x directions, B, H) before the first step; None: zeros.
            times: None for 1..T, (T,) for all samples, or one row a sample laid out like the input.
            sequence: False: the output is None. If units are mostly closed, this is much cheaper than to write T x B x
                H.

        Returns:
            The output (T, B, directions x H), laid out like the input, and the state (h_n, c_n) after the last step.
        """
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx, times, sequence)
        if isinstance(times, PackedSequence):
            raise ValueError("times is a PackedSequence but the input is not: pack both or neither")
        x: Tensor = like(input, self.weights("_l0").w_hh)
        self._check_input(x)
        batched = x.dim() == 3
        x = x if batched else x.unsqueeze(1)
        if batched and self.batch_first:
            x = x.transpose(0, 1)
        unwatched = not transforming() and not watched((x,))
        alone = unwatched and self._alone()
        if times is None and unwatched:
            t = range(1, x.shape[0] + 1)
        else:
            t = as_times(times, x.shape[0], x.shape[1], batched and self.batch_first, x.device)
        h, c = self._initial_state(hx, x, batched)
        if not torch.compiler.is_compiling() and self._new and (self.training or self.seen is None):
            self._meet(x, range(1, x.shape[0] + 1) if times is None else t, None)
        if self.unfitted and onnx_export.exporting():
            raise UserError(
                "the layer has not seen any times yet, to which its gate fits mu and sigma: call it once, or its "
                "fit_times, before it is exported"
            )
        output, (h, c) = self._run(x, h, c, t, None, sequence, alone)
        if not batched:
            return None if output is None else output.squeeze(1), (h.squeeze(1), c.squeeze(1))
        if output is not None and self.batch_first:
            output = output.transpose(0, 1)
        return output, (h, c)

    def _forward_packed(self, packed: PackedSequence, hx, times, sequence: bool):
        """After the end of a sequence k is 0, which holds its state, so no other code has to handle lengths."""
        if onnx_export.tracing() or onnx_export.exporting():
            raise UserError(
                "an exported layer takes no PackedSequence, which has no fixed number of steps: give padded sequences "
                "with their lengths to a glstm.SequenceModel, or take the outputs at the last steps yourself"
            )
        order, back = packed.sorted_indices, packed.unsorted_indices
        x, lengths = pad_packed_sequence(PackedSequence(packed.data, packed.batch_sizes))
        if x.shape[-1] != self.input_size:
            raise ShapeError(f"the packed input must have {self.input_size} features, but has {x.shape[-1]}")
        self._check_type(x)
        steps, batch, _ = x.shape
        valid = (torch.arange(steps)[:, None] < lengths).to(x.device)
        if isinstance(times, PackedSequence):
            if not torch.equal(times.batch_sizes, packed.batch_sizes):
                raise ShapeError("times and input are packed from sequences of different lengths")
            times, _ = pad_packed_sequence(times)  # in the caller's order, whatever either was sorted by
            times = times.T if self.batch_first else times
        in_callers_order = valid if back is None else valid[:, back]
        t = as_times(times, steps, batch, self.batch_first, x.device, in_callers_order)
        t = t[:, order] if t.dim() == 2 and order is not None else t
        h, c = self._initial_state(hx, x, batched=True)
        if order is not None:
            h, c = ([None if row is None else row[order] for row in rows] for rows in (h, c))
        if not torch.compiler.is_compiling() and self._new and (self.training or self.seen is None):
            self._meet(x, range(1, steps + 1) if times is None else t, valid)
        alone = not transforming() and not watched((x,)) and self._alone()
        equally_long = bool((lengths == steps).all())
        output, (h, c) = self._run(x, h, c, t, None if equally_long else valid, sequence, alone)
        if back is not None:
            h, c = h[:, back], c[:, back]
            if self._recorded is not None:  # the tables of this call, in the caller's order
                count = self.num_layers * self.num_directions
                self._recorded[-count:] = [k if k.dim() == 2 else k[:, back] for k in self._recorded[-count:]]
        if output is None:
            return None, (h, c)
        data = pack_padded_sequence(output, lengths).data
        return PackedSequence(data, packed.batch_sizes, order, back), (h, c)

    def over_padded(self, x: Tensor, lengths: Tensor, times: Tensor | None = None) -> Tensor:
        """All outputs of padded sequences, of which so many steps (B,) count; in the padding, they mean nothing.

        As of packed sequences, but without a look at the lengths: for torch.export and all that records operations.
        """
        x = x.transpose(0, 1) if self.batch_first else x
        valid = torch.arange(x.shape[0], device=x.device)[:, None] < lengths.to(x.device)
        t = as_times(times, x.shape[0], x.shape[1], self.batch_first, x.device, valid)
        nothing = [None] * (self.num_layers * self.num_directions)
        output, _ = self._run(x, nothing, nothing, t, valid, True, False)
        assert output is not None
        return output.transpose(0, 1) if self.batch_first else output

    def _check_input(self, input: Tensor) -> None:
        if not isinstance(input, Tensor):
            if isinstance(input, fx.Proxy):
                raise TypeError(
                    "torch.fx.symbolic_trace cannot go through this layer, whose checks need the input's shape: use "
                    "torch.export, or a tracer for which glstm's layers are leaf modules"
                )
            raise TypeError(f"the input must be a tensor or a PackedSequence, not {type(input).__name__}")
        if torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]
            return  # a tracer would record every comparison of shapes as an operation on tensors
        if input.dim() not in (2, 3) or input.shape[-1] != self.input_size:
            layout = "(B, T, D)" if self.batch_first else "(T, B, D)"
            raise ShapeError(
                f"the input must be {layout}, or (T, D) for one sequence, with D = {self.input_size}, "
                f"but has shape {tuple(input.shape)}"
            )
        self._check_type(input)

    def _check_type(self, input: Tensor) -> None:
        own = self.weights("_l0").w_hh.dtype
        if input.dtype is own or autocasting(input.device):
            return
        kinds = [str(dtype).removeprefix("torch.") for dtype in (input.dtype, own)]
        methods = {"float64": "double", "float32": "float", "float16": "half"}
        ways = [
            f"{what}.{methods.get(kind, kind)}()" for what, kind in zip(("x", "layer"), reversed(kinds), strict=True)
        ]
        hint = " or ".join(ways if input.is_floating_point() else ways[:1])
        raise TypeError(f"the input is {kinds[0]} and the layer {kinds[1]}: use {hint}")

    def _alone(self) -> bool:
        """Whether nobody will want to know how the result came about, if nothing watches: no gradient, no record."""
        return not (self.training or torch.is_grad_enabled() or self._recorded is not None or self._given is not None)

    def _initial_state(self, hx: State | None, x: Tensor, batched: bool) -> tuple[Rows, Rows]:
        """h and c before the first step, (B, H) for each layer and direction; None for zeros."""
        rows = self.num_layers * self.num_directions
        if hx is None:
            return [None] * rows, [None] * rows
        expected = (rows, x.shape[1], self.hidden_size) if batched else (rows, self.hidden_size)
        if not isinstance(hx, tuple | list) or len(hx) != 2:
            raise ValueError(f"hx must be a pair (h_0, c_0), not {type(hx).__name__}")
        hx = like(hx[0], x), like(hx[1], x)
        for name, state in zip(("h_0", "c_0"), hx, strict=True):
            if not isinstance(state, Tensor):
                raise ValueError(f"{name} must be a tensor of shape {expected}, not {type(state).__name__}")
            if not onnx_export.tracing() and state.shape != expected:
                raise ShapeError(f"{name} must have shape {expected} here, but has {tuple(state.shape)}")
        h, c = hx
        return (h.unbind(), c.unbind()) if batched else (h.unsqueeze(1).unbind(), c.unsqueeze(1).unbind())

    def _run(
        self, x: Tensor, h: Rows, c: Rows, times: Times, valid: Tensor | None, sequence: bool, alone: bool
    ) -> tuple[Tensor | None, State]:
        """Through all layers. In evaluation in pieces of the input, if the table of openness would be very large."""
        per_step = self.hidden_size * (times.shape[1] if isinstance(times, Tensor) and times.dim() == 2 else 1)
        if not alone or self.bidirectional or x.shape[0] * per_step <= LARGEST_TABLE:
            return self._run_layers(x, h, c, times, valid, sequence, alone)
        steps, outputs = max(1, LARGEST_TABLE // per_step), []
        for piece in (slice(start, start + steps) for start in range(0, x.shape[0], steps)):
            own = None if valid is None else valid[piece]
            output, (h, c) = self._run_layers(x[piece], h, c, times[piece], own, sequence, alone)
            outputs.append(output)
        assert isinstance(h, Tensor)
        assert isinstance(c, Tensor)
        return (torch.cat(outputs) if sequence else None), (h, c)

    def _run_layers(
        self, x: Tensor, h0: Rows, c0: Rows, times: Times, valid: Tensor | None, sequence: bool, alone: bool
    ) -> tuple[Tensor | None, State]:
        """All layers and directions over x (T, B, D), each from its own state."""
        finals: list[Made] = []
        outputs: list[Tensor] = []
        # The table of openness need not exist where nobody asks for it.
        plain = valid is None and self._recorded is None and self._given is None
        seen = watched((x,))
        unseen, to_onnx = plain and not seen, plain and seen and onnx_export.exporting()
        for row, (depth, suffix) in enumerate(self.places()):
            if outputs and row % self.num_directions == 0:
                x = _side_by_side(outputs)
                x = dropout(x, self.dropout, self.training) if self.dropout else x
                outputs = []
            backwards = suffix.endswith("_reverse")
            layer = Layer(
                self.gate, self._frame, self._threshold, self.training, times, backwards,
                self.candidate, sequence or depth < self.num_layers - 1, self.backend, self._segment,
            )  # fmt: skip
            weights, given = self.weights(suffix), x.flip(0) if backwards else x
            made = layer.as_onnx(given, weights, h0[row], c0[row]) if to_onnx else None
            if unseen:
                made = layer.run(given, weights, self.gate_values(suffix), h0[row], c0[row])
            if made is None:
                k = self._table(suffix, times, valid, weights.w_hh, alone and x.is_cpu)
                made = layer.by_table(given, weights, k, h0[row], c0[row])
            finals.append(made)
            if made[0] is not None:
                outputs.append(made[0].flip(0) if backwards else made[0])
        if len(finals) == 1:
            state = finals[0][1:]
        else:
            state = torch.cat([one[1] for one in finals]), torch.cat([one[2] for one in finals])
        return (_side_by_side(outputs) if sequence else None), state

    def _table(self, suffix: str, times: Times, valid: Tensor | None, w_hh: Tensor, keep: bool) -> Tensor:
        """k for the operator, which reads a sequence backwards with its times; cached for the next call if `keep`."""
        if keep and valid is None:
            counted = isinstance(times, range)
            key = (self.gate, self._frame, self.threshold, w_hh.dtype, times if counted else None)
            sources = [*self.gate_values(suffix).values(), *(() if counted else (times,))]
            return self._tables.get(suffix, key, sources, lambda: self._table(suffix, times, None, w_hh, False))
        if self._given is not None:
            k = self._given[suffix]
        else:
            k = self.openness_at(suffix, count_up(times, w_hh.device) if isinstance(times, range) else times)
        if valid is not None:
            k = torch.where(valid.unsqueeze(-1), k if k.dim() == 3 else k.unsqueeze(1), 0)
        if self._recorded is not None:
            self._recorded.append(k)
        return k.flip(0) if suffix.endswith("_reverse") else k

    def _slow_forward(self, *input, **named):
        """torch calls this while it traces. Its older exporter to ONNX gives by position what is taken by name only."""
        if len(input) > 3:
            with warnings.catch_warnings(action="ignore"):  # of the tracer
                named["sequence"] = bool(input[3])
        return super()._slow_forward(*input[:3], **named)  # pyright: ignore[reportAttributeAccessIssue]

    def __prepare_scriptable__(self):
        raise TypeError(
            "torch.jit.script does not know glstm's layers: use torch.export, torch.compile or torch.jit.trace"
        )

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
            "threshold": 0.0,
            "candidate": "tanh",
            "backend": "auto",
            "segment": None,
        }
        parts += [f"{name}={getattr(self, name)}" for name, value in defaults.items() if getattr(self, name) != value]
        return ", ".join((*parts, *self._gate_in_words()))


def _side_by_side(outputs: list[Tensor]) -> Tensor:
    """The outputs of the directions of one layer: (T, B, directions x H)."""
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)


def _check_options(input_size, hidden_size, num_layers, dropout, proj_size, candidate, backend) -> None:
    for name, size in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, not {size!r}")
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout <= 1:
        raise ValueError(f"dropout must be a probability between 0 and 1, not {dropout!r}")
    if dropout > 0 and num_layers == 1:
        warnings.warn("dropout acts between layers, so with num_layers=1 it does nothing", stacklevel=4)
    if proj_size != 0:
        raise ValueError(
            f"proj_size must be 0, not {proj_size!r}: a gate freezes unit by unit, and a projected output mixes "
            "open and frozen units, so no output could be frozen"
        )
    check_candidate(candidate)
    check_backend(backend)
