"""A network as ONNX: whole sequences of any length and batch, or one step with its state as input and output.

The recurrence is a Scan, whose length is that of its input; a traced Python loop would have a fixed length. Openness is
computed in the graph from the time of each step, so a model contains the gates, not a table of k.
"""

import json

import numpy as np
from torch import Tensor

import glstm
from glstm.extras import needed_by
from glstm.gated import GatedLSTM
from glstm.models import SequenceModel
from glstm.ops.onnx_graph import OPSET, Graph, cell, recurrence
from glstm.ops.onnx_graph import value_info as _value
from glstm.runtime.gate_graph import is_plain, openness_of
from glstm.runtime.head import Activation, head_parts, outputs_of
from glstm.runtime.raw import InputPlan, input_plan, output_unit

with needed_by("exporting ONNX"):
    import onnx
    from onnx import TensorProto, helper

IR_VERSION = 9  # the oldest that this opset allows: more runtimes read it


def export_whole(model: SequenceModel, times: Tensor | None = None, *, times_as_input: bool = False) -> onnx.ModelProto:
    """x (T, B, D) -> y (B, outputs), as the model's forward; with batch_first, x is (B, T, D).

    Of a model that reads every step, y has the layout of x. `times` are those of the steps, of a sequence that is at
    least as long as any other; None: steps are counted 1, 2, ... With `times_as_input` they are a second input of the
    graph, in double precision: (T, 1) for all sequences, or (T, B), each its own; with batch_first, (1, T) or (B, T).
    """
    layer, graph = model.layer, Graph()
    given = input_plan(model)
    steps_first = not layer.batch_first
    x = "x" if steps_first else graph.add("Transpose", "x", perm=[1, 0, 2])
    shape = graph.add("Shape", x)
    batch = graph.add("Gather", shape, graph.constant(1, np.int64), axis=0)
    wide = times_as_input or times is not None
    if times_as_input:
        moments = "times" if steps_first else graph.add("Transpose", "times", perm=[1, 0])
        moments = graph.add("Unsqueeze", moments, graph.constant([2], np.int64))
    elif times is None:
        steps, one = _steps(graph, shape), graph.constant(1, np.int64)
        counted = graph.add("Cast", graph.add("Range", one, graph.add("Add", steps, one), one), to=TensorProto.FLOAT)
        moments = graph.add("Unsqueeze", counted, graph.constant([1], np.int64))
    else:
        all_times = graph.constant(times.double().cpu().numpy()[:, None], np.float64)
        first = graph.constant([0], np.int64)
        until = graph.add("Reshape", _steps(graph, shape), graph.constant([1], np.int64))
        moments = graph.add("Slice", all_times, first, until, first)
    flat_batch = graph.add("Reshape", batch, graph.constant([1], np.int64))
    if given is not None:
        standard, observed = _standardized(graph, given, x)
        if observed is not None:
            standard = _carry_scan(graph, given.size, standard, observed, _zeros(graph, flat_batch, given.size))
        x = _with_mask(graph, given, standard, observed)
    zeros = _zeros(graph, flat_batch, layer.hidden_size)
    finals: list[str] = []
    for depth in range(layer.num_layers):
        directions = [suffix for level, suffix in layer.places() if level == depth]
        runs = [_scan(graph, layer, suffix, x, moments, zeros, wide) for suffix in directions]
        finals = [h_n for h_n, _ in runs]
        x = _side_by_side(graph, [h for _, h in runs])
    match model.reads:
        case "every":
            read = x if steps_first else graph.add("Transpose", x, perm=[1, 0, 2])
        case "mean" | "max":
            over = "ReduceMean" if model.reads == "mean" else "ReduceMax"
            read = graph.add(over, x, graph.constant([0], np.int64), keepdims=0)
        case _:
            read = _side_by_side(graph, finals)
    graph.named(_head(graph, model, read), "y")
    layout = ["steps", "batch"] if steps_first else ["batch", "steps"]
    own = [axis if axis == "steps" else "one_or_batch" for axis in layout]
    given_times = [_value("times", own, TensorProto.DOUBLE)] if times_as_input else []
    return _model(
        model,
        graph,
        [_value("x", [*layout, _inputs(model)]), *given_times],
        [_value("y", [*(layout if model.reads == "every" else ["batch"]), outputs_of(model)])],
        "A gated LSTM on whole sequences.",
    )


def export_step(model: SequenceModel, *, wide_times: bool = False) -> onnx.ModelProto:
    """x (B, D), t (1), h and c (layers, B, H) -> y (B, outputs), and h and c after the step, as h_next and c_next.

    t is the time of the step, 1 for the first; all other state is zeros before it. With `wide_times`, t has double
    precision, whatever times the network was trained at. If missing values are carried there is more state, `last`
    (B, D); if the head reads a mean or maximum, `pool` (B, H), of the `n` (1) steps so far.
    """
    layer, graph = model.layer, Graph()
    if layer.bidirectional:
        raise ValueError("a bidirectional layer reads a sequence from both ends, so there is no single step to export")
    given = input_plan(model)
    x, states = "x", []
    extra: list[onnx.ValueInfoProto] = []
    if given is not None:
        x, observed = _standardized(graph, given, x)
        if observed is not None:
            x = graph.add("Where", observed, x, "last")
            graph.named(x, "last_next")
            extra.append(_value("last", ["batch", given.size]))
        x = _with_mask(graph, given, x, observed)
    times = graph.add("Reshape", "t", graph.constant([1, 1], np.int64))
    for depth, suffix in layer.places():
        index = graph.constant(depth, np.int64)
        h, c = (graph.add("Gather", name, index, axis=0) for name in ("h", "c"))
        sums = graph.add("Add", _input_sums(graph, layer, suffix, x), _product(graph, layer.weights(suffix).w_hh, h))
        x, c = cell(graph, sums, [openness_of(graph, layer, suffix, times, wide=wide_times)], h, c, layer.candidate)
        states.append((x, c))
    front = graph.constant([0], np.int64)
    for place, name in enumerate(("h_next", "c_next")):
        rows = [graph.add("Unsqueeze", state[place], front) for state in states]
        graph.named(graph.add("Concat", *rows, axis=0), name)
    if model.reads in ("mean", "max"):
        x = _pool_step(graph, model.reads, x)
        extra += [_value("pool", ["batch", layer.hidden_size]), _value("n", [1])]
    graph.named(_head(graph, model, x), "y")
    state = [layer.num_layers, "batch", layer.hidden_size]
    state = [_value("h", state), _value("c", state), *extra]
    return _model(
        model,
        graph,
        [
            _value("x", ["batch", _inputs(model)]),
            _value("t", [1], TensorProto.DOUBLE if wide_times or not is_plain(layer) else TensorProto.FLOAT),
            *state,
        ],
        [_value("y", ["batch", outputs_of(model)]), *map(_next, state)],
        "One step of a gated LSTM: give h_next back as h, and so every state. All are zeros at first.",
    )


def _steps(graph: Graph, shape: str) -> str:
    return graph.add("Gather", shape, graph.constant(0, np.int64), axis=0)


def _inputs(model: SequenceModel) -> int:
    """Numbers in a sample."""
    given = input_plan(model)
    return model.layer.input_size if given is None else given.size


def _standardized(graph: Graph, plan: InputPlan, x: str) -> tuple[str, str | None]:
    """(x - mean) / scale; where missing values are carried, with 0 in their place, and which ones are not missing."""
    centred = graph.add("Sub", x, graph.constant(plan.mean))
    standard = graph.add("Div", centred, graph.constant(plan.scale))
    if plan.missing == "refuse":
        return standard, None
    observed = graph.add("Not", graph.add("IsNaN", x))
    return graph.add("Where", observed, standard, graph.constant(0.0)), observed


def _carry_scan(graph: Graph, size: int, standard: str, observed: str, zeros: str) -> str:
    """Every missing value replaced by the last one before it."""
    body = Graph("carry_", graph)
    names = [body.prefix + name for name in ("last", "value", "seen", "last_next", "filled")]
    filled = body.add("Where", names[2], names[1], names[0])
    for name in names[3:]:
        body.named(filled, name)
    values = {name: _value(name, ["batch", size]) for name in names}
    values[names[2]] = helper.make_tensor_value_info(names[2], TensorProto.BOOL, ["batch", size])
    inputs, outputs = ([values[name] for name in some] for some in (names[:3], names[3:]))
    subgraph = helper.make_graph(body.nodes, "carry", inputs, outputs)
    _, all_steps = graph.add("Scan", zeros, standard, observed, outputs=2, body=subgraph, num_scan_inputs=2)
    return all_steps


def _with_mask(graph: Graph, plan: InputPlan, x: str, observed: str | None) -> str:
    if plan.missing != "mask" or observed is None:
        return x
    return graph.add("Concat", x, graph.add("Cast", observed, to=TensorProto.FLOAT), axis=-1)


def _pool_step(graph: Graph, how: str, h: str) -> str:
    """What the head reads: the mean or maximum of h at this step and of `pool`, that of the `n` steps before."""
    count = graph.add("Add", "n", graph.constant([1.0]))
    graph.named(count, "n_next")
    if how == "mean":
        total = graph.add("Add", "pool", h)
        graph.named(total, "pool_next")
        return graph.add("Div", total, count)
    is_first = graph.add("Equal", "n", graph.constant([0.0]))
    largest = graph.add("Where", is_first, h, graph.add("Max", "pool", h))
    graph.named(largest, "pool_next")
    return largest


def _scan(graph: Graph, layer: GatedLSTM, suffix: str, x: str, times: str, zeros: str, wide: bool) -> tuple[str, str]:
    """The last h (B, H) and all h (T, B, H) of one layer and direction."""
    sums, k = _input_sums(graph, layer, suffix, x), openness_of(graph, layer, suffix, times, wide=wide)
    all_h, h_n, _ = recurrence(
        graph, sums, k, _transposed(graph, layer.weights(suffix).w_hh), zeros, zeros, layer.candidate,
        layer.hidden_size, backwards=suffix.endswith("_reverse"), name=suffix,
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
    return graph.add("MatMul", value, _transposed(graph, weight))


def _transposed(graph: Graph, weight: Tensor) -> str:
    return graph.constant(_array(weight).T)


def _head(graph: Graph, model: SequenceModel, value: str) -> str:
    for part in head_parts(model):
        if isinstance(part, Activation):
            value = _activation(graph, part, value)
            continue
        value = graph.add("MatMul", value, graph.constant(_array(part.weight).T))
        if part.bias is not None:
            value = graph.add("Add", value, graph.constant(_array(part.bias)))
    unit = output_unit(model, outputs_of(model))
    if model.outputs is None:
        return value
    return graph.add("Add", graph.add("Mul", value, graph.constant(unit.scale)), graph.constant(unit.mean))


def _activation(graph: Graph, function: Activation, x: str) -> str:
    """GELU is written out: ONNX has it only in later opsets."""
    match function.kind:
        case "leaky_relu":
            return graph.add("LeakyRelu", x, alpha=function.number)
        case "silu":
            return graph.add("Mul", x, graph.add("Sigmoid", x))
        case "gelu":
            share = graph.add("Erf", graph.add("Mul", x, graph.constant(0.5**0.5)))
            return graph.add(
                "Mul", graph.add("Mul", x, graph.constant(0.5)), graph.add("Add", share, graph.constant(1))
            )
        case "gelu_tanh":
            cubic = graph.add("Mul", graph.add("Mul", x, x), graph.constant(2 * (2 / np.pi) ** 0.5 * 0.044715))
            inside = graph.add("Mul", x, graph.add("Add", cubic, graph.constant(2 * (2 / np.pi) ** 0.5)))
            return graph.add("Mul", x, graph.add("Sigmoid", inside))
        case "softmax" | "log_softmax":
            return graph.add("Softmax" if function.kind == "softmax" else "LogSoftmax", x, axis=-1)
        case "layer_norm":
            gain, shift = (graph.constant(one) for one in (function.gain, function.shift))
            return graph.add("LayerNormalization", x, gain, shift, axis=-1, epsilon=function.number)
        case _:
            return graph.add({"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}[function.kind], x)


def _zeros(graph: Graph, batch: str, width: int) -> str:
    """(B, width)"""
    shape = graph.add("Concat", batch, graph.constant([width], np.int64), axis=0)
    return graph.add("ConstantOfShape", shape, value=_zero())


def _side_by_side(graph: Graph, values: list[str]) -> str:
    return values[0] if len(values) == 1 else graph.add("Concat", *values, axis=-1)


def _array(tensor) -> np.ndarray:
    return tensor.float().numpy(force=True)


def _zero() -> onnx.TensorProto:
    return helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0])


def _next(value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """The same state after the step."""
    after = onnx.ValueInfoProto()
    after.CopyFrom(value)
    after.name = f"{value.name}_next"
    return after


def _about(model: SequenceModel) -> dict[str, str]:
    """What a program that loads the file may want to know of the network, as JSON."""
    given = input_plan(model)
    inputs = {"size": _inputs(model), "standardized": "outside" if given is None else "inside"}
    if given is not None:
        inputs |= {"mean": given.mean.tolist(), "scale": given.scale.tolist(), "missing": given.missing}
    about = {"inputs": inputs, "reads": model.reads}
    if model.classes is not None:
        about["classes"] = list(model.classes)
    return {name: json.dumps(value) for name, value in about.items()}


def _model(of: SequenceModel, graph: Graph, inputs, outputs, what: str) -> onnx.ModelProto:
    whole = helper.make_graph(graph.nodes, "glstm", inputs, outputs, graph.constants, doc_string=what)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(whole, opset_imports=opsets, producer_name="glstm", producer_version=glstm.__version__)
    model.ir_version = IR_VERSION
    helper.set_model_props(model, _about(of))
    onnx.checker.check_model(model, full_check=True)
    return model
