"""The parameters of a gated LSTM: weights with `torch.nn.LSTM`'s names and order, and the gate's values."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from glstm.gates import Gate, Values


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
    ):
        super().__init__()
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

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # weights and gate values have names made at run time

    @property
    def num_directions(self) -> int:
        return 2 if self.bidirectional else 1

    def places(self) -> Iterator[tuple[int, str]]:
        """(depth, suffix of its names) of every layer and direction, in the order of torch's states."""
        for depth in range(self.num_layers):
            yield depth, f"_l{depth}"
            if self.bidirectional:
                yield depth, f"_l{depth}_reverse"

    def weights(self, suffix: str) -> Weights:
        w_ih, w_hh = self._named("weight_ih" + suffix), self._named("weight_hh" + suffix)
        if not self.bias:
            return Weights(w_ih, w_hh, None, None)
        return Weights(w_ih, w_hh, self._named("bias_ih" + suffix), self._named("bias_hh" + suffix))

    def gate_values(self, suffix: str) -> dict[str, Tensor]:
        """The gate's values by name, (H) each."""
        return {name: self._named(name + suffix) for name in self.gate.names}

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
        gates = {f"{name}{suffix}" for _, suffix in self.places() for name in self.gate.names}
        for name, parameter in self.named_parameters():
            if name not in gates:
                nn.init.uniform_(parameter, -bound, bound)
        with torch.no_grad():
            for _, suffix in self.places():
                for name, value in self.gate_values(suffix).items():
                    value.copy_(self.gate.draw(name, self.hidden_size))

    def set_gate(self, **values: Values) -> None:
        """Set gate values by hand in every layer and direction, as `set_gate(mu=500, sigma=(20, 60))`."""
        for name in values:
            if name not in self.gate.names:
                known = ", ".join(self.gate.names) or "none"
                raise ValueError(f"this gate has no value {name!r}; it has {known}")
        with torch.no_grad():
            for _, suffix in self.places():
                for name, value in values.items():
                    self.gate_values(suffix)[name].copy_(self.gate.draw(name, self.hidden_size, value))

    def freeze_gate(self, frozen: bool = True) -> None:
        """Keep the gate's values as they are while the weights train; `freeze_gate(False)` lets them learn again."""
        for parameter in self.gate_parameters():
            parameter.requires_grad_(not frozen)

    def gate_parameters(self) -> Iterator[nn.Parameter]:
        for _, suffix in self.places():
            for value in self.gate_values(suffix).values():
                if isinstance(value, nn.Parameter):
                    yield value

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False):
        missing = {name for name in self.state_dict() if name not in state_dict}
        gates = {name + suffix for _, suffix in self.places() for name in self.gate.names}
        if strict and gates and missing == gates:
            raise RuntimeError(
                f"these are weights of an LSTM without gates, so {' and '.join(self.gate.names)} are missing: make the "
                "layer with glstm.from_lstm, or load with strict=False to leave its gates as they are"
            )
        return super().load_state_dict(state_dict, strict, assign)
