"""What we compare with: torch's own LSTM, ONNX Runtime's, and the gated LSTM written in plain torch."""

import torch
from torch import Tensor, nn

from glstm.extras import needed_by


def eager_gated_lstm(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor, k: Tensor, outputs: bool = False
) -> Tensor:  # fmt: skip
    """The final h, or all h, by a plain but efficient loop: one product for all inputs, one per step, no indexing."""
    h = c = x.new_zeros(x.shape[1], w_hh.shape[1])
    recurrent, every = w_hh.T, []
    for drive, openness in zip((x @ w_ih.T + b).unbind(0), k.unbind(0)):
        i, f, g, o = torch.addmm(drive, h, recurrent).chunk(4, -1)
        c_new = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h_new = o.sigmoid() * c_new.tanh()
        c, h = torch.lerp(c, c_new, openness), torch.lerp(h, h_new, openness)
        if outputs:
            every.append(h)
    return torch.stack(every) if outputs else h


def onnx_lstm(lstm: nn.LSTM, outputs: bool = False) -> bytes:
    """As an ONNX graph of a node for each layer: x (T, B, D) to the top's final h (1, B, H), or all h (T, 1, B, H)."""
    with needed_by("ONNX Runtime, a peer in this benchmark,"):
        from onnx import TensorProto, helper, numpy_helper

    def reordered(name: str) -> Tensor:
        i, f, g, o = lstm.get_parameter(name).detach().chunk(4)
        return torch.cat((i, o, f, g))  # ONNX's order

    nodes, constants, x = [], [numpy_helper.from_array(torch.tensor([1]).numpy(), "direction")], "x"
    for layer in range(lstm.num_layers):
        w, r = (reordered(f"weight_{kind}_l{layer}") for kind in ("ih", "hh"))
        b = torch.cat([reordered(f"bias_{kind}_l{layer}") for kind in ("ih", "hh")])
        own = {f"{name}{layer}": value for name, value in (("w", w), ("r", r), ("b", b))}
        constants += [numpy_helper.from_array(value.unsqueeze(0).numpy(), name) for name, value in own.items()]
        top = layer + 1 == lstm.num_layers
        made = [f"y{layer}"] if not top else ["h"] if outputs else ["", "h"]
        nodes.append(helper.make_node("LSTM", [x, *own], made, hidden_size=lstm.hidden_size))
        if not top:
            x = f"x{layer + 1}"
            nodes.append(helper.make_node("Squeeze", [f"y{layer}", "direction"], [x]))
    graph = helper.make_graph(
        nodes,
        "lstm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", "B", lstm.input_size])],
        [helper.make_tensor_value_info("h", TensorProto.FLOAT, [*["T"] * outputs, 1, "B", lstm.hidden_size])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model.SerializeToString()


def onnx_session(graph: bytes, threads: int):
    with needed_by("this benchmark"):
        import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
