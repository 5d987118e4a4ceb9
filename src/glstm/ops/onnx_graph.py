"""The recurrence as nodes of an ONNX graph: a Scan, whose length is that of its input."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from glstm.extras import needed_by

with needed_by("exporting ONNX"):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

OPSET = 18


class Graph:
    """Nodes and constants in the order they are added; `add` returns the name of the node's result."""

    def __init__(self, prefix: str = "", outer: "Graph | None" = None, opset: int = OPSET):
        self.nodes: list[onnx.NodeProto] = []
        self.constants = outer.constants if outer else []  # a subgraph can use the constants of the graph around it
        self.prefix, self.outer = prefix, outer
        self.opset = outer.opset if outer else opset

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


def value_info(
    name: str, shape: Sequence[int | str | None] | None, kind: int = TensorProto.FLOAT
) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def recurrence(
    graph: Graph,
    sums: str,
    k: str,
    w_hh: str,
    h0: str,
    c0: str,
    candidate: str,
    hidden: int,
    *,
    k_h: str | None = None,
    kind: int = TensorProto.FLOAT,
    backwards: bool = False,
    name: str = "",
) -> tuple[str, str, str]:
    """All h (T, B, H), the last h and the last c (B, H), of one layer and direction.

    sums (T, B, 4H) are those of inputs and biases, w_hh is transposed, (H, 4H); k and k_h are (T, H) or (T, B, H).
    `hidden` is H, and `kind` the type of all numbers.
    """
    body = Graph(f"in{name}_", graph)
    tables = [k] if k_h is None else [k, k_h]
    h, c, read, *opened = (body.prefix + one for one in ("h", "c", "read", "k", "k_h")[: 3 + len(tables)])
    total = body.add("Add", read, body.add("MatMul", h, w_hh))
    h_new, c_new = cell(body, total, opened, h, c, candidate)
    outputs = [body.prefix + one for one in ("h_next", "c_next", "h_out")]
    for made, one in zip((h_new, c_new, h_new), outputs, strict=True):
        body.named(made, one)
    state, gates = [None, hidden], [None, 4 * hidden]  # ONNX Runtime wants to know how many axes there are
    shapes = {h: state, c: state, read: gates, **dict.fromkeys(opened)}
    inputs = [value_info(one, shape, kind) for one, shape in shapes.items()]
    results = [value_info(one, state, kind) for one in outputs]
    subgraph = helper.make_graph(body.nodes, f"step{name}", inputs, results)
    scanned = [sums, *tables]
    h_n, c_n, all_h = graph.add(
        "Scan", h0, c0, *scanned, outputs=3, body=subgraph, num_scan_inputs=len(scanned),
        scan_input_directions=[int(backwards)] * len(scanned), scan_output_directions=[int(backwards)],
    )  # fmt: skip
    return all_h, h_n, c_n


def cell(graph: Graph, sums: str, k: Sequence[str], h: str, c: str, candidate: str) -> tuple[str, str]:
    """The new h and c; the first k is the cell's, the last the output's."""
    parts = {"num_outputs": 4} if graph.opset >= 18 else {}
    i, f, g, o = graph.add("Split", sums, outputs=4, axis=-1, **parts)
    i, f, o = (graph.add("Sigmoid", gate) for gate in (i, f, o))
    g = graph.add("Sigmoid" if candidate == "sigmoid" else "Tanh", g)
    c_new = graph.add("Add", graph.add("Mul", f, c), graph.add("Mul", i, g))
    h_new = graph.add("Mul", o, graph.add("Tanh", c_new))
    return _mix(graph, k[-1], h_new, h), _mix(graph, k[0], c_new, c)


def _mix(graph: Graph, k: str, new: str, old: str) -> str:
    """old + k (new - old): exactly old where k is 0."""
    return graph.add("Add", old, graph.add("Mul", k, graph.add("Sub", new, old)))
