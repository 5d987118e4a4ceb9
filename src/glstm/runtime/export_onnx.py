"""A network as ONNX: whole sequences of any length and batch, or one step with its state given and taken.

The recurrence is a Scan, whose length is that of its input: a Python loop, traced, would freeze it. Openness is
computed in the graph from the time of each step, so a model knows the gates, not a table of them.
"""

from typing import Any

import numpy as np
from torch import nn

import glstm
from glstm.extras import needed_by
from glstm.gated import GatedLSTM
from glstm.gates import Clockwork, Gaussian, Open, Phased
from glstm.models import SequenceModel
from glstm.runtime.plan import linear_parts

with needed_by("exporting ONNX"):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

OPSET = 18
IR_VERSION = 9  # the oldest that this opset goes with: more runtimes read it


class _Graph:
    """Nodes and constants as they are added; every `add` returns the name of what the node makes."""

    def __init__(self, prefix: str = "", outer: "_Graph | None" = None):
        self.nodes: list[onnx.NodeProto] = []
        self.constants = outer.constants if outer else []  # a subgraph sees what is around it
        self.prefix, self.outer = prefix, outer

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        number = len(self.nodes)
        names = [f"{self.prefix}{operator.lower()}{number}_{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any, dtype: type = np.float32) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def named(self, value: str, name: str) -> None:
        """The last step before an output: that is how it gets its name."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))


def export_whole(model: SequenceModel) -> onnx.ModelProto:
    """x (T, B, D) -> y (B, outputs), as the model's forward; with batch_first, x is (B, T, D)."""
    layer, graph = model.layer, _Graph()
    steps_first = not layer.batch_first
    x = "x" if steps_first else graph.add("Transpose", "x", perm=[1, 0, 2])
    shape = graph.add("Shape", x)
    steps, batch = (graph.add("Gather", shape, graph.constant(axis, np.int64), axis=0) for axis in (0, 1))
    one = graph.constant(1, np.int64)
    times = graph.add("Range", one, graph.add("Add", steps, one), one)
    times = graph.add("Unsqueeze", graph.add("Cast", times, to=TensorProto.FLOAT), graph.constant([1], np.int64))
    hidden = graph.constant([layer.hidden_size], np.int64)
    flat_batch = graph.add("Reshape", batch, graph.constant([1], np.int64))
    zeros = graph.add("ConstantOfShape", graph.add("Concat", flat_batch, hidden, axis=0), value=_zero())
    finals: list[str] = []
    for depth in range(layer.num_layers):
        directions = [suffix for level, suffix in layer.places() if level == depth]
        runs = [_scan(graph, layer, suffix, x, times, zeros) for suffix in directions]
        finals = [h_n for h_n, _ in runs]
        x = _side_by_side(graph, [h for _, h in runs])
    graph.named(_head(graph, model, _side_by_side(graph, finals)), "y")
    layout = ["steps", "batch"] if steps_first else ["batch", "steps"]
    return _model(
        graph,
        [_value("x", [*layout, layer.input_size])],
        [_value("y", ["batch", _outputs(model)])],
        "A gated LSTM on whole sequences.",
    )


def export_step(model: SequenceModel) -> onnx.ModelProto:
    """x (B, D), t (1), h and c (layers, B, H) -> y (B, outputs), and h and c after the step.

    t is the time of the step, 1 for the first; h and c are zeros before it.
    """
    layer, graph = model.layer, _Graph()
    if layer.bidirectional:
        raise ValueError("a bidirectional layer reads a sequence from both ends, so there is no single step to export")
    x, states = "x", []
    times = graph.add("Reshape", "t", graph.constant([1, 1], np.int64))
    for depth, suffix in layer.places():
        index = graph.constant(depth, np.int64)
        h, c = (graph.add("Gather", name, index, axis=0) for name in ("h", "c"))
        sums = graph.add("Add", _input_sums(graph, layer, suffix, x), _product(graph, layer, "weight_hh", suffix, h))
        x, c = _cell(graph, layer, sums, _openness(graph, layer, suffix, times), h, c)
        states.append((x, c))
    front = graph.constant([0], np.int64)
    for place, name in enumerate(("h_next", "c_next")):
        rows = [graph.add("Unsqueeze", state[place], front) for state in states]
        graph.named(graph.add("Concat", *rows, axis=0), name)
    graph.named(_head(graph, model, x), "y")
    state = [layer.num_layers, "batch", layer.hidden_size]
    return _model(
        graph,
        [_value("x", ["batch", layer.input_size]), _value("t", [1]), _value("h", state), _value("c", state)],
        [_value("y", ["batch", _outputs(model)]), _value("h_next", state), _value("c_next", state)],
        "One step of a gated LSTM: give h_next and c_next back as h and c.",
    )


def _scan(graph: _Graph, layer: GatedLSTM, suffix: str, x: str, times: str, zeros: str) -> tuple[str, str]:
    """The last h (B, H) and all h (T, B, H) of one layer and direction."""
    sums, k = _input_sums(graph, layer, suffix, x), _openness(graph, layer, suffix, times)
    body = _Graph(f"in{suffix}_", graph)
    h, c, read, k_t = (body.prefix + name for name in ("h", "c", "read", "k"))
    total = body.add("Add", read, _product(body, layer, "weight_hh", suffix, h))
    h_new, c_new = _cell(body, layer, total, k_t, h, c)
    outputs = [body.prefix + name for name in ("h_next", "c_next", "h_out")]
    for value, name in zip((h_new, c_new, h_new), outputs, strict=True):
        body.named(value, name)
    state = ["batch", layer.hidden_size]
    inputs = [_value(h, state), _value(c, state), _value(read, ["batch", 4 * layer.hidden_size]), _value(k_t, None)]
    subgraph = helper.make_graph(body.nodes, f"step{suffix}", inputs, [_value(name, state) for name in outputs])
    backwards = int(suffix.endswith("_reverse"))
    h_n, _, all_h = graph.add(
        "Scan", zeros, zeros, sums, k, outputs=3, body=subgraph, num_scan_inputs=2,
        scan_input_directions=[backwards] * 2, scan_output_directions=[backwards],
    )  # fmt: skip
    return h_n, all_h


def _input_sums(graph: _Graph, layer: GatedLSTM, suffix: str, x: str) -> str:
    """What the inputs and the biases add up to, for all steps at once."""
    product = _product(graph, layer, "weight_ih", suffix, x)
    if not layer.bias:
        return product
    bias = _array(layer._get("bias_ih", suffix)) + _array(layer._get("bias_hh", suffix))
    return graph.add("Add", product, graph.constant(bias))


def _product(graph: _Graph, layer: GatedLSTM, name: str, suffix: str, value: str) -> str:
    return graph.add("MatMul", value, graph.constant(_array(layer._get(name, suffix)).T))


def _cell(graph: _Graph, layer: GatedLSTM, sums: str, k: str, h: str, c: str) -> tuple[str, str]:
    """The new h and c."""
    i, f, g, o = graph.add("Split", sums, outputs=4, axis=-1, num_outputs=4)
    i, f, o = (graph.add("Sigmoid", gate) for gate in (i, f, o))
    g = graph.add("Sigmoid" if layer.candidate == "sigmoid" else "Tanh", g)
    candidate = graph.add("Add", graph.add("Mul", f, c), graph.add("Mul", i, g))
    output = graph.add("Mul", o, graph.add("Tanh", candidate))
    return _mix(graph, k, output, h), _mix(graph, k, candidate, c)


def _mix(graph: _Graph, k: str, new: str, old: str) -> str:
    """old + k (new - old): exactly old where k is 0."""
    return graph.add("Add", old, graph.add("Mul", k, graph.add("Sub", new, old)))


def _openness(graph: _Graph, layer: GatedLSTM, suffix: str, times: str) -> str:
    """times (T, 1) -> k (T, H)"""
    unit = {name: _array(layer._get(name, suffix))[None] for name in layer.gate.names}
    match layer.gate:
        case Open():
            ones = graph.constant(np.ones((1, layer.hidden_size)))
            k = graph.add("Add", graph.add("Mul", times, graph.constant(0.0)), ones)
        case Gaussian():
            distance = graph.add("Sub", times, graph.constant(unit["mu"]))
            ratio = graph.add("Div", distance, graph.constant(_positive(unit["sigma"])))
            k = graph.add("Exp", graph.add("Neg", graph.add("Mul", ratio, ratio)))
        case Phased():
            ratio = graph.constant(_positive(unit["r"]))
            phase = _phase(graph, graph.add("Sub", times, graph.constant(unit["s"])), _positive(unit["tau"]))
            rise = graph.add("Div", graph.add("Mul", phase, graph.constant(2.0)), ratio)
            fall = graph.add("Sub", graph.constant(2.0), rise)
            k = graph.add("Clip", graph.add("Min", rise, fall), graph.constant(0.0), graph.constant(1.0))
        case Clockwork():
            within = graph.add("Mod", times, graph.constant(unit["period"]), fmod=1)
            k = graph.add("Cast", graph.add("Less", within, graph.constant(1.0)), to=TensorProto.FLOAT)
        case gate:
            raise ValueError(f"there is no ONNX for a gate of the kind {type(gate).__name__}")
    if layer.threshold <= 0:
        return k
    is_open = graph.add("Greater", k, graph.constant(layer.threshold))
    return graph.add("Where", is_open, k, graph.constant(0.0))


def _phase(graph: _Graph, times: str, period: np.ndarray) -> str:
    """How far into its period a time is, from 0 to 1. The remainder is exact, but has its argument's sign."""
    tau, zero = graph.constant(period), graph.constant(0.0)
    rest = graph.add("Mod", times, tau, fmod=1)
    since = graph.add("Where", graph.add("Less", rest, zero), graph.add("Add", rest, tau), rest)
    return graph.add("Div", since, tau)


def _positive(values: np.ndarray) -> np.ndarray:
    return np.maximum(np.abs(values), 1e-6)


def _head(graph: _Graph, model: SequenceModel, value: str) -> str:
    for part in linear_parts(model.head):
        if isinstance(part, nn.ReLU):
            value = graph.add("Relu", value)
            continue
        value = graph.add("MatMul", value, graph.constant(_array(part.weight).T))
        if part.bias is not None:
            value = graph.add("Add", value, graph.constant(_array(part.bias)))
    return value


def _outputs(model: SequenceModel) -> int:
    return [part.out_features for part in linear_parts(model.head) if isinstance(part, nn.Linear)][-1]


def _side_by_side(graph: _Graph, values: list[str]) -> str:
    return values[0] if len(values) == 1 else graph.add("Concat", *values, axis=-1)


def _array(tensor) -> np.ndarray:
    return tensor.detach().cpu().float().numpy()


def _zero() -> onnx.TensorProto:
    return helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0])


def _value(name: str, shape: list[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _model(graph: _Graph, inputs, outputs, what: str) -> onnx.ModelProto:
    whole = helper.make_graph(graph.nodes, "glstm", inputs, outputs, graph.constants, doc_string=what)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(whole, opset_imports=opsets, producer_name="glstm", producer_version=glstm.__version__)
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model, full_check=True)
    return model
