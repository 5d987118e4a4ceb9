"""The layer behind all others: an LSTM stack, drop-in for `torch.nn.LSTM`, whose units open as a gate says.

Shapes: T steps, B samples, D inputs, H units.
"""

import math
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from glstm.gates import Gate, Values
from glstm.kept import Kept
from glstm.ops import BACKENDS, CANDIDATES
from glstm.passes import State, run_layers, table
from glstm.times import as_times, count_up

LARGEST_TABLE = 2**24  # numbers in a table of openness that is made at once in evaluation


class GatedLSTM(nn.Module):
    """An LSTM stack whose units open as `gate` says; the general form of `GLSTM`, `PLSTM` and `LSTM`.

    Parameters, their names and the gate order i f g o are `torch.nn.LSTM`'s; each layer and direction adds the
    gate's own values, such as `mu_l0` and `sigma_l0_reverse`. `threshold` (v_T) may be changed at any time:
    units with k <= threshold are exactly closed, in training and in evaluation alike. `segment` may be set, too:
    training then keeps the state only every so many steps, for one more forward pass and far less memory.
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
    ):
        super().__init__()
        _check_options(input_size, hidden_size, num_layers, dropout, proj_size, candidate, backend)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self.gate = gate
        self.threshold = threshold
        self.segment = None
        self.candidate = candidate
        self.backend = backend

        self._kept = Kept()

        width = hidden_size * self.num_directions
        for layer, suffix in self.places():
            inputs = input_size if layer == 0 else width
            shapes = {"weight_ih": (4 * hidden_size, inputs), "weight_hh": (4 * hidden_size, hidden_size)}
            if bias:
                shapes |= {"bias_ih": (4 * hidden_size,), "bias_hh": (4 * hidden_size,)}
            for name, shape in shapes.items():
                empty = torch.empty(shape, device=device, dtype=dtype)
                self.register_parameter(f"{name}{suffix}", nn.Parameter(empty))
        for _, suffix in self.places():
            for name in gate.names:
                empty = torch.empty(hidden_size, device=device, dtype=dtype)
                if gate.learned:
                    self.register_parameter(f"{name}{suffix}", nn.Parameter(empty))
                else:
                    self.register_buffer(f"{name}{suffix}", empty)
        self.reset_parameters()

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # weights and gate values have names made at run time

    @property
    def threshold(self) -> float:
        return self._threshold

    @threshold.setter
    def threshold(self, value: float) -> None:
        if not isinstance(value, int | float) or not 0 <= value < 1:
            raise ValueError(f"threshold must be at least 0 and below 1, not {value!r}")
        self._threshold = float(value)

    @property
    def segment(self) -> int | None:
        return self._segment

    @segment.setter
    def segment(self, value: int | None) -> None:
        if value is not None and not (isinstance(value, int) and value >= 1):
            raise ValueError(f"segment must be a number of steps, at least 1, or None for all at once, not {value!r}")
        self._segment = value

    @property
    def num_directions(self) -> int:
        return 2 if self.bidirectional else 1

    def places(self) -> Iterator[tuple[int, str]]:
        """(layer, name suffix) of every layer and direction, in the order of torch's states."""
        for layer in range(self.num_layers):
            yield layer, f"_l{layer}"
            if self.bidirectional:
                yield layer, f"_l{layer}_reverse"

    def _get(self, name: str, suffix: str) -> Tensor:
        return getattr(self, f"{name}{suffix}")

    def _gate_values(self, suffix: str) -> dict[str, Tensor]:
        return {name: self._get(name, suffix) for name in self.gate.names}

    def reset_parameters(self) -> None:
        """torch's own draw for the weights (the same numbers from the same seed), then the gate's."""
        bound = 1 / math.sqrt(self.hidden_size)
        gates = {f"{name}{suffix}" for _, suffix in self.places() for name in self.gate.names}
        for name, parameter in self.named_parameters():
            if name not in gates:
                nn.init.uniform_(parameter, -bound, bound)
        with torch.no_grad():
            for _, suffix in self.places():
                for name in self.gate.names:
                    self._get(name, suffix).copy_(self.gate.draw(name, self.hidden_size))

    def set_gate(self, **values: Values) -> None:
        """Set gate values by hand in every layer and direction, as `set_gate(mu=500, sigma=(20, 60))`."""
        for name in values:
            if name not in self.gate.names:
                known = ", ".join(self.gate.names) or "none"
                raise ValueError(f"this gate has no value {name!r}; it has {known}")
        with torch.no_grad():
            for _, suffix in self.places():
                for name, value in values.items():
                    self._get(name, suffix).copy_(self.gate.draw(name, self.hidden_size, value))

    def freeze_gate(self, frozen: bool = True) -> None:
        """Keep the gate's values as they are while the weights train; `freeze_gate(False)` lets them learn again."""
        for parameter in self.gate_parameters():
            parameter.requires_grad_(not frozen)

    def gate_parameters(self) -> Iterator[nn.Parameter]:
        for _, suffix in self.places():
            for value in self._gate_values(suffix).values():
                if isinstance(value, nn.Parameter):
                    yield value

    def flatten_parameters(self) -> None:
        """Nothing to do; here because code written for `torch.nn.LSTM` calls it."""

    def openness(self, times: Tensor | int) -> Tensor:
        """How open each unit is, thresholded: (layers x directions, T, H); a number T stands for times 1..T.

        With times per sample, laid out like the input: (layers x directions, T, B, H).
        """
        device = next(self.parameters()).device
        times = torch.as_tensor(times)
        if times.dim() == 0:
            times = count_up(int(times), device)
        steps, batch = (times.T if self.batch_first else times).shape if times.dim() == 2 else (len(times), 0)
        times = as_times(times, steps, batch, self.batch_first, device)
        return torch.stack([self._openness(suffix, times) for _, suffix in self.places()])

    def _openness(self, suffix: str, times: Tensor) -> Tensor:
        """k of one layer and direction; in evaluation without gradients it is kept."""
        if self._recording():
            return self._fresh_openness(suffix, times)
        inputs = (times, *self._gate_values(suffix).values())
        dtype = self._get("weight_hh", suffix).dtype
        return self._kept.table(suffix, self._options(), inputs, dtype, lambda: self._fresh_openness(suffix, times))

    def _recording(self) -> bool:
        """Whether somebody will want to know how a result came about: nothing kept may stand in for it then."""
        tracing = torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
        return self.training or torch.is_grad_enabled() or torch.compiler.is_compiling() or tracing

    def _options(self) -> tuple:
        """Besides times, weights and gate values, what a call depends on."""
        return self.gate, self.threshold, self.candidate, self.backend

    def _fresh_openness(self, suffix: str, times: Tensor) -> Tensor:
        values, w_hh = self._gate_values(suffix), self._get("weight_hh", suffix)
        return table(self.gate, times, values, self.threshold, self.training, w_hh)

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: State | None = None,
        times: Tensor | PackedSequence | None = None,
        *,
        sequence: bool = True,
    ) -> tuple[Tensor | PackedSequence | None, State]:
        """As `torch.nn.LSTM`, plus time.

        times: None for 1..T, (T,) shared, or one row a sample laid out like the input. To feed a sequence in
        pieces, carry on both `hx` and `times`. With `sequence=False` the output is None: only the final
        state is computed for the caller, which for mostly closed units is much cheaper than writing T x B x H.
        """
        if again := times is None and self._may_be_made_again(input):
            assert isinstance(input, Tensor)
            if (result := self._forward_again(input, hx, sequence)) is not None:
                return result
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx, times, sequence)
        if isinstance(times, PackedSequence):
            raise ValueError("times is a PackedSequence but the input is not: pack both or neither")
        if not isinstance(input, Tensor):
            raise TypeError(f"the input must be a tensor or a PackedSequence, not {type(input).__name__}")
        if input.dim() not in (2, 3) or input.shape[-1] != self.input_size:
            layout = "(B, T, D)" if self.batch_first else "(T, B, D)"
            raise ValueError(
                f"the input must be {layout}, or (T, D) for one sequence, with D = {self.input_size}, "
                f"but has shape {tuple(input.shape)}"
            )
        batched = input.dim() == 3
        x = input if batched else input.unsqueeze(1)
        if batched and self.batch_first:
            x = x.transpose(0, 1)
        t = as_times(times, x.shape[0], x.shape[1], batched and self.batch_first, x.device)
        h, c = self._initial_state(hx, x, batched)
        output, (h, c) = self._run_in_pieces(x, h, c, t, None, sequence)
        if again:
            self._prepare(x, t)
        if not batched:
            return None if output is None else output.squeeze(1), (h.squeeze(1), c.squeeze(1))
        if output is not None and self.batch_first:
            output = output.transpose(0, 1)
        return output, (h, c)

    def _may_be_made_again(self, input: object) -> bool:
        """One layer in evaluation, at times 1..T: the call that is worth preparing."""
        batch = type(input) is Tensor and input.dim() == 3
        return batch and self.num_layers * self.num_directions == 1 and not self._recording()

    def _forward_again(self, x: Tensor, hx: State | None, sequence: bool):
        """The same call as before, on other values, without looking everything up again; or None."""
        result = self._kept.again(
            self._options(), x.transpose(0, 1).contiguous() if self.batch_first else x, hx, sequence
        )
        if result is None:
            return None
        h, h_n, c_n = result
        return (h.transpose(0, 1) if h is not None and self.batch_first else h), (h_n, c_n)

    def _prepare(self, x: Tensor, times: Tensor) -> None:
        """After a call in evaluation: look up what the next one like it will need."""
        biases = ("bias_ih", "bias_hh") if self.bias else ()
        names = [f"{name}_l0" for name in ("weight_ih", "weight_hh", *biases, *self.gate.names)]
        if self.backend != "reference":
            self._kept.prepare(self, "_l0", names, x, times)

    def _forward_packed(self, packed: PackedSequence, hx, times, sequence: bool):
        """Past its end a sequence is simply closed: zeros in k hold its state, and no other code knows of lengths."""
        order, back = packed.sorted_indices, packed.unsorted_indices
        x, lengths = pad_packed_sequence(PackedSequence(packed.data, packed.batch_sizes))
        if x.shape[-1] != self.input_size:
            raise ValueError(f"the packed input must have {self.input_size} features, but has {x.shape[-1]}")
        steps, batch, _ = x.shape
        valid = (torch.arange(steps)[:, None] < lengths).to(x.device)
        if isinstance(times, PackedSequence):
            if not torch.equal(times.batch_sizes, packed.batch_sizes):
                raise ValueError("times and input are packed from sequences of different lengths")
            times, _ = pad_packed_sequence(times)  # in the caller's order, whatever either was sorted by
            times = times.T if self.batch_first else times
        in_callers_order = valid if back is None else valid[:, back]
        t = as_times(times, steps, batch, self.batch_first, x.device, in_callers_order)
        t = t[:, order] if t.dim() == 2 and order is not None else t
        h, c = self._initial_state(hx, x, batched=True)
        if order is not None:
            h, c = h[:, order], c[:, order]
        output, (h, c) = self._run_in_pieces(x, h, c, t, None if valid.all() else valid, sequence)
        if back is not None:
            h, c = h[:, back], c[:, back]
        if output is None:
            return None, (h, c)
        data = pack_padded_sequence(output, lengths).data
        return PackedSequence(data, packed.batch_sizes, order, back), (h, c)

    def _initial_state(self, hx: State | None, x: Tensor, batched: bool) -> State:
        rows = self.num_layers * self.num_directions
        if hx is None:
            zeros = x.new_zeros(rows, x.shape[1], self.hidden_size, dtype=self._get("weight_hh", "_l0").dtype)
            return zeros, zeros
        expected = (rows, x.shape[1], self.hidden_size) if batched else (rows, self.hidden_size)
        if not isinstance(hx, tuple | list) or len(hx) != 2:
            raise ValueError(f"hx must be a pair (h_0, c_0), not {type(hx).__name__}")
        for name, state in zip(("h_0", "c_0"), hx, strict=True):
            if not isinstance(state, Tensor):
                raise ValueError(f"{name} must be a tensor of shape {expected}, not {type(state).__name__}")
            if state.shape != expected:
                raise ValueError(f"{name} must have shape {expected} here, but has {tuple(state.shape)}")
        h, c = hx
        return (h, c) if batched else (h.unsqueeze(1), c.unsqueeze(1))

    def _run_in_pieces(self, x: Tensor, h: Tensor, c: Tensor, times: Tensor, valid: Tensor | None, sequence: bool):
        """In evaluation, a table of openness that would be very large is made and used piece by piece."""
        if self.bidirectional or self._recording():
            return self._run(x, h, c, times, valid, sequence)
        steps = max(1, LARGEST_TABLE * len(times) // max(1, times.numel() * self.hidden_size))
        if len(x) <= steps:
            return self._run(x, h, c, times, valid, sequence)
        outputs = []
        for part in (slice(start, start + steps) for start in range(0, len(x), steps)):
            valid_part = None if valid is None else valid[part]
            output, (h, c) = self._run(x[part], h, c, times[part], valid_part, sequence)
            outputs.append(output)
        return (torch.cat(outputs) if sequence else None), (h, c)

    def _run(self, x: Tensor, h0: Tensor, c0: Tensor, times: Tensor, valid: Tensor | None, sequence: bool):
        def openness(suffix: str) -> Tensor:
            k = self._openness(suffix, times)
            return k if valid is None else torch.where(valid.unsqueeze(-1), k if k.dim() == 3 else k.unsqueeze(1), 0)

        return run_layers(self, self._get, openness, x, h0, c0, sequence)

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
        return ", ".join(parts)


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
    if candidate not in CANDIDATES:
        raise ValueError(f"candidate must be one of {', '.join(CANDIDATES)}, not {candidate!r}")
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, not {backend!r}")
