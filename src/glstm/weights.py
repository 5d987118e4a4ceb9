"""The parameters of a gated LSTM: weights with `torch.nn.LSTM`'s names and order, and the gate's values."""

import math
from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from glstm.gates import Gate, Values
from glstm.times import PLAIN, ROUNDED, Frame, Span, has_values

TIME_FRAME = "time_frame"  # in a state dict: origin and unit, in float64, where they are not 0 and 1


class Weights(NamedTuple):
    """Of one layer and direction, with gates in torch's order i f g o."""

    w_ih: Tensor  # (4H, D)
    w_hh: Tensor  # (4H, H)
    bias_ih: Tensor | None  # (4H)
    bias_hh: Tensor | None

    @property
    def bias(self) -> Tensor | None:
        return None if self.bias_ih is None or self.bias_hh is None else self.bias_ih + self.bias_hh


class LSTMWeights(nn.Module):
    """Parameters of every layer and direction, found by the suffix of their names, such as `_l0_reverse`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        bidirectional: bool,
        gate: Gate,
        device=None,
        dtype=None,
        frame: Frame = PLAIN,
    ):
        super().__init__()
        self._frame = self._frame_given = frame
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.bidirectional = bidirectional
        self.gate = gate
        for depth, suffix in self.places():
            inputs = input_size if depth == 0 else hidden_size * self.num_directions
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

    seen: Span | None = None  # the times of the first call, or those that the gate's values were fitted to
    _frame: Frame = PLAIN
    _frame_given: Frame = PLAIN
    _own: frozenset[str] = frozenset()  # names of values that nobody gave, and that the layer fits itself
    _draws: Mapping[str, Tensor] = {}  # of these, what was drawn for them, in float64
    _fitted: bool = True
    _new: bool = False  # until the first call that shows the values of times

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # weights and gate values have names made at run time

    @property
    def num_directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def origin(self) -> float:
        """The moment, in the user's time, from which the gate's parameters count."""
        return self._frame.origin

    @property
    def unit(self) -> float:
        """The duration, in the user's time, that is 1 in the gate's parameters."""
        return self._frame.unit

    def places(self) -> Iterator[tuple[int, str]]:
        """(depth, suffix of its names) of every layer and direction, in the order of torch's states."""
        for depth in range(self.num_layers):
            yield depth, f"_l{depth}"
            if self.bidirectional:
                yield depth, f"_l{depth}_reverse"

    def weights(self, suffix: str) -> Weights:
        """The weights and biases of the layer and direction with this suffix, such as "_l0"."""
        w_ih, w_hh = self._named("weight_ih" + suffix), self._named("weight_hh" + suffix)
        if not self.bias:
            return Weights(w_ih, w_hh, None, None)
        return Weights(w_ih, w_hh, self._named("bias_ih" + suffix), self._named("bias_hh" + suffix))

    def gate_values(self, suffix: str) -> dict[str, Tensor]:
        """The gate's values by name, (H) each, as they are stored: in relative time, (t - origin) / unit."""
        return {name: self._named(name + suffix) for name in self.gate.names}

    def gate_in_time(self, suffix: str) -> dict[str, Tensor]:
        """The gate's values by name, (H) each, in the user's time: copies in float64."""
        stored = self.gate_values(suffix).items()
        return {name: self._outside(name, value.detach().to(torch.float64, copy=True)) for name, value in stored}

    def _inside(self, name: str, value: Tensor) -> Tensor:
        return self._frame.inside(value, name in self.gate.moments) if name in self.gate.in_time else value

    def _outside(self, name: str, value: Tensor) -> Tensor:
        return self._frame.outside(value, name in self.gate.moments) if name in self.gate.in_time else value

    def _named(self, name: str) -> Tensor:
        # Most are found here, without nn.Module's longer search. A buffer or a reparametrised weight is not.
        parameter = self._parameters.get(name)
        return getattr(self, name) if parameter is None else parameter

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """As in `torch.nn.LSTM`: the weights of each layer and direction."""
        return [[part for part in self.weights(suffix) if part is not None] for _, suffix in self.places()]

    @property
    def _flat_weights_names(self) -> list[str]:
        kinds = ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if self.bias else ()))
        return [kind + suffix for _, suffix in self.places() for kind in kinds]

    @property
    def _flat_weights(self) -> list[Tensor]:
        """Used by torch's own tools for pruning and normalising weights."""
        return [weight for weights in self.all_weights for weight in weights]

    def flatten_parameters(self) -> None:
        """Nothing to do; here because code written for `torch.nn.LSTM` calls it."""

    def reset_parameters(self) -> None:
        """torch's own draw for the weights (the same numbers from the same seed), then the gate's."""
        bound = 1 / math.sqrt(self.hidden_size)
        gates = self._gate_names()
        for name, parameter in self.named_parameters():
            if name not in gates:
                nn.init.uniform_(parameter, -bound, bound)
        self._frame = self._frame_given
        wanted = [(name, suffix) for _, suffix in self.places() for name in self.gate.names]
        drawn = {(name, suffix): self.gate.draw(name, self.hidden_size) for name, suffix in wanted}
        self._own, self._fitted, self.seen = frozenset(self.gate.left_open()), not self.gate.left_open(), None
        self._new = bool(self.gate.names)
        self._draws = {name + suffix: value for (name, suffix), value in drawn.items() if name in self._own}
        self._put({at: value for at, value in drawn.items() if at[0] not in self._own})
        with torch.no_grad():
            for name, value in self._draws.items():
                self._named(name).copy_(value)

    def set_gate(self, **values: Values) -> None:
        """Set gate values by hand in every layer and direction, as `set_gate(mu=500, sigma=(20, 60))`.

        Moments and durations are in the unit of the times, whatever `origin` and `unit` are.
        """
        for name in values:
            if name not in self.gate.names:
                known = ", ".join(self.gate.names) or "none"
                raise ValueError(f"this gate has no value {name!r}; it has {known}")
        given = [(name, suffix) for _, suffix in self.places() for name in values]
        self._put({(name, suffix): self.gate.draw(name, self.hidden_size, values[name]) for name, suffix in given})
        self._own -= set(values)

    @property
    def unfitted(self) -> bool:
        """Whether some of the gate's values wait for times that they can be fitted to."""
        return bool(self._own) and not self._fitted

    def _holds_values(self) -> bool:
        """Whether the gate's values are this layer's own tensors, not stand-ins, such as in `functional_call`."""
        named = [(self._parameters.get(name), self._buffers.get(name)) for name in self._gate_names()]
        return all(type(one) is nn.Parameter or type(other) is Tensor for one, other in named)

    def _gate_names(self) -> list[str]:
        return [name + suffix for _, suffix in self.places() for name in self.gate.names]

    def _fit(self, span: Span) -> None:
        """Give the values that nobody gave the places of their random draws in these times."""
        if not self._fitted:  # values that were changed by hand since are nobody's draw any more; 16 bits may round
            changed = {name for name in self._draws if not _close(self._named(name), self._draws[name])}
            self._own -= {name for name in self._own if any(one.startswith(name + "_l") for one in changed)}
            # As they are stored: a layer that was saved and loaded before its first call fits to the same bits.
            self._draws = {name: _copy(self._named(name)) for name in self._draws}
        self._fitted = True
        if self._frame_given == PLAIN and self._own.intersection(self.gate.moments):
            self._reframe(span.frame)
        first, last = span.first, span.first + span.width
        fresh: dict[tuple[str, str], Tensor] = {}
        for _, suffix in self.places():
            given = {name: value.cpu() for name, value in self.gate_in_time(suffix).items() if name not in self._own}
            for name in self._own:
                fresh[name, suffix] = self.gate.fitted(name, self._draws[name + suffix], first, last, given)
        self._put(fresh)

    def _is_unseen(self) -> bool:
        if not all(has_values(self._named(name).detach()) for name in self._gate_names()):
            return False
        unseen = all(self.gate.unseen(self.gate_values(suffix)) for _, suffix in self.places())
        dtype = self.weights("_l0").w_hh.dtype
        return unseen or all(self._named(name).cpu().equal(draw.to(dtype)) for name, draw in self._draws.items())

    def _same_times_as(self, other: "LSTMWeights") -> None:
        """For a layer that gets its values from another one: nothing is left to fit."""
        self._frame, self.seen = other._frame, other.seen
        self._own, self._fitted = frozenset(), True

    def _put(self, fresh: Mapping[tuple[str, str], Tensor]) -> None:
        """Write values that are in the user's time, by name and suffix. Moments that the parameters could not hold
        exactly enough get an origin near them first, unless the user has chosen one."""
        if self._frame_given.origin == 0 and (origin := self._better_origin(fresh)) is not None:
            self._reframe(Frame(origin, self.unit))
        with torch.no_grad():
            for (name, suffix), value in fresh.items():
                self._named(name + suffix).copy_(self._inside(name, value))

    def _better_origin(self, fresh: Mapping[tuple[str, str], Tensor]) -> float | None:
        moments = [value for (name, _), value in fresh.items() if name in self.gate.moments]
        if not moments or not all(map(has_values, fresh.values())):
            return None
        low, high = (float(torch.cat(moments).aminmax()[side]) for side in (0, 1))
        own = self._named(self.gate.moments[0] + "_l0")
        rounding = torch.finfo(torch.promote_types(own.dtype, torch.float32)).eps
        far = max(abs(low - self.origin), abs(high - self.origin)) * rounding
        known = {name: value for (name, _), value in fresh.items()}
        if not own.is_meta:
            known = self.gate_in_time("_l0") | known
        durations = [name for name in self.gate.in_time if name not in (*self.gate.moments, *self._own)]
        widths = [float(known[name].abs().mean()) for name in durations if name in known]
        return float(round((low + high) / 2)) if far > ROUNDED * min(widths, default=high - low or 1.0) else None

    @torch.no_grad()
    def _reframe(self, frame: Frame, replaced: Container[str] = ()) -> None:
        """The same values in another frame; those named in `replaced` will be written anyway."""
        if frame == self._frame:
            return
        places = [suffix for _, suffix in self.places()]
        before = {suffix: self.gate_in_time(suffix) for suffix in places}
        self._frame = frame
        for suffix in places:
            for name, value in self.gate_values(suffix).items():
                if name in self.gate.in_time and name + suffix not in replaced:
                    value.copy_(self._inside(name, before[suffix][name]))

    def freeze_gate(self, frozen: bool = True) -> None:
        """Keep the gate's values as they are while the weights train; `freeze_gate(False)` lets them learn again."""
        for parameter in self.gate_parameters():
            parameter.requires_grad_(not frozen)

    def gate_parameters(self) -> Iterator[nn.Parameter]:
        """The gate's own parameters, such as mu and sigma, of every layer and direction."""
        for _, suffix in self.places():
            for value in self.gate_values(suffix).values():
                if isinstance(value, nn.Parameter):
                    yield value

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False):
        missing = {name for name in self.state_dict() if name not in state_dict} - {TIME_FRAME}
        gates = set(self._gate_names())
        if strict and gates and missing == gates:
            raise RuntimeError(
                f"these are weights of an LSTM without gates, so {' and '.join(self.gate.names)} are missing: make the "
                "layer with glstm.from_lstm, or load with strict=False to leave its gates as they are"
            )
        return super().load_state_dict(state_dict, strict, assign)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._frame != PLAIN:
            destination[prefix + TIME_FRAME] = torch.tensor(self._frame, dtype=torch.float64, device="cpu")

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ) -> None:
        """Values come with their frame. Values without one are in the user's time."""
        key = prefix + TIME_FRAME
        if loaded := [name for name in self._gate_names() if prefix + name in state_dict]:
            frame = state_dict.get(key)
            self._reframe(PLAIN if frame is None else Frame.of(*frame.tolist()), loaded)
            self._own -= {name for name in self._own if name + "_l0" in loaded}
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if loaded and self._draws and self._frame == self._frame_given and self._is_unseen():
            # A state from before the first call: as then, the values wait for times.
            self._own, self._fitted, self.seen = frozenset(self.gate.left_open()), False, None
            self._draws = {name: _copy(self._named(name)) for name in self._draws}
            self._new = True
        if key in unexpected_keys:
            unexpected_keys.remove(key)


def _copy(value: Tensor) -> Tensor:
    return value.detach().to("cpu", torch.float64, copy=True)


def _close(value: Tensor, draw: Tensor) -> bool:
    """Whether it is what was drawn, but for rounding to 16 bits."""
    return has_values(value.detach()) and torch.allclose(_copy(value), draw, rtol=4e-3)
