"""A network as ONNX: whole sequences of any length and batch, or one step with its state as input and output.

The recurrence is a Scan, whose length is that of its input; a traced Python loop would have a fixed length. Openness is
computed in the graph from the time of each step, so a model contains the gates, not a table of k.
"""

from typing import Any

import numpy as np
from torch import Tensor, nn

import glstm
from glstm.extras import needed_by
from glstm.gated import GatedLSTM
from glstm.models import SequenceModel
from glstm.runtime.gate_graph import openness_of
from glstm.runtime.plan import linear_parts

with needed_by("exporting ONNX"):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

OPSET = 18
IR_VERSION = 9  # the oldest that this opset allows: more runtimes read it


class Graph:
    """Nodes and constants in the order they are added; `add` returns the name of the node's result."""

    def __init__(self, prefix: str = "", outer: "Graph | None" = None):
        self.nodes: list[onnx.NodeProto] = []
        self.constants = outer.constants if outer else []  # a subgraph can use the constants of the graph around it
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
        """Gives an output its name."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))


def export_whole(model: SequenceModel) -> onnx.ModelProto:
    """x (T, B, D) -> y (B, outputs), as the model's forward; with batch_first, x is (B, T, D)."""
    layer, graph = model.layer, Graph()
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
    layer, graph = model.layer, Graph()
    if layer.bidirectional:
        raise ValueError("a bidirectional layer reads a sequence from both ends, so there is no single step to export")
    x, states = "x", []
    times = graph.add("Reshape", "t", graph.constant([1, 1], np.int64))
    for depth, suffix in layer.places():
        index = graph.constant(depth, np.int64)
        h, c = (graph.add("Gather", name, index, axis=0) for name in ("h", "c"))
        sums = graph.add("Add", _input_sums(graph, layer, suffix, x), _product(graph, layer.weights(suffix).w_hh, h))
        x, c = _cell(graph, layer, sums, openness_of(graph, layer, suffix, times), h, c)
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


def _scan(graph: Graph, layer: GatedLSTM, suffix: str, x: str, times: str, zeros: str) -> tuple[str, str]:
    """The last h (B, H) and all h (T, B, H) of one layer and direction."""
    sums, k = _input_sums(graph, layer, suffix, x), openness_of(graph, layer, suffix, times)
    body = Graph(f"in{suffix}_", graph)
    h, c, read, k_t = (body.prefix + name for name in ("h", "c", "read", "k"))
    total = body.add("Add", read, _product(body, layer.weights(suffix).w_hh, h))
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


def _input_sums(graph: Graph, layer: GatedLSTM, suffix: str, x: str) -> str:
    """The sum of the inputs' contributions and the biases, for all steps at once."""
    weights = layer.weights(suffix)
    product = _product(graph, weights.w_ih, x)
    if weights.bias_ih is None or weights.bias_hh is None:
        return product
    return graph.add("Add", product, graph.constant(_array(weights.bias_ih) + _array(weights.bias_hh)))


def _product(graph: Graph, weight: Tensor, value: str) -> str:
    return graph.add("MatMul", value, graph.constant(_array(weight).T))


def _cell(graph: Graph, layer: GatedLSTM, sums: str, k: str, h: str, c: str) -> tuple[str, str]:
    """The new h and c."""
    i, f, g, o = graph.add("Split", sums, outputs=4, axis=-1, num_outputs=4)
    i, f, o = (graph.add("Sigmoid", gate) for gate in (i, f, o))
    g = graph.add("Sigmoid" if layer.candidate == "sigmoid" else "Tanh", g)
    candidate = graph.add("Add", graph.add("Mul", f, c), graph.add("Mul", i, g))
    output = graph.add("Mul", o, graph.add("Tanh", candidate))
    return _mix(graph, k, output, h), _mix(graph, k, candidate, c)


def _mix(graph: Graph, k: str, new: str, old: str) -> str:
    """old + k (new - old): exactly old where k is 0."""
    return graph.add("Add", old, graph.add("Mul", k, graph.add("Sub", new, old)))


def _head(graph: Graph, model: SequenceModel, value: str) -> str:
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


def _side_by_side(graph: Graph, values: list[str]) -> str:
    return values[0] if len(values) == 1 else graph.add("Concat", *values, axis=-1)


def _array(tensor) -> np.ndarray:
    return tensor.detach().cpu().float().numpy()


def _zero() -> onnx.TensorProto:
    return helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0])


def _value(name: str, shape: list[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _model(graph: Graph, inputs, outputs, what: str) -> onnx.ModelProto:
    whole = helper.make_graph(graph.nodes, "glstm", inputs, outputs, graph.constants, doc_string=what)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(whole, opset_imports=opsets, producer_name="glstm", producer_version=glstm.__version__)
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model, full_check=True)
    return model
