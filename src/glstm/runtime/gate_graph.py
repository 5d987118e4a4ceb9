"""Any gate as ONNX: its `openness` is traced, and each operation becomes one or a few operations of ONNX.

So a gate is one class with torch's operations, and needs no code for ONNX.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from glstm.errors import UserError
from glstm.extras import needed_by
from glstm.gated import GatedLSTM
from glstm.ops.onnx_graph import Graph

with needed_by("exporting ONNX"):
    from onnx import TensorProto

TRACED_STEPS = 5  # any number except 1 and a layer's size: the traced graph must not depend on it
BOOL = TensorProto.BOOL
NARROW = ("Erf",)  # what ONNX Runtime has for 32 bits only


def openness_of(graph: Graph, layer: GatedLSTM, suffix: str, times: str, *, wide: bool = False) -> str:
    """times (T, 1) -> k (T, H), thresholded; of times (T, B, 1), (T, B, H).

    `wide`: times are in double precision. As in the layer, gates then compute in it, too, but for times relative to an
    origin, which have 32 bits.
    """
    values = {name: value.detach().cpu().float() for name, value in layer.gate_values(suffix).items()}

    def openness(times: Tensor) -> Tensor:
        return layer.gate.openness(times, values, False)

    wide = wide and is_plain(layer)
    with torch.no_grad():
        moments = torch.arange(1, TRACED_STEPS + 1, dtype=torch.float64 if wide else torch.float32)
        traced = make_fx(openness)(moments)
    k = _Translation(graph, type(layer.gate).__name__, wide).run(traced, _relative(graph, layer, times))
    kind = np.float64 if wide else np.float32
    ones = graph.constant(np.ones((1, layer.hidden_size)), kind)
    k = graph.add("Mul", k, ones)  # a gate whose units do not differ has one column for all
    if layer.threshold > 0:
        is_open = graph.add("Greater", k, graph.constant(layer.threshold, kind))
        k = graph.add("Where", is_open, k, graph.constant(0.0, kind))
    return graph.add("Cast", k, to=TensorProto.FLOAT) if wide else k


def is_plain(layer: GatedLSTM) -> bool:
    """Whether gates compute with times as they are given: otherwise 32 bits might round them."""
    return (layer.origin, layer.unit) == (0, 1)


def _relative(graph: Graph, layer: GatedLSTM, times: str) -> str:
    """(t - origin) / unit in double precision, as the layer computes it."""
    if is_plain(layer):
        return times
    wide = graph.add("Cast", times, to=TensorProto.DOUBLE)
    since = graph.add("Sub", wide, graph.constant(layer.origin, np.float64))
    return graph.add("Cast", graph.add("Div", since, graph.constant(layer.unit, np.float64)), to=TensorProto.FLOAT)


class _Translation:
    """From a traced function of times (T,) to nodes of a graph in which they are (T, 1)."""

    def __init__(self, graph: Graph, gate: str, wide: bool):
        self.graph, self.gate, self.wide = graph, gate, wide
        self.kind, self.onnx_kind = (np.float64, TensorProto.DOUBLE) if wide else (np.float32, TensorProto.FLOAT)

    def run(self, traced: torch.fx.GraphModule, times: str) -> str:
        known: dict[torch.fx.Node, Any] = {}
        for node in traced.graph.nodes:
            match node.op:
                case "placeholder":
                    known[node] = times
                case "get_attr":
                    known[node] = self._constant(getattr(traced, node.target))
                case "call_function":
                    known[node] = self._call(node, [self._value(known, one) for one in node.args])
                case "output":
                    result = node.args[0]
                    return known[result[0] if isinstance(result, tuple | list) else result]
        raise AssertionError("a traced function has an output")

    def _value(self, known: dict[torch.fx.Node, Any], argument: Any) -> Any:
        return known[argument] if isinstance(argument, torch.fx.Node) else argument

    def _constant(self, value: Tensor) -> str:
        kind = np.bool_ if value.dtype == torch.bool else self.kind
        return self.graph.constant(value.numpy(force=True), kind)

    def _number(self, value: Any) -> str:
        """A name is returned as it is; a number becomes a constant."""
        return value if isinstance(value, str) else self.graph.constant(float(value), self.kind)

    def _as_number(self, truth: str) -> str:
        return self.graph.add("Cast", truth, to=self.onnx_kind)

    def _unary(self, operator: str, value: str) -> str:
        if not self.wide or operator not in NARROW:
            return self.graph.add(operator, value)
        narrow = self.graph.add(operator, self.graph.add("Cast", value, to=TensorProto.FLOAT))
        return self.graph.add("Cast", narrow, to=TensorProto.DOUBLE)

    def _call(self, node: torch.fx.Node, arguments: list[Any]) -> str:
        name = str(node.target).removeprefix("aten.").split(".")[0].rstrip("_")
        if name in ARITHMETIC:  # where torch takes a truth value for 0 or 1
            arguments = [self._as_number(one) if _is_bool(of) else one for one, of in zip(arguments, node.args)]
        if name in UNARY:
            return self._unary(UNARY[name], self._number(arguments[0]))
        if name in BINARY and not node.kwargs:
            return self.graph.add(BINARY[name], *map(self._number, arguments))
        make = OTHERS.get(name)
        if make is None:
            raise UserError(
                f"the gate {self.gate} cannot be written as ONNX: it computes with torch's {name}, for which there is "
                "no translation; exported C and streams take any gate"
            )
        return make(self, node, arguments)


# Operations that ONNX has under another name.
UNARY = {
    "neg": "Neg", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "abs": "Abs", "sin": "Sin", "cos": "Cos", "tanh": "Tanh",
    "sigmoid": "Sigmoid", "floor": "Floor", "ceil": "Ceil", "round": "Round", "relu": "Relu", "sign": "Sign",
    "logical_not": "Not", "bitwise_not": "Not", "reciprocal": "Reciprocal", "erf": "Erf",
}  # fmt: skip
BINARY = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "maximum": "Max", "minimum": "Min", "lt": "Less",
    "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "eq": "Equal", "logical_and": "And",
    "bitwise_and": "And", "logical_or": "Or", "bitwise_or": "Or",
}  # fmt: skip
ARITHMETIC = ("add", "sub", "mul", "div", "rsub")


def _is_bool(argument: Any) -> bool:
    value = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else None
    return isinstance(value, Tensor) and value.dtype == torch.bool


def _unchanged(at: _Translation, node: torch.fx.Node, arguments: list[Any]) -> str:
    """Also for operations that add an axis for units: in the graph the times have that axis already."""
    return arguments[0]


def _where(at: _Translation, node: torch.fx.Node, arguments: list[Any]) -> str:
    condition, yes, no = arguments
    return at.graph.add("Where", condition, at._number(yes), at._number(no))


def _remainder(at: _Translation, node: torch.fx.Node, arguments: list[Any]) -> str:
    """The result has the divisor's sign, as in torch. ONNX's Mod is exact, but has the dividend's sign."""
    value, divisor = (at._number(one) for one in arguments)
    rest, zero = at.graph.add("Mod", value, divisor, fmod=1), at._number(0)
    opposite = at.graph.add("Less", at.graph.add("Mul", rest, divisor), zero)
    return at.graph.add("Where", opposite, at.graph.add("Add", rest, divisor), rest)


def _clamp(at: _Translation, node: torch.fx.Node, arguments: list[Any]) -> str:
    value, low, high = [*arguments, None, None][:3]
    low, high = node.kwargs.get("min", low), node.kwargs.get("max", high)
    for operator, bound in (("Max", low), ("Min", high)):
        value = value if bound is None else at.graph.add(operator, value, at._number(bound))
    return value


def _clamp_max(at: _Translation, node: torch.fx.Node, arguments: list[Any]) -> str:
    return at.graph.add("Min", *map(at._number, arguments))


def _threshold(at: _Translation, node: torch.fx.Node, arguments: list[Any]) -> str:
    value, limit, instead = map(at._number, arguments)
    return at.graph.add("Where", at.graph.add("LessOrEqual", value, limit), instead, value)


def _square(at: _Translation, node: torch.fx.Node, arguments: list[Any]) -> str:
    return at.graph.add("Mul", arguments[0], arguments[0])


def _pow(at: _Translation, node: torch.fx.Node, arguments: list[Any]) -> str:
    return _square(at, node, arguments) if arguments[1] == 2 else at.graph.add("Pow", *map(at._number, arguments))


def _rsub(at: _Translation, node: torch.fx.Node, arguments: list[Any]) -> str:
    return at.graph.add("Sub", at._number(arguments[1]), at._number(arguments[0]))


def _cast(at: _Translation, node: torch.fx.Node, arguments: list[Any]) -> str:
    dtype = node.kwargs.get("dtype", arguments[1] if len(arguments) > 1 else torch.float32)
    return at.graph.add("Cast", arguments[0], to=BOOL if dtype == torch.bool else at.onnx_kind)


def _number(at: _Translation, node: torch.fx.Node, arguments: list[Any]) -> str:
    """The last argument is the number: of `full`, the shape comes before it."""
    return at._number(arguments[-1])


def _filled(value: float) -> Callable[[_Translation, torch.fx.Node, list[Any]], str]:
    def like(at: _Translation, node: torch.fx.Node, arguments: list[Any]) -> str:
        zero = at.graph.add("Mul", arguments[0], at._number(0))  # as many as there are of the other
        return at.graph.add("Add", zero, at._number(value))

    return like


OTHERS: dict[str, Callable[[_Translation, torch.fx.Node, list[Any]], str]] = {
    "where": _where, "remainder": _remainder, "clamp": _clamp, "clamp_min": _clamp, "clamp_max": _clamp_max,
    "square": _square, "pow": _pow, "threshold": _threshold,
    "rsub": _rsub, "to": _cast, "_to_copy": _cast, "unsqueeze": _unchanged, "view": _unchanged, "detach": _unchanged,
    "clone": _unchanged, "expand": _unchanged, "alias": _unchanged, "lift_fresh_copy": _unchanged,
    "ones_like": _filled(1.0), "zeros_like": _filled(0.0), "scalar_tensor": _number, "full": _number,
}  # fmt: skip
